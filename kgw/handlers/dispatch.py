"""A frame in, a frame out: header, version, handler, and what becomes of every kind of error."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from kgw.errors import EncodeError, ErrorCode, KafkaError, ProtocolError, StorageError
from kgw.handlers.context import (
    LARGE_REQUEST_BYTES,
    DueAnswer,
    EncodedBody,
    KnownHeader,
    KnownRequest,
    Later,
    PollBudget,
    RequestContext,
    Submission,
    until_done,
)
from kgw.handlers.refusal import refuse
from kgw.handlers.table import HANDLERS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec
from kgw.protocol.framing import body_frame, response_frame
from kgw.protocol.headers import decode_request_header, peek_request_header
from kgw.protocol.schema import Response
from kgw.turns import Rest, in_turns

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Awaitable, Callable, Mapping

    from kgw.gateway import Gateway
    from kgw.handlers.context import Session
    from kgw.handlers.repeated_produce import KnownPlaces
    from kgw.handlers.table import Handler
    from kgw.protocol.codec import Codec
    from kgw.protocol.schema import Request
    from kgw.turns import Turns
    from kgw.types import Buffer

_FETCH = int(ApiKey.FETCH)
_PRODUCE = int(ApiKey.PRODUCE)
# Enough for some twenty partitions. What goes beyond is counted for all connections together: what
# is kept of a poll takes about 17 times its bytes, 500 KB for one of 1,000 partitions.
_KNOWN_POLL_BYTES = 1024
_LARGE_POLLS_BYTES = 1 << 20
# A longer header is decoded every time: ten thousand idle connections must not remember much.
_KNOWN_HEADER_BYTES = 256
_CLIENT_ID_POSITION = 8
"""Where the header's constant part begins, behind API key, version and correlation id."""


class PendingFrame(DueAnswer):
    """The frame of an answer that comes later.

    It is done when what it waits for is, and made when it is asked for: a future of its own would
    take another turn of the loop, and ten microseconds, for each of ten thousand requests a second.
    """

    __slots__ = ("_context", "_dispatcher", "_handler", "_later", "_request", "is_abandonable")

    def __init__(
        self,
        dispatcher: Dispatcher,
        handler: Handler,
        request: Request,
        context: RequestContext,
        later: Later,
    ) -> None:
        self._dispatcher = dispatcher
        self._handler = handler
        self._request = request
        self._context = context
        self._later = later
        self.is_abandonable = later.abandon is not None

    def done(self) -> bool:
        return self._later.done()

    def result(self) -> list[Buffer] | None:
        return self._dispatcher.make_frame(
            self._later.make, self._handler, self._request, self._context
        )

    def when_done(self, callback: Callable[[object], object]) -> None:
        self._later.when_done(callback)

    def abandon(self) -> None:
        if self._later.abandon is not None:
            self._later.abandon()


class _TaskFrame(DueAnswer):
    """The frame of an answer that a coroutine makes, even when nobody waits for it any more.

    Its errors are reported then, too.
    """

    __slots__ = (
        "_callback",
        "_error",
        "_frame",
        "_is_done",
        "_make_frame",
        "_task",
        "is_abandonable",
        "submission",
    )

    def __init__(
        self,
        make_frame: Callable[[], list[Buffer] | None],
        task: Future[Any],
        submission: Submission | None,
        *,
        is_abandonable: bool,
    ) -> None:
        self.submission = submission
        self._make_frame = make_frame
        self._task = task
        self._is_done = False
        self._frame: list[Buffer] | None = None
        self._error: BaseException | None = None
        self._callback: Callable[[object], object] | None = None
        self.is_abandonable = is_abandonable
        task.add_done_callback(self._finish)

    def _finish(self, _: object) -> None:
        try:
            self._frame = self._make_frame()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the connection is told
            self._error = error
            if isinstance(error, (ProtocolError, asyncio.CancelledError)):
                # Its traceback refers to the request, and back to the error. Whoever is told of it
                # may have gone: neither would be freed until the garbage collector runs.
                error.__traceback__ = None
        self._is_done = True
        if self._callback is not None:
            self._callback(self)

    def done(self) -> bool:
        return self._is_done

    def result(self) -> list[Buffer] | None:
        if self._error is not None:
            raise self._error
        return self._frame

    def when_done(self, callback: Callable[[object], object]) -> None:
        self._callback = callback

    def abandon(self) -> None:
        self._task.cancel()


