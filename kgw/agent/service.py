"""The four methods of the agent's gRPC API, with their limits, streams and statuses.

Each method first finds the client. A session belongs to the user who has opened it. The rights of a
client are checked before a topic is looked up, and those of all streams again when an access rule
changes.
"""

from __future__ import annotations

import asyncio
from secrets import randbelow
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode

from kgw.agent.clients import AgentClients, CallRefusedError, publishing, subscribing
from kgw.agent.publication import Publication, describe
from kgw.agent.subscribe_request import read_init
from kgw.agent.subscription import SubscriptionStream
from kgw.agent.topics import existing_topic, topic_name, topic_to_publish_to
from kgw.backend.seaweedmq.protos.mq_agent_pb2 import (
    ClosePublishSessionResponse,
    PublishRecordResponse,
    StartPublishSessionResponse,
)
from kgw.backend.seaweedmq.protos.mq_agent_pb2_grpc import SeaweedMessagingAgentServicer
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.logs import EventLogger
from kgw.metrics import count

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from kgw.agent.clients import AgentClient, Question
    from kgw.backend.seaweedmq.protos.mq_agent_pb2 import (
        ClosePublishSessionRequest,
        PublishRecordRequest,
        StartPublishSessionRequest,
        SubscribeRecordRequest,
        SubscribeRecordResponse,
    )
    from kgw.clock import Timer
    from kgw.gateway import Gateway
    from kgw.partitions.topics.topic import Topic
    from kgw.security.principal import Principal

_log = EventLogger(__name__)

_STREAMS_BYTES: Final = 4
"""The limit of unstored bytes of all publishers together, as a multiple of the limit of one."""
_OUTBOX: Final = 8
"""The most records that wait to be sent to a subscriber, besides gRPC's own queue."""

_STATUSES: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: StatusCode.OUT_OF_RANGE,
    ErrorCode.CORRUPT_MESSAGE: StatusCode.DATA_LOSS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: StatusCode.NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: StatusCode.NOT_FOUND,
    ErrorCode.INVALID_TOPIC_EXCEPTION: StatusCode.INVALID_ARGUMENT,
    ErrorCode.INVALID_REQUEST: StatusCode.INVALID_ARGUMENT,
    ErrorCode.INVALID_GROUP_ID: StatusCode.INVALID_ARGUMENT,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: StatusCode.FAILED_PRECONDITION,
    ErrorCode.GROUP_MAX_SIZE_REACHED: StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.FENCED_INSTANCE_ID: StatusCode.ABORTED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: StatusCode.PERMISSION_DENIED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: StatusCode.PERMISSION_DENIED,
}


def status_of(error: KafkaError | StorageError) -> StatusCode:
    """Return the gRPC status for an error; UNAVAILABLE for errors that may pass."""
    known = _STATUSES.get(error.code)
    if known is not None:
        return known
    passes = isinstance(error, StorageError) or error.code.retriable
    return StatusCode.UNAVAILABLE if passes else StatusCode.FAILED_PRECONDITION


class StreamEndedError(Exception):
    """The status with which the server ends a stream."""

    def __init__(self, status: StatusCode, text: str) -> None:
        super().__init__(text)
        self.status = status


_StreamEnd: TypeAlias = "asyncio.Future[StreamEndedError | None]"
"""A future whose result ends a stream: an error, or None for a normal end."""


class _Session:
    """A publisher's session: it has a user, a topic, and at most one stream."""

    __slots__ = ("opened_s", "over", "principal", "topic")

    def __init__(self, principal: Principal, topic: Topic, now_s: float) -> None:
        self.principal = principal
        self.topic = topic
        self.opened_s = now_s
        self.over: _StreamEnd | None = None
        """The future that ends the session's stream; None without a stream."""


class _Stream:
    """A stream: its kind, its client, and the rights that the client needs until its end."""

    __slots__ = ("client", "kind", "questions")

    def __init__(self, kind: str, client: AgentClient) -> None:
        self.kind = kind
        self.client = client
        self.questions: Sequence[Question] = ()

    def authorize(self, questions: Sequence[Question]) -> None:
        """Raise KafkaError if the client lacks a right; ask for them again later."""
        self.client.authorize(questions)
        self.questions = questions


