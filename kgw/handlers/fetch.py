"""Fetch, key 1, versions 4 to 18: read record batches, and wait for them.

Behaviour:
- whole batches from the one that holds the offset, as they were stored; the client drops the
  records before its offset;
- partitions are served in the request's order within `max_bytes` (`fetch.max.bytes` caps it, 8 MB
  do, and less when clients leave answers untaken), and the first batch always comes, whatever its
  size (KIP-74); of small ones 4,000 do at most, 1,000 of a partition: the client asks again;
- less than `min_bytes`: waits for more, woken by appends to these partitions alone; `max_wait_ms`
  is one budget for everything that the request does;
- fetch sessions (KIP-227): requests name what has changed, and are answered with what has; where
  there is no room for one the answer says session 0, and the client goes on with complete requests;
- NOT_LEADER_OR_FOLLOWER for a partition of another node, which is named from v16 on (KIP-951);
- leader epochs are checked (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; KIP-320), and a divergence
  is named from v12 on (KIP-595);
- behind batches that compaction left without records it reads on: no answer is of such alone, but
  at the end, for kafka-go begins anew after one;
- damaged batches are never served: CORRUPT_MESSAGE at the damage, which applications see and can
  seek past; a failing disk is KAFKA_STORAGE_ERROR, after which clients ask again;
- a client-supplied replica id has no effect. No transactions yet: the last stable offset is the
  high watermark for both isolation levels.

v5: log start offset (KIP-107). v7: sessions, an error for the whole (KIP-227). v9: leader epoch
(KIP-320). v10: zstd batches (KIP-110). v11: rack (KIP-392). v12: flexible, last fetched epoch
(KIP-482, KIP-595). v13: topic ids (KIP-516). v15: replica state (KIP-903). v16: endpoints of new
leaders (KIP-951). v17: directory ids (KIP-853). v18: high watermark of followers (KIP-1166).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kgw.errors import ErrorCode
from kgw.handlers.context import EncodedBody, Later
from kgw.handlers.encoding_turns import encode_in_turns
from kgw.handlers.leaders import name_leader
from kgw.partitions.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Asked, Told
from kgw.partitions.reading import PARTS_PER_TURN, FetchRead, PartitionRead
from kgw.partitions.session_reading import SessionRead
from kgw.partitions.topic import why_missing
from kgw.protocol.codec import codec
from kgw.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from kgw.turns import Share, finish
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kgw.gateway import Gateway
    from kgw.handlers.context import Answer, RequestContext, Session
    from kgw.partitions.fetch_sessions import FetchSession, SessionPartition, TopicKey
    from kgw.partitions.partition import Partition
    from kgw.protocol.messages.fetch import FetchRequest, FetchTopic
    from kgw.turns import Turns

_READ_COMMITTED = 1
_NEW_LEADERS = 16
_NOTE_INTERVAL_S = 1.0
# A session's idle partitions are noted so often: all of them, at one poll.
_NOTE_ALL_INTERVAL_S = 10.0
# And no connection has more noted in a second than that.
_NOTES_PER_S = 100
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class _Poll:
    """What a connection keeps of its last Fetch, for when the client sends the same again.

    A long poll that ends empty costs little then: its partitions say when something happens, and
    as long as nothing has, none is looked at and the answer is the same bytes.
    """

    __slots__ = ("answer", "read", "request", "state")

    def __init__(self, request: FetchRequest, read: FetchRead) -> None:
        self.request = request
        self.read = read
        self.state: list[int] | None = None
        self.answer: EncodedBody | None = None

    def stop(self) -> None:
        self.read.stop()

    def make(self, context: RequestContext, *, makes_session: bool) -> FetchResponse | EncodedBody:
        """Return the answer to what has been read."""
        session_id = NO_SESSION
        if makes_session:
            session_id = _make_session(self.request, self.read, context)
        if self.answer is not None and self.read.is_as_before and not session_id:
            return self.answer
        state = self.read.empty_state()
        if state is None or session_id:
            return _response(self.request, self.read, session_id, context)
        if self.answer is None or state != self.state:
            encoder = codec(FetchResponse, context.api_version)
            response = _response(self.request, self.read, session_id, context)
            body = encoder.encode(response)
            self.answer = EncodedBody(encoder.flexible, body)
            self.state = state
        return self.answer


def handle(request: FetchRequest, context: RequestContext) -> Answer:
    if request.session_epoch in {FINAL_EPOCH, INITIAL_EPOCH}:
        if request.session_id:
            context.gateway.fetch_sessions.close(request.session_id)
        makes_session = request.session_epoch == INITIAL_EPOCH and context.api_version >= 7
        if sum([len(topic.partitions) for topic in request.topics]) > PARTS_PER_TURN:
            return _complete_in_turns(request, context, makes_session=makes_session)
        return _complete(request, context, makes_session=makes_session)
    return _incremental(request, context)


def _take_poll(request: FetchRequest, session: Session) -> _Poll | None:
    """Return what the connection has kept, if the same is asked again; else stop that.

    It is put back when it is answered: the same session might ask again before that.
    """
    poll, session.poll = session.poll, None
    if (
        isinstance(poll, _Poll)
        and poll.request is request
        and (poll.read.is_resting or poll.read.may_restart)
    ):
        return poll
    if poll is not None:
        poll.stop()
    return None


def _new_poll(
    request: FetchRequest,
    context: RequestContext,
    parts: list[PartitionRead],
    max_bytes: int,
    *,
    is_counted: bool = False,
) -> _Poll:
    """Begin to read for a complete request; `is_counted` for one whose answer is made in turns."""
    gateway = context.gateway
    read = FetchRead(
        parts,
        max_bytes=max_bytes,
        min_bytes=request.min_bytes,
        deadline_s=_deadline_s(request, context),
        clock=gateway.clock,
        deadlines=gateway.fetch_deadlines,
        room=gateway.answer_room,
        may_repeat=True,
        is_counted=is_counted,
    )
    return _Poll(request, read)


def _complete(request: FetchRequest, context: RequestContext, *, makes_session: bool) -> Answer:
    """Answer a request that names everything."""
    session = context.session
    max_bytes = _max_bytes(request, context.gateway)
    kept = _take_poll(request, session)
    poll = kept or _new_poll(request, context, [*_parts(request, context)], max_bytes)
    read = poll.read
    if kept is None:
        is_done = read.start()
    else:
        is_done = read.repeat(max_bytes=max_bytes, deadline_s=_deadline_s(request, context))
    if context.received_s >= session.note_due_s:
        _note_positions(read.parts, context)
    if is_done:
        session_id = _make_session(request, read, context) if makes_session else NO_SESSION
        return _response(request, read, session_id, context)

    def make() -> FetchResponse | EncodedBody:
        _check(read)
        answer = poll.make(context, makes_session=makes_session)
        if isinstance(answer, EncodedBody) and session.knows(request):
            # Nothing else: records would stay in memory for as long as the connection.
            session.poll = poll
        else:
            read.stop()
        return answer

    return Later(read, make, read.stop)


async def _complete_in_turns(
    request: FetchRequest, context: RequestContext, *, makes_session: bool
) -> FetchResponse | EncodedBody:
    """Answer a request that names thousands of partitions."""
    gateway = context.gateway
    session = context.session
    max_bytes = _max_bytes(request, gateway)
    kept = _take_poll(request, session)
    if kept is None:
        parts = await finish(_parts_in_turns(request, context), gateway.answer_turns)
        poll = _new_poll(request, context, parts, max_bytes, is_counted=True)
        poll.read.start()
    else:
        poll = kept
        poll.read.repeat(max_bytes=max_bytes, deadline_s=_deadline_s(request, context))
    read = poll.read
    is_kept = False
    try:
        if context.received_s >= session.note_due_s:
            await finish(_note_in_turns(read.parts, context), gateway.answer_turns)
        await read
        if poll.answer is not None and read.is_as_before and not makes_session:
            answer: FetchResponse | EncodedBody = poll.answer
        else:
            session_id = NO_SESSION
            if makes_session:
                session_id = await finish(
                    _make_session_in_turns(request, read, context), gateway.answer_turns
                )
            answer = response = await finish(
                _response_in_turns(request, read, session_id, context), gateway.answer_turns
            )
            if not session_id and read.is_empty:
                encoder = codec(FetchResponse, context.api_version)
                poll.answer = EncodedBody(encoder.flexible, encoder.encode(response))
                answer = poll.answer
        if isinstance(answer, EncodedBody) and session.knows(request):
            session.poll = poll
            is_kept = True
    finally:
        if not is_kept:
            read.stop()
    return answer


def _check(read: FetchRead) -> None:
    """Raise the error that ended a read, if one did."""
    if read.error is not None:
        raise read.error


def _incremental(request: FetchRequest, context: RequestContext) -> Answer:
    """Answer a request that says what has changed since the one before."""
    gateway = context.gateway
    _take_poll(request, context.session)
    sessions = gateway.fetch_sessions
    by_id = context.api_version >= 13
    session = sessions.go_on(request.session_id, request.session_epoch, uses_topic_ids=by_id)
    forgotten = (
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    )
    if not sessions.update(session, _asked(request, context), forgotten, context.received_s):
        # The last partition has left it: as in Kafka the request counts as one without a session.
        return _complete(request, context, makes_session=False)
    read = SessionRead(
        session,
        gateway.catalog.find,
        max_bytes=_max_bytes(request, gateway),
        min_bytes=request.min_bytes,
        deadline_s=_deadline_s(request, context),
        clock=gateway.clock,
        deadlines=gateway.fetch_deadlines,
        room=gateway.answer_room,
    )
    is_done = read.start()
    if context.received_s >= context.session.note_due_s:
        _note_positions(read.asked, context)
    if context.received_s >= session.noted_s + _NOTE_ALL_INTERVAL_S:
        _note_session(session, context)
    if is_done:
        return _changes(request, read, context)

    def make() -> FetchResponse:
        _check(read)
        read.take()
        return _changes(request, read, context)

    return Later(read, make, read.stop)


def _max_bytes(request: FetchRequest, gateway: Gateway) -> int:
    next_bytes = gateway.answer_room.next_bytes
    return min(request.max_bytes, gateway.config.fetch_max_bytes, next_bytes)


def _deadline_s(request: FetchRequest, context: RequestContext) -> float:
    return context.received_s + max(0, request.max_wait_ms) / 1000


def error_response(
    request: FetchRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> FetchResponse:
    if code in _SESSION_ERRORS:
        # Nobody knows which partitions the request was about.
        return FetchResponse(error_code=code)
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition,
                        error_code=code,
                        high_watermark=NO_OFFSET,
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _note_positions(
    parts: Sequence[PartitionRead | SessionPartition], context: RequestContext
) -> None:
    """Remember where this client reads, for those that commit nothing.

    Not at every request: at 20,000 a second on a connection it would be a tenth of their cost.
    """
    interval_s = max(_NOTE_INTERVAL_S, len(parts) / _NOTES_PER_S)
    context.session.note_due_s = context.received_s + interval_s
    for part in parts:
        _note(cast("Partition | None", part.partition), part.offset, context)


def _note_in_turns(parts: Sequence[PartitionRead], context: RequestContext) -> Turns[None]:
    interval_s = max(_NOTE_INTERVAL_S, len(parts) / _NOTES_PER_S)
    context.session.note_due_s = context.received_s + interval_s
    share = Share(2 * PARTS_PER_TURN)
    for part in parts:
        _note(part.partition, part.offset, context)
        if share.spend():
            yield


def _note_session(session: FetchSession, context: RequestContext) -> None:
    """Remember it of all partitions in a session: those at their end are in no request."""
    session.noted_s = context.received_s
    for one in session.partitions():
        _note(cast("Partition | None", one.partition), one.offset, context)


def _note(partition: Partition | None, offset: int, context: RequestContext) -> None:
    if partition is not None:
        context.gateway.positions.note(
            context.client_id,
            partition.topic.topic_id,
            partition.index,
            offset,
            context.received_s,
        )


def _asked(request: FetchRequest, context: RequestContext) -> Iterator[Asked]:
    for topic in request.topics:
        key = _key(topic, context)
        for place in topic.partitions:
            yield Asked(
                key,
                place.partition,
                place.fetch_offset,
                place.partition_max_bytes,
                place.current_leader_epoch,
                place.last_fetched_epoch,
            )


def _make_session(request: FetchRequest, read: FetchRead, context: RequestContext) -> int:
    """Return the id of a session of what is about to be answered; 0 where there is no room."""
    session = context.gateway.fetch_sessions.create(
        _told(request, read, context),
        len(read.parts),
        uses_topic_ids=context.api_version >= 13,
        now_s=context.received_s,
    )
    return NO_SESSION if session is None else session.id


def _make_session_in_turns(
    request: FetchRequest, read: FetchRead, context: RequestContext
) -> Turns[int]:
    session = yield from context.gateway.fetch_sessions.create_in_turns(
        _told(request, read, context),
        len(read.parts),
        uses_topic_ids=context.api_version >= 13,
        now_s=context.received_s,
    )
    return NO_SESSION if session is None else session.id


def _told(request: FetchRequest, read: FetchRead, context: RequestContext) -> Iterator[Told]:
    for one, part in zip(_asked(request, context), read.parts, strict=True):
        yield Told(
            one,
            part.high_watermark,
            part.log_start_offset,
            has_records=bool(part.buffers),
            has_error=part.error_code is not ErrorCode.NONE,
        )


def _changes(request: FetchRequest, read: SessionRead, context: RequestContext) -> FetchResponse:
    """Return the answer to an incremental request: what the client has not been told."""
    session = read.session
    if not read.is_answerable:
        return FetchResponse(
            error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id
        )
    response = FetchResponse(session_id=session.id)
    topics: dict[TopicKey, list[PartitionData]] = {}
    for record, part in zip(read.records, read.parts, strict=True):
        if record.tell(
            part.high_watermark,
            part.log_start_offset,
            has_records=bool(part.buffers),
            has_error=part.error_code is not ErrorCode.NONE,
            diverges=part.diverging is not None,
        ):
            data = _partition_data(record.topic, record.index, part, request, response, context)
            topics.setdefault(record.topic, []).append(data)
    for key, partitions in topics.items():
        answer = FetchableTopicResponse(partitions=partitions)
        if isinstance(key, str):
            answer.topic = key
        else:
            answer.topic_id = key
        response.responses.append(answer)
    return response


def _parts(request: FetchRequest, context: RequestContext) -> Iterator[PartitionRead]:
    catalog = context.gateway.catalog
    by_id = context.api_version >= 13
    for wanted in request.topics:
        topic = catalog.by_id(wanted.topic_id) if by_id else catalog.get(wanted.topic)
        for place in wanted.partitions:
            partition = None if topic is None else topic.partition(place.partition)
            gone_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition is None:
                gone_code = (
                    ErrorCode.UNKNOWN_TOPIC_ID
                    if by_id and topic is None
                    else why_missing(topic, place.partition)
                )
            yield PartitionRead(
                partition,
                place.fetch_offset,
                place.partition_max_bytes,
                current_leader_epoch=place.current_leader_epoch,
                last_fetched_epoch=place.last_fetched_epoch,
                gone_code=gone_code,
            )


def _parts_in_turns(request: FetchRequest, context: RequestContext) -> Turns[list[PartitionRead]]:
    parts: list[PartitionRead] = []
    share = Share(2 * PARTS_PER_TURN)
    for part in _parts(request, context):
        parts.append(part)
        if share.spend():
            yield
    return parts


def _response_in_turns(
    request: FetchRequest, read: FetchRead, session_id: int, context: RequestContext
) -> Turns[FetchResponse]:
    """Do the same as below, and encode what there is of each partition."""
    parts = iter(read.parts)
    share = Share(PARTS_PER_TURN)
    response = FetchResponse(session_id=session_id)
    topics = []
    for topic in request.topics:
        answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        key = _key(topic, context)
        answer.partitions = yield from encode_in_turns(
            FetchResponse,
            (
                _partition_data(key, place.partition, next(parts), request, response, context)
                for place in topic.partitions
            ),
            context.api_version,
            share,
        )
        topics.append(answer)
    response.responses = yield from encode_in_turns(
        FetchResponse, topics, context.api_version, share
    )
    return response


def _response(
    request: FetchRequest, read: FetchRead, session_id: int, context: RequestContext
) -> FetchResponse:
    parts = iter(read.parts)
    response = FetchResponse(session_id=session_id)
    for topic in request.topics:
        answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        key = _key(topic, context)
        answer.partitions = [
            _partition_data(key, place.partition, next(parts), request, response, context)
            for place in topic.partitions
        ]
        response.responses.append(answer)
    return response


def _key(topic: FetchTopic, context: RequestContext) -> TopicKey:
    return topic.topic_id if context.api_version >= 13 else topic.topic


def _partition_data(
    key: TopicKey,
    index: int,
    part: PartitionRead,
    request: FetchRequest,
    response: FetchResponse,
    context: RequestContext,
) -> PartitionData:
    """Return the answer for a partition. A response to it names the nodes that lead elsewhere."""
    answer = PartitionData(
        partition_index=index,
        error_code=part.error_code,
        high_watermark=part.high_watermark,
        last_stable_offset=part.high_watermark,
        log_start_offset=part.log_start_offset,
        aborted_transactions=[] if request.isolation_level == _READ_COMMITTED else None,
        records=part.buffers or b"",
    )
    if part.diverging is not None:
        answer.diverging_epoch = EpochEndOffset(
            epoch=part.diverging.leader_epoch, end_offset=part.diverging.end_offset
        )
    if part.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER and context.api_version >= _NEW_LEADERS:
        catalog = context.gateway.catalog
        topic = catalog.get(key) if isinstance(key, str) else catalog.by_id(key)
        if topic is not None:
            name_leader(topic, index, answer, response.node_endpoints, NodeEndpoint, context)
    return answer