class Dispatcher:
    """Turns request frames into response frames.

    Called in the event loop's thread only.
    """

    def __init__(self, gateway: Gateway, handlers: Mapping[ApiKey, Handler] | None = None) -> None:
        self._gateway = gateway
        served = HANDLERS if handlers is None else handlers
        self._handlers: dict[int, Handler] = {int(key): served[key] for key in served}
        # The loop keeps weak references to tasks: whoever starts one must hold it.
        self._tasks: set[asyncio.Task[Any]] = set()
        self._decoding: set[asyncio.Task[Any]] = set()
        self._places: KnownPlaces | None = None
        self._large_polls = PollBudget()
        self._large_works = 0

    def may_overlap(self, frame: Buffer) -> bool:
        """Whether this request may start while earlier ones that overlap still wait.

        Only Produce: its appends are submitted in order before `start` returns, or before the
        answer's `submission` is over.
        """
        return not (frame[0] or frame[1])

    def is_fetch(self, frame: Buffer) -> bool:
        """Whether this request asks for records: its answer may be large."""
        return frame[1] == _FETCH and not frame[0]

    def start(self, frame: memoryview, session: Session) -> list[Buffer] | DueAnswer | None:
        """Begin to answer a frame, given without its length.

        Returns the response's buffers, length first, when nothing had to be waited for; None when
        there is no response; else what will have one of them. The frame's bytes belong to the
        request from now on, and must be writable.

        Raises ProtocolError (also later, for the answer) when the connection must be closed.
        """
        api_key, api_version, correlation_id = peek_request_header(frame)
        handler = self._handlers.get(api_key)
        if handler is None or not handler.min_version <= api_version <= handler.max_version:
            return refuse(frame, handler, self._gateway, session)
        requests = self._gateway.metrics.requests
        requests[handler.label] = requests.get(handler.label, 0) + 1
        if api_key == _PRODUCE and self._places is not None:
            repeated = self._places.start(frame, api_version, correlation_id, session)
            if repeated is not None:
                return repeated
        request_class = handler.request_class or handler.load()
        known = session.polled
        if (
            known is not None
            and api_key == _FETCH
            and api_version == known.api_version
            # Bytes, not a view of them: views are compared byte by byte, 120 us for 28 KB.
            and len(frame) == len(known.tail) + _CLIENT_ID_POSITION
            and frame[_CLIENT_ID_POSITION:].tobytes() == known.tail
        ):
            request = known.request
        else:
            request_codec = codec(request_class, api_version)
            if len(frame) > LARGE_REQUEST_BYTES:
                decoding = in_turns(
                    self._decode_in_turns(frame, session, request_codec),
                    self._gateway.answer_turns,
                )
                if isinstance(decoding, Rest):
                    return self._start_later(decoding, handler, frame, session, api_version)
                request = decoding
            else:
                request = self._decode(frame, session, request_codec)
        context = RequestContext(
            self._gateway,
            session,
            handler.api_key,
            api_version,
            session.client_id,
            correlation_id,
            self._gateway.clock.monotonic_s(),
        )
        return self._handle(handler, request, context, frame)

    def _handle(
        self, handler: Handler, request: Request, context: RequestContext, frame: memoryview
    ) -> list[Buffer] | DueAnswer | None:
        """Begin to answer a decoded request; as `start`."""
        module = handler.module
        try:
            answer = module.handle(request, context)
        except ProtocolError:
            raise
        except Exception as error:  # noqa: BLE001 - every error has an answer
            answer = self._error(handler, request, context, error)
        if request.api_key == _PRODUCE:
            self._note(frame, context.api_version, request, context.session)
        if answer is None:
            return None
        if isinstance(answer, Response):
            return self._encode(handler, request, context, answer)
        if isinstance(answer, Later):
            return PendingFrame(self, handler, request, context, answer)
        return self._wait(handler, request, context, answer, len(frame))

    def _start_later(
        self,
        decoding: Rest[Request],
        handler: Handler,
        frame: memoryview,
        session: Session,
        api_version: int,
    ) -> _TaskFrame:
        """Decode the rest of a large request in further turns, and begin to answer it then."""
        gateway = self._gateway
        _, _, correlation_id = peek_request_header(frame)
        received_s = gateway.clock.monotonic_s()
        submission = Submission() if self.may_overlap(frame) else None

        async def answer() -> list[Buffer] | None:
            try:
                request = await decoding
                self._decoding.discard(task)
                context = RequestContext(
                    gateway,
                    session,
                    handler.api_key,
                    api_version,
                    session.client_id,
                    correlation_id,
                    received_s,
                )
                started = self._handle(handler, request, context, frame)
                if not isinstance(started, DueAnswer):
                    return started
                if submission is not None and started.submission is not None:
                    started.submission.when_over(submission.end)
                elif submission is not None:
                    submission.end()
                return await _finished(started)
            finally:
                if submission is not None:
                    submission.end()

        task = asyncio.ensure_future(answer())
        for tasks in (self._tasks, self._decoding):
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return _TaskFrame(
            task.result, task, submission, is_abandonable=handler.api_key is ApiKey.FETCH
        )

    def _note(self, frame: memoryview, version: int, request: Any, session: Session) -> None:
        """Remember what the client of a Produce is likely to repeat."""
        places = self._places
        if places is None:
            # Imported at first use, since it imports messages.
            from kgw.handlers.repeated_produce import KnownPlaces

            places = self._places = KnownPlaces(self._gateway)
            self._gateway.catalog.when_deleted.append(places.forget)
        places.note(frame, version, request, session)

    def _decode(
        self, frame: memoryview, session: Session, request_codec: Codec[Request]
    ) -> Request:
        """Decode a request; remember one that its client is likely to repeat byte by byte."""
        position = _body_position(frame, session, request_codec.flexible)
        # What is left over is not looked at, as in Kafka: librdkafka (2.16) asks for all topics in
        # Metadata 9 and later with four bytes of null where one belongs.
        request, _ = request_codec.decode_prefix(frame, position)
        if request.api_key == _FETCH:
            self._remember_poll(frame, session, request, request_codec.version)
        return request

    def _decode_in_turns(
        self, frame: memoryview, session: Session, request_codec: Codec[Request]
    ) -> Turns[Request]:
        """Do the same for a large request."""
        position = _body_position(frame, session, request_codec.flexible)
        request = yield from request_codec.decode_in_turns(frame, position)
        if request.api_key == _FETCH:
            self._remember_poll(frame, session, request, request_codec.version)
        return request

    def _remember_poll(
        self, frame: memoryview, session: Session, request: Request, version: int
    ) -> None:
        session.forget_poll()
        budget = None
        if len(frame) > _KNOWN_POLL_BYTES:
            budget = self._large_polls
            if budget.used_bytes + len(frame) > _LARGE_POLLS_BYTES:
                return
            budget.used_bytes += len(frame) - _CLIENT_ID_POSITION
        tail = bytes(frame[_CLIENT_ID_POSITION:])
        session.polled = KnownRequest(version, tail, request, budget)

    def _wait(
        self,
        handler: Handler,
        request: Request,
        context: RequestContext,
        answer: Awaitable[Response | EncodedBody | None],
        frame_bytes: int,
    ) -> _TaskFrame:
        task = asyncio.ensure_future(answer)
        if frame_bytes > LARGE_REQUEST_BYTES and isinstance(answer, Rest):
            self._large_works += 1
            task.add_done_callback(self._end_large_work)
        if isinstance(task, asyncio.Task):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        make_frame = partial(self.make_frame, task.result, handler, request, context)
        # Only a Fetch is given up: it changes nothing. Anything else runs to its end.
        return _TaskFrame(
            make_frame,
            task,
            context.submission,
            is_abandonable=handler.api_key is ApiKey.FETCH,
        )

    def _end_large_work(self, _: object) -> None:
        self._large_works -= 1

    @property
    def has_large_work(self) -> bool:
        """Whether a large request is being decoded in turns, or answered by nothing but turns.

        Decoded it takes a hundred times its bytes, which no budget counts: another one should wait.
        Once decoded, requests that also wait for a disk or for records (Produce, Fetch,
        OffsetCommit, ListOffsets, DeleteRecords and others) are left out: the rest would wait as
        long as that, and the server keeps the loop turning for whoever it holds.
        """
        return self._large_works > 0 or bool(self._decoding)

    def make_frame(
        self,
        make: Callable[[], Response | EncodedBody | None],
        handler: Handler,
        request: Request,
        context: RequestContext,
    ) -> list[Buffer] | None:
        """Return the frame of an answer that is ready; None when there is none.

        Raises ProtocolError and asyncio.CancelledError; any other error has an answer.
        """
        try:
            message = make()
        except (ProtocolError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - every error has an answer
            message = self._error(handler, request, context, error)
        if isinstance(message, EncodedBody):
            return body_frame(message.body, context.correlation_id, flexible=message.flexible)
        return None if message is None else self._encode(handler, request, context, message)

    def _encode(
        self, handler: Handler, request: Request, context: RequestContext, message: Response
    ) -> list[Buffer]:
        """Return the frame of a response; of the API's error when a bug made it unspeakable."""
        try:
            return response_frame(message, context.api_version, context.correlation_id)
        except EncodeError as error:
            refusal = self._error(handler, request, context, error)
            if refusal is None:
                raise ProtocolError(f"{handler.api_key.name}: no answer can be given") from error
            return response_frame(refusal, context.api_version, context.correlation_id)

    def _error(
        self, handler: Handler, request: Request, context: RequestContext, error: Exception
    ) -> Response | None:
        """Return the API's response for an error that concerns the request as a whole."""
        if isinstance(error, KafkaError):
            code, text = error.code, error.message
        elif isinstance(error, StorageError):
            code, text = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        else:
            code, text = handler.bug_code, None
            self._gateway.report_internal_error(handler.label, error)
        errors = self._gateway.metrics.request_errors
        place = (handler.label, code.name)
        errors[place] = errors.get(place, 0) + 1
        return handler.module.error_response(request, code, text, context)


async def _finished(answer: DueAnswer) -> list[Buffer] | None:
    """Wait for an answer; give it up when the wait is cancelled."""
    try:
        await until_done(answer)
    except asyncio.CancelledError:
        answer.abandon()
        raise
    return answer.result()


def _body_position(frame: memoryview, session: Session, flexible: bool) -> int:
    """Return where a request begins behind its header, which is decoded where it is a new one."""
    header = session.header
    if header.flexible is not flexible or frame[_CLIENT_ID_POSITION : header.end] != header.tail:
        return _read_header(frame, session, flexible)
    return header.end


def _read_header(frame: memoryview, session: Session, flexible: bool) -> int:
    """Decode a header, remember what the connection's next one will repeat; return its end."""
    header, end = decode_request_header(frame)
    session.client_id = header.client_id
    if end <= _KNOWN_HEADER_BYTES:
        session.header = KnownHeader(bytes(frame[_CLIENT_ID_POSITION:end]), end, flexible)
    return end