class _Idle:
    """Ends a stream that receives no message for a while; uses one timer for all messages."""

    def __init__(self, gateway: Gateway, timeout_ms: int, over: _StreamEnd) -> None:
        self._clock = gateway.clock
        self._timeout_s = timeout_ms / 1000
        self._over = over
        self._timer: Timer | None = None
        self.last_s = self._clock.monotonic_s()
        if timeout_ms >= 0:
            self._arm()

    def _arm(self) -> None:
        self._timer = self._clock.call_at(self.last_s + self._timeout_s, self._look)

    def _look(self) -> None:
        if self._clock.monotonic_s() < self.last_s + self._timeout_s:
            self._arm()
        else:
            _end(self._over, StatusCode.DEADLINE_EXCEEDED, "nothing has come for too long")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class AgentService(SeaweedMessagingAgentServicer):
    """Implements `SeaweedMessagingAgent` for one gateway. Its methods run in the event loop."""

    def __init__(self, gateway: Gateway, clients: AgentClients | None = None) -> None:
        """Without `clients` there are no certificates of clients."""
        self._gateway = gateway
        self._clients = clients or AgentClients(gateway, None)
        self._sessions: dict[int, _Session] = {}
        self._streams: dict[_StreamEnd, _Stream] = {}
        self._in_flight: dict[Publication, asyncio.Event] = {}
        self._is_stopping = False
        gateway.metrics.when_read.append(self._count)
        if gateway.access is not None:
            gateway.access.when_changed.append(self._ask_again)

    def stop(self) -> None:
        """End every stream in order: answer accepted records, commit acknowledged ones."""
        self._is_stopping = True
        access = self._gateway.access
        if access is not None and self._ask_again in access.when_changed:
            access.when_changed.remove(self._ask_again)
        for over in self._streams:
            _end(over, StatusCode.UNAVAILABLE, "the gateway stops")

    # --- publishing ------------------------------------------------------------------------------

    async def StartPublishSession(  # noqa: N802 - gRPC's name
        self, request: StartPublishSessionRequest, context: Any
    ) -> StartPublishSessionResponse:
        """Open a session. An error is reported in the field `error`, which SMQ's clients read."""
        client = await self._client_of(context, "StartPublishSession")
        try:
            topic = await topic_to_publish_to(self._gateway, request, client)
            session_id = self._open(client.principal, topic)
        except (KafkaError, StorageError) as error:
            self._refused(error)
            return StartPublishSessionResponse(error=describe(error))
        return StartPublishSessionResponse(session_id=session_id)

    async def ClosePublishSession(  # noqa: N802 - gRPC's name
        self, request: ClosePublishSessionRequest, context: Any
    ) -> ClosePublishSessionResponse:
        """End a session, and its stream once all of its records are answered.

        A session ends with its stream, so an unknown session counts as ended; so does the session
        of another user.
        """
        client = await self._client_of(context, "ClosePublishSession")
        session = self._session_of(client, request.session_id)
        if session is not None:
            del self._sessions[request.session_id]
        if session is not None and session.over is not None and not session.over.done():
            session.over.set_result(None)
        return ClosePublishSessionResponse()

    async def PublishRecord(self, _: object, context: Any) -> None:  # noqa: N802 - gRPC's name
        """Store records, and answer each one once it is durable."""
        client = await self._client_of(context, "PublishRecord")
        await self._serve(_Stream("publish", client), self._publish, context)

    def _session_of(self, client: AgentClient, session_id: int) -> _Session | None:
        """Return a session of this user; None if there is none."""
        session = self._sessions.get(session_id)
        return None if session is None or session.principal != client.principal else session

    def _open(self, principal: Principal, topic: Topic) -> int:
        """Return the id of a new session. Raises KafkaError POLICY_VIOLATION."""
        config, now_s = self._gateway.config, self._gateway.clock.monotonic_s()
        idle_s = config.connections_max_idle_ms / 1000
        for session_id, one in list(self._sessions.items()):
            if one.over is None and 0 <= idle_s <= now_s - one.opened_s:
                del self._sessions[session_id]
        if len(self._sessions) >= config.smq_agent_sessions_max:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{len(self._sessions)} sessions are open (kgw.smq.agent.sessions.max)",
            )
        # The id is random, because a client that knows it may publish. 0 means no id in a message.
        session_id = 1 + randbelow((1 << 63) - 1)
        self._sessions[session_id] = _Session(principal, topic, now_s)
        return session_id

    async def _publish(self, context: Any, stream: _Stream, over: _StreamEnd) -> None:
        first: PublishRecordRequest | None = await self._first(context, over)
        if first is None:
            return
        session = self._session_of(stream.client, first.session_id)
        if session is None:
            raise StreamEndedError(StatusCode.NOT_FOUND, f"there is no session {first.session_id}")
        if session.over is not None:
            raise StreamEndedError(
                StatusCode.FAILED_PRECONDITION, "the session has a stream already"
            )
        stream.authorize(publishing(session.topic.name))
        session.over = over
        gateway = self._gateway
        publication = Publication(
            session.topic,
            gateway.clock,
            lambda error: gateway.report_internal_error("PublishRecord", error),
        )
        changed = self._in_flight[publication] = asyncio.Event()

        def heed() -> None:
            if publication.failure is not None and not over.done():
                over.set_result(None)
            self._wake()

        publication.when_changed = heed
        reading = asyncio.ensure_future(
            self._read_records(first, context, publication, over, changed)
        )
        writing = asyncio.ensure_future(self._write_answers(context, publication, changed, reading))
        try:
            await _first_of(reading, over)
            reading.cancel()
            await asyncio.wait({reading})
            changed.set()
            await self._written(writing, publication)
            ended = over.result() if over.done() else None
            if not reading.cancelled():
                reading.result()
            if publication.failure is not None:
                raise publication.failure
            if ended is not None:
                raise ended
        finally:
            publication.abandon()
            for task in (reading, writing):
                task.cancel()
            try:
                await asyncio.wait({reading, writing})
            finally:
                del self._in_flight[publication]
                self._wake()
                self._sessions.pop(first.session_id, None)
                metrics = gateway.metrics
                count(metrics.smq_agent_records, "published", publication.stored)
                for code, number in publication.refusals.items():
                    count(metrics.smq_agent_refusals, code, number)

    async def _read_records(
        self,
        first: PublishRecordRequest,
        context: Any,
        publication: Publication,
        over: _StreamEnd,
        changed: asyncio.Event,
    ) -> None:
        """Receive records until the client ends the stream, or the storage fails."""
        request = first
        config = self._gateway.config
        idle = _Idle(self._gateway, config.connections_max_idle_ms, over)
        try:
            while publication.failure is None:
                if request.session_id not in {0, first.session_id}:
                    raise StreamEndedError(
                        StatusCode.INVALID_ARGUMENT, "a stream belongs to one session"
                    )
                # A message without key and value only names the session; it is not a record.
                if request.HasField("key") or request.HasField("value"):
                    publication.submit(
                        request.key if request.HasField("key") else None,
                        request.value if request.HasField("value") else None,
                    )
                while self._is_full(publication) and publication.failure is None:
                    changed.clear()
                    await changed.wait()
                if publication.answers.is_overrun:
                    raise StreamEndedError(
                        StatusCode.RESOURCE_EXHAUSTED,
                        "too many records were refused, and the answers are not read",
                    )
                read = await context.read()
                if read is grpc.aio.EOF:
                    return
                request = read
                idle.last_s = self._gateway.clock.monotonic_s()
        finally:
            idle.close()

    def _is_full(self, publication: Publication) -> bool:
        """Return whether a publisher must wait until records of its own or of others are stored."""
        limit = self._gateway.config.inflight_bytes_max
        if not publication.in_flight_bytes:
            return False
        return publication.in_flight_bytes >= limit or _STREAMS_BYTES * limit <= sum(
            one.in_flight_bytes for one in self._in_flight
        )

    def _wake(self) -> None:
        for changed in self._in_flight.values():
            changed.set()

    async def _write_answers(
        self,
        context: Any,
        publication: Publication,
        changed: asyncio.Event,
        reading: asyncio.Future[None],
    ) -> None:
        """Write responses until the last one."""
        answers = publication.answers
        while True:
            answer = answers.take()
            if answer is not None:
                await context.write(
                    PublishRecordResponse(
                        ack_sequence=answer.sequence,
                        error=answer.error,
                        base_offset=answer.offset,
                        last_offset=answer.offset,
                    )
                )
            elif reading.done() and publication.is_settled:
                return
            else:
                changed.clear()
                await changed.wait()

    async def _written(self, writing: asyncio.Future[None], publication: Publication) -> None:
        """Wait for the last responses; a client that reads none has `timeout_s` for each step."""
        clock, timeout_s = self._gateway.clock, self._gateway.config.unsent_timeout_ms / 1000
        while not writing.done():
            left = len(publication.answers)
            waiting = asyncio.ensure_future(clock.sleep_until(clock.monotonic_s() + timeout_s))
            await _first_of(writing, waiting)
            waiting.cancel()
            if not writing.done() and publication.is_settled and left == len(publication.answers):
                raise StreamEndedError(
                    StatusCode.DEADLINE_EXCEEDED, "the client does not read its answers"
                )
        writing.result()

    # --- subscribing -----------------------------------------------------------------------------

    async def SubscribeRecord(self, _: object, context: Any) -> None:  # noqa: N802 - gRPC's name
        """Deliver records, and receive acknowledgements."""
        client = await self._client_of(context, "SubscribeRecord")
        await self._serve(_Stream("subscribe", client), self._subscribe, context)

    async def _subscribe(self, context: Any, stream: _Stream, over: _StreamEnd) -> None:
        first: SubscribeRecordRequest | None = await self._first(context, over)
        if first is None:
            return
        if not first.HasField("init"):
            raise StreamEndedError(
                StatusCode.INVALID_ARGUMENT, "the first message of a stream has an init"
            )
        gateway = self._gateway
        name = topic_name(first.init.topic, gateway.config)
        stream.authorize(subscribing(name, first.init.consumer_group))
        topic = existing_topic(gateway, name)
        outbox: asyncio.Queue[SubscribeRecordResponse] = asyncio.Queue(_OUTBOX)
        subscription = SubscriptionStream(
            gateway,
            topic,
            read_init(first.init, topic.partition_count),
            outbox.put,
            client_host=stream.client.host,
            waits_for_acks=gateway.config.smq_agent_acks == "client",
        )
        works = {
            asyncio.ensure_future(subscription.run()),
            asyncio.ensure_future(self._write_records(context, outbox)),
            asyncio.ensure_future(self._read_acks(context, subscription)),
        }
        is_orderly = False
        try:
            await _first_of(*works, over)
            for work in works:
                if work.done():
                    work.result()
            ended = over.result() if over.done() else None
            if ended is not None:
                raise ended
            is_orderly = True
        finally:
            for work in works:
                work.cancel()
            await _to_its_end(self._leave(works, subscription, is_orderly=is_orderly))

    async def _leave(
        self,
        works: Iterable[asyncio.Future[None]],
        subscription: SubscriptionStream,
        *,
        is_orderly: bool,
    ) -> None:
        await asyncio.wait(works)
        count(self._gateway.metrics.smq_agent_records, "delivered", subscription.delivered)
        await subscription.aclose(is_orderly=is_orderly)

    async def _write_records(
        self, context: Any, outbox: asyncio.Queue[SubscribeRecordResponse]
    ) -> NoReturn:
        # A single writer, as gRPC takes one message of a stream at a time. If a write is cancelled,
        # gRPC still completes it, and sends the status after it.
        while True:
            await context.write(await outbox.get())

    async def _read_acks(self, context: Any, subscription: SubscriptionStream) -> None:
        """Receive acknowledgements until the client ends the stream."""
        while (request := await context.read()) is not grpc.aio.EOF:
            if request.HasField("init"):
                raise StreamEndedError(
                    StatusCode.INVALID_ARGUMENT, "a stream has one init, its first message"
                )
            subscription.acknowledge(request.ack_key, request.ack_sequence)

    # --- clients ---------------------------------------------------------------------------------

    async def _client_of(self, context: Any, method: str) -> AgentClient:
        """Return the client of a call. A client that is not known has its call ended."""
        try:
            return await self._clients.client_of(context, method)
        except CallRefusedError as error:
            count(self._gateway.metrics.smq_agent_refusals, error.status.name)
            await context.abort(error.status, str(error))
            raise

    async def _ask_again(self) -> None:
        """End the streams whose clients have lost a right, as a rule has changed."""
        for over, stream in self._streams.items():
            if not all(map(stream.client.may, stream.questions)):
                _end(over, StatusCode.PERMISSION_DENIED, "an access rule ends the stream")

    def _end_with_login(self, over: _StreamEnd) -> Timer | None:
        """End a stream when the login of its client ends; return the timer, if it does."""
        config, clock = self._gateway.config, self._gateway.clock
        lasts_ms = config.connections_max_reauth_ms
        if not (config.smq_agent_login and lasts_ms > 0):
            return None
        return clock.call_at(
            clock.monotonic_s() + lasts_ms / 1000,
            lambda: _end(
                over,
                StatusCode.UNAUTHENTICATED,
                "the login has ended (connections.max.reauth.ms): begin the stream again",
            ),
        )

    # --- streams ---------------------------------------------------------------------------------

    async def _serve(
        self,
        stream: _Stream,
        work: Callable[[Any, _Stream, _StreamEnd], Coroutine[Any, Any, None]],
        context: Any,
    ) -> None:
        """Count a stream and run `work` with a future that ends the stream."""
        over: _StreamEnd = asyncio.get_running_loop().create_future()
        if self._is_stopping:
            _end(over, StatusCode.UNAVAILABLE, "the gateway stops")
        elif len(self._streams) >= self._gateway.config.smq_agent_streams_max:
            _end(
                over,
                StatusCode.RESOURCE_EXHAUSTED,
                f"{len(self._streams)} streams are open (kgw.smq.agent.streams.max)",
            )
        self._streams[over] = stream
        login_ends = self._end_with_login(over)
        try:
            await self._guarded(work(context, stream, over), context)
        finally:
            if login_ends is not None:
                login_ends.cancel()
            del self._streams[over]
            over.cancel()

    async def _guarded(self, work: Coroutine[Any, Any, None], context: Any) -> None:
        """Run a stream's work; if it raises an error, end the stream with the error's status."""
        try:
            await work
        except StreamEndedError as error:
            status, text = error.status, str(error)
            count(self._gateway.metrics.smq_agent_refusals, status.name)
        except (KafkaError, StorageError) as error:
            status, text = status_of(error), describe(error)
            self._refused(error)
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except DecodeError as error:
            status, text = StatusCode.INVALID_ARGUMENT, str(error)
            count(self._gateway.metrics.smq_agent_refusals, status.name)
        except Exception as error:  # noqa: BLE001 - the client is told, and so are we
            if context.cancelled():
                return  # the stream is broken, so pending calls have failed
            self._gateway.report_internal_error("SMQ agent", error)
            status, text = StatusCode.INTERNAL, "a bug of kgw"
        else:
            return
        _log.debug("a stream of the SMQ agent ends", status=status.name, why=text)
        await context.abort(status, text)

    async def _first(self, context: Any, over: _StreamEnd) -> Any:
        """Return the first message of a stream; None if the client sends none.

        Raises StreamEndedError.
        """
        idle = _Idle(self._gateway, self._gateway.config.frame_timeout_ms, over)
        reading = asyncio.ensure_future(context.read())
        try:
            await _first_of(reading, over)
            if over.done():
                raise over.result() or StreamEndedError(
                    StatusCode.NOT_FOUND, "the session has ended"
                )
            first = reading.result()
            # By default gRPC sends the initial metadata with the first response, and notes that
            # only after the write. If that write is cancelled, gRPC sends the metadata again with
            # the status, its core refuses both, and the client waits for a status for ever.
            await context.send_initial_metadata(())
            return None if first is grpc.aio.EOF else first
        finally:
            idle.close()
            reading.cancel()

    def _refused(self, error: KafkaError | StorageError) -> None:
        count(self._gateway.metrics.smq_agent_refusals, error.code.name)

    def _count(self) -> None:
        metrics = self._gateway.metrics
        metrics.smq_agent_sessions = len(self._sessions)
        kinds = [stream.kind for stream in self._streams.values()]
        metrics.smq_agent_streams = {kind: kinds.count(kind) for kind in ("publish", "subscribe")}


def _end(over: _StreamEnd, status: StatusCode, text: str) -> None:
    if not over.done():
        over.set_result(StreamEndedError(status, text))


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    """Wait until one of the futures is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def _to_its_end(work: Coroutine[Any, Any, object]) -> None:
    """Finish `work` before raising a cancellation; a second cancellation stops it.

    When a client disconnects, gRPC cancels its call, even while the call cleans up after a failed
    write. Without this, the client's group would keep the member until its session times out.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
    task.result()
