"""Fetch, key 1, versions 0 to 18: read record batches, and wait for them.

Behaviour:
- whole batches from the one that holds the offset, as they were stored; the client drops the
  records before its offset;
- partitions are served in the request's order within `max_bytes` (`fetch.max.bytes` caps it, 8 MB
  do, and less when clients leave answers untaken), and the first batch always comes, whatever its
  size (KIP-74); of small ones 4,000 do at most, 1,000 of a partition: the client asks again;
- less than `min_bytes`: waits for more, woken by appends to these partitions alone; `max_wait_ms`
  is one budget for everything that the request does. What has to come from the storage is read a
  few partitions at a time; what has not come when the time is over is answered without records and
  read on, so that a later request finds it. With a `max_wait_ms` of 0 it is waited for up to 5 s,
  and is KAFKA_STORAGE_ERROR then: "no records" would be wrong;
- fetch sessions (KIP-227): requests name what has changed, and are answered with what has; where
  there is no room for one the answer says session 0, and the client goes on with complete requests;
- NOT_LEADER_OR_FOLLOWER for a partition of another node, which is named from v16 on (KIP-951);
- while it is not confirmed that this process leads, records are answered, but not that there are no
  more: NOT_LEADER_OR_FOLLOWER in their place, and no sessions;
- leader epochs are checked (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; KIP-320), and a divergence
  is named from v12 on (KIP-595);
- behind batches that compaction left without records it reads on: no answer is of such alone, but
  at the end, for kafka-go begins anew after one;
- damaged batches are never served: CORRUPT_MESSAGE at the damage, which applications see and can
  seek past; a failing disk is KAFKA_STORAGE_ERROR, after which clients ask again;
- below v10 a topic with compression.type=zstd is UNSUPPORTED_COMPRESSION_TYPE (KIP-110); zstd
  batches of other topics are answered as they are, as in Kafka, but what kgw.cold.compression has
  put into zstd is answered without compression;
- what is visible to an isolation level, and which records were aborted, `kgw.partitions.view` says;
  a level that there is not is INVALID_REQUEST, where Kafka fails with UNKNOWN_SERVER_ERROR;
- before v4 batches are made message sets of format 0 (v0, v1) or 1 (v2, v3), as Kafka did up to
  3.9: a compressed batch becomes one compressed message of the same codec (several, where more than
  8 MB are inside), any other a message for each record from the offset on. Headers and control
  batches are left out. As many whole messages come as fit, and one at least. zstd, which only
  format 2 has, is UNSUPPORTED_COMPRESSION_TYPE, and what cannot be read CORRUPT_MESSAGE;
- before v6 KAFKA_STORAGE_ERROR, which clients did not know, is NOT_LEADER_OR_FOLLOWER;
- a partition that is named twice is read once, from the last offset; a topic without partitions is
  not answered;
- a client-supplied replica id has no effect.

v1: throttle time. v2: format 1 (KIP-32). v3: a limit for the whole (KIP-74). v4: format 2,
isolation (KIP-98). v5: log start offset (KIP-107). v6: KAFKA_STORAGE_ERROR (KIP-112). v7: sessions,
an error for the whole (KIP-227). v9: leader epoch (KIP-320). v10: zstd batches (KIP-110). v11: rack
(KIP-392). v12: flexible, last fetched epoch (KIP-482, KIP-595). v13: topic ids (KIP-516). v15:
replica state (KIP-903). v16: endpoints of new leaders (KIP-951). v17: directory ids (KIP-853).
v18: high watermark of followers (KIP-1166).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kgw.backend.base import Leadership
from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.context import EncodedBody, Later
from kgw.handlers.encoding_turns import encode_topics
from kgw.handlers.leaders import name_leader
from kgw.metrics import count
from kgw.partitions.read.answer_room import AnswerBudget
from kgw.partitions.read.fetch_parts import PartitionRead, SessionParts
from kgw.partitions.read.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Asked, Told
from kgw.partitions.read.reading import PARTS_PER_TURN, FetchRead, fetch_times
from kgw.partitions.topics.topic import why_missing
from kgw.partitions.view import Isolation, check_isolation
from kgw.protocol.codec import codec
from kgw.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
)
from kgw.records.batch import Compression
from kgw.records.limits import DecompressionLimits
from kgw.turns import Share, at_once, finish, take_turns
from kgw.types import NO_OFFSET, PartitionKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kgw.handlers.context import Answer, RequestContext, Session
    from kgw.partitions.read.fetch_sessions import FetchSession, TopicKey
    from kgw.partitions.read.reading import FetchTimes
    from kgw.partitions.view import PartitionView
    from kgw.protocol.messages.fetch import FetchPartition, FetchRequest
    from kgw.turns import Turns

# To look up an enum's attribute is slow.
_UNCONFIRMED = Leadership.UNCONFIRMED

_FORMAT_1 = 2
_BATCHES = 4
_STORAGE_ERRORS = 6
_ZSTD = 10
_BY_TOPIC_ID = 13
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
    """A complete request that ended empty, kept for when its client sends the same again.

    Its partitions say when something happens: as long as nothing has, none is looked at, and the
    answer is the same bytes.
    """

    __slots__ = ("answer", "read", "request", "stop")

    def __init__(self, request: FetchRequest, read: FetchRead, answer: EncodedBody) -> None:
        self.request = request
        self.read = read
        self.answer = answer
        self.stop = read.stop


def handle(request: FetchRequest, context: RequestContext) -> Answer:
    if context.api_version < _BATCHES:
        return _as_messages(request, context)
    check_isolation(request.isolation_level)
    is_confirmed = context.gateway.leadership is not _UNCONFIRMED
    if request.session_epoch not in {FINAL_EPOCH, INITIAL_EPOCH}:
        if not is_confirmed:
            # Its answers leave out what stands where it stood: that there is no more of it.
            context.gateway.fetch_sessions.close(request.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return _incremental(request, context)
    if request.session_id:
        context.gateway.fetch_sessions.close(request.session_id)
    makes_session = (
        request.session_epoch == INITIAL_EPOCH and context.api_version >= 7 and is_confirmed
    )
    return _complete(request, context, makes_session=makes_session)


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


def _limits(request: FetchRequest, context: RequestContext) -> tuple[AnswerBudget, FetchTimes]:
    """Return how large the answer may get, and when it is due."""
    gateway = context.gateway
    room = gateway.answer_room
    max_bytes = min(request.max_bytes, gateway.config.fetch_max_bytes, room.next_bytes)
    budget = AnswerBudget(max_bytes, request.min_bytes, room)
    return budget, fetch_times(context.received_s, request.max_wait_ms)


# --- complete requests ----------------------------------------------------------------------------


def _complete(request: FetchRequest, context: RequestContext, *, makes_session: bool) -> Answer:
    """Answer a request that names everything."""
    session = context.session
    limits = _limits(request, context)
    # Kept again when it is answered: the same session might ask again before that.
    poll, session.poll = cast("_Poll | None", session.poll), None
    if poll is not None and (poll.request is not request or not poll.read.wait_again(*limits)):
        poll.stop()
        poll = None
    size = 0
    for topic in request.topics:
        size += len(topic.partitions)
    if size > PARTS_PER_TURN:
        # The session's until the coroutine begins, which it does not when it is given up before.
        session.poll = poll
        return _complete_in_turns(request, context, limits, poll, makes_session=makes_session)
    read = at_once(_begin(request, context, limits)) if poll is None else poll.read
    if context.received_s >= session.note_due_s:
        at_once(_note_positions(read.parts, context))
    if read.is_done:
        return at_once(_response(request, read.parts, context, makes_session=makes_session))

    def make() -> FetchResponse | EncodedBody:
        return at_once(_end(request, read, poll, context, makes_session=makes_session))

    return Later(read, make, read.stop)


async def _complete_in_turns(
    request: FetchRequest,
    context: RequestContext,
    limits: tuple[AnswerBudget, FetchTimes],
    poll: _Poll | None,
    *,
    makes_session: bool,
) -> FetchResponse | EncodedBody:
    """Answer a request that names thousands of partitions."""
    turns = context.gateway.answer_turns
    context.session.poll = None
    read = await finish(_begin(request, context, limits), turns) if poll is None else poll.read
    try:
        if context.received_s >= context.session.note_due_s:
            await finish(_note_positions(read.parts, context), turns)
        await read
        return await finish(_end(request, read, poll, context, makes_session=makes_session), turns)
    except BaseException:
        read.stop()
        raise


async def _as_messages(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Answer a request of a version that knows no batches."""
    # Few clients still send them.
    from kgw.partitions.read.down_conversion import OldFetch, read_messages

    gateway = context.gateway
    count(gateway.metrics.converted_requests, "FETCH")
    turns = gateway.answer_turns
    budget, times = _limits(request, context)
    parts = await take_turns(_parts(request, context), turns)
    if context.received_s >= context.session.note_due_s:
        await take_turns(_note_positions(parts, context), turns)
    await read_messages(
        parts,
        OldFetch(
            magic=0 if context.api_version < _FORMAT_1 else 1,
            budget=budget,
            times=times,
            deadlines=gateway.fetch_deadlines,
            cold_reads=gateway.cold_reads,
            thread=gateway.catalog.check_thread,
            limits=DecompressionLimits(
                gateway.config.decompressed_bytes_max, gateway.config.decompression_ratio_max
            ),
        ),
    )
    return await take_turns(_response(request, parts, context), turns)


def _begin(
    request: FetchRequest, context: RequestContext, limits: tuple[AnswerBudget, FetchTimes]
) -> Turns[FetchRead]:
    """Look up what the request names, and begin to read it."""
    parts = yield from _parts(request, context)
    gateway = context.gateway
    read = FetchRead(parts, *limits, gateway.fetch_deadlines, gateway.cold_reads)
    read.start()
    return read


def _end(
    request: FetchRequest,
    read: FetchRead,
    poll: _Poll | None,
    context: RequestContext,
    *,
    makes_session: bool,
) -> Turns[FetchResponse | EncodedBody]:
    """Return the answer of a read that has waited, and keep one that ended empty."""
    session = context.session
    read.read_latest()
    is_confirmed = context.gateway.leadership is not _UNCONFIRMED
    if poll is not None and read.is_unchanged and not makes_session and is_confirmed:
        return _keep_poll(request, read, poll.answer, session)
    response = yield from _response(request, read.parts, context, makes_session=makes_session)
    may_rest = read.is_empty and read.is_all_read
    if response.session_id or not session.knows(request) or not may_rest or not is_confirmed:
        read.stop()
        return response
    encoder = codec(FetchResponse, context.api_version)
    answer = EncodedBody(encoder.flexible, encoder.encode(response))
    return _keep_poll(request, read, answer, session)


def _keep_poll(
    request: FetchRequest, read: FetchRead, answer: EncodedBody, session: Session
) -> EncodedBody:
    # Nothing but the answer: records would stay in memory for as long as the connection.
    session.poll = _Poll(request, read, answer)
    return answer


def _parts(request: FetchRequest, context: RequestContext) -> Turns[list[PartitionRead]]:
    """Look up what the request names."""
    catalog = context.gateway.catalog
    by_id = context.api_version >= _BY_TOPIC_ID
    if not _names_once(request, by_id=by_id):
        _name_once(request, by_id=by_id)
    parts: list[PartitionRead] = []
    for wanted in request.topics:
        topic = catalog.by_id(wanted.topic_id) if by_id else catalog.get(wanted.topic)
        for place in wanted.partitions:
            partition = None if topic is None else topic.partitions.get(place.partition)
            gone_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition is None:
                gone_code = (
                    ErrorCode.UNKNOWN_TOPIC_ID
                    if by_id and topic is None
                    else why_missing(topic, place.partition)
                )
                view = None
            elif context.api_version >= _ZSTD:
                view = partition.view(request.isolation_level)
            else:
                view = partition.view_without_zstd(request.isolation_level)
            parts.append(
                PartitionRead(
                    view,
                    place.fetch_offset,
                    place.partition_max_bytes,
                    place.current_leader_epoch,
                    place.last_fetched_epoch,
                    gone_code,
                )
            )
            if not len(parts) % (2 * PARTS_PER_TURN):
                yield
    return parts


def _names_once(request: FetchRequest, *, by_id: bool) -> bool:
    """Whether each topic is named once, with partitions, and each partition once."""
    topics = request.topics
    for topic in topics:
        places = topic.partitions
        if len(places) != 1 and (
            not places or len({place.partition for place in places}) < len(places)
        ):
            return False
    return len(topics) < 2 or len(topics) == len(
        {topic.topic_id for topic in topics} if by_id else {topic.topic for topic in topics}
    )


def _name_once(request: FetchRequest, *, by_id: bool) -> None:
    """Leave one of the mentions of each partition, at its first place, with what the last says.

    Topics stay where they are: Java's consumer names one again behind others, so that all of its
    partitions get their turns. Those without partitions go.
    """
    places: dict[tuple[TopicKey, int], tuple[FetchTopic, FetchPartition]] = {}
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for place in topic.partitions:
            places[key, place.partition] = topic, place
    request.topics = []
    last: TopicKey | None = None
    for (key, _), (topic, place) in places.items():
        if key != last:
            request.topics.append(FetchTopic(topic=topic.topic, topic_id=topic.topic_id))
            last = key
        request.topics[-1].partitions.append(place)


def _response(
    request: FetchRequest,
    parts: Sequence[PartitionRead],
    context: RequestContext,
    *,
    makes_session: bool = False,
) -> Turns[FetchResponse]:
    """Return the answer; of thousands of partitions encode what there is of each."""
    response = FetchResponse()
    if makes_session:
        response.session_id = yield from _make_session(request, parts, context)
    parts_left = iter(parts)
    is_large = len(parts) > PARTS_PER_TURN
    share = Share(PARTS_PER_TURN)
    for topic in request.topics:
        answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        for place in topic.partitions:
            answer.partitions.append(
                _partition_data(
                    topic, place.partition, next(parts_left), request, response, context
                )
            )
            if is_large and share.spend():
                yield
        response.responses.append(answer)
    if is_large:
        response.responses = yield from encode_topics(
            FetchResponse, response.responses, "partitions", context.api_version, share
        )
    return response


def _partition_data(
    topic: FetchTopic | FetchableTopicResponse,
    index: int,
    part: PartitionRead,
    request: FetchRequest,
    response: FetchResponse,
    context: RequestContext,
) -> PartitionData:
    """Return the answer for a partition. A response to it names the nodes that lead elsewhere."""
    if context.api_version < _ZSTD and part.error_code is ErrorCode.NONE:
        named = context.gateway.catalog.get(topic.topic)
        if named is not None and named.config.batches.compression is Compression.ZSTD:
            part.fail(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if (
        context.gateway.leadership is _UNCONFIRMED
        and not part.buffers
        and part.error_code is ErrorCode.NONE
    ):
        part.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    bounds = part.bounds
    aborted = None
    if request.isolation_level == Isolation.READ_COMMITTED:
        aborted = [
            AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in part.aborted()
        ]
    elif part.view is None:  # Kafka leaves it out of nothing but what it has
        aborted = []
    answer = PartitionData(
        partition_index=index,
        error_code=part.error_code,
        high_watermark=bounds.high_watermark,
        last_stable_offset=bounds.last_stable_offset,
        log_start_offset=bounds.log_start_offset,
        aborted_transactions=aborted,
        records=part.buffers or b"",
    )
    if part.buffers:
        context.gateway.metrics.fetched_bytes += sum(map(len, part.buffers))
        counts = context.gateway.catalog.counts
        if counts is not None and part.view is not None:
            key = PartitionKey(part.view.topic.topic_id, index)
            counts.fetched(key, part.buffers, are_batches=context.api_version >= _BATCHES)
    if part.diverging is not None:
        answer.diverging_epoch = EpochEndOffset(
            epoch=part.diverging.leader_epoch, end_offset=part.diverging.end_offset
        )
    if part.error_code is not ErrorCode.NONE:
        _explain(topic, answer, response, context)
    return answer


def _explain(
    topic: FetchTopic | FetchableTopicResponse,
    answer: PartitionData,
    response: FetchResponse,
    context: RequestContext,
) -> None:
    """Put an error of a partition in the terms of the request's version."""
    version = context.api_version
    if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= _NEW_LEADERS:
        found = context.gateway.catalog.by_id(topic.topic_id)
        if found is not None:
            index = answer.partition_index
            name_leader(found, index, answer, response.node_endpoints, NodeEndpoint, context)
    elif answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERRORS:
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- fetch sessions -------------------------------------------------------------------------------


def _incremental(request: FetchRequest, context: RequestContext) -> Answer:
    """Answer a request that says what has changed since the one before."""
    gateway = context.gateway
    context.session.forget_poll()
    sessions = gateway.fetch_sessions
    by_id = context.api_version >= _BY_TOPIC_ID
    session = sessions.go_on(request.session_id, request.session_epoch, uses_topic_ids=by_id)
    forgotten = (
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    )
    if not sessions.update(session, _asked(request, context), forgotten, context.received_s):
        # The last partition has left it: as in Kafka the request counts as one without a session.
        return _complete(request, context, makes_session=False)

    parts = SessionParts(
        session,
        gateway.catalog,
        request.isolation_level,
        knows_zstd=context.api_version >= _ZSTD,
    )
    limits = _limits(request, context)
    read = FetchRead([], *limits, gateway.fetch_deadlines, gateway.cold_reads, parts)
    is_done = read.start()
    if context.received_s >= context.session.note_due_s:
        at_once(_note_positions(read.parts, context))
    if context.received_s >= session.noted_s + _NOTE_ALL_INTERVAL_S:
        _note_session(session, context)

    def make() -> FetchResponse:
        read.read_latest()
        read.stop()
        return _changes(request, parts, context)

    return make() if is_done else Later(read, make, read.stop)


def _changes(request: FetchRequest, parts: SessionParts, context: RequestContext) -> FetchResponse:
    """Return the answer to an incremental request: what the client has not been told."""
    session = parts.session
    if not parts.is_answerable:
        return FetchResponse(
            error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id
        )
    response = FetchResponse(session_id=session.id)
    topics: dict[TopicKey, FetchableTopicResponse] = {}
    for entry, part in zip(parts.entries, parts.parts, strict=True):
        if not part.is_examined:
            continue  # it stands behind one that needs the disk, and is left to the next request
        is_news = entry.tell(
            part.bounds.high_watermark,
            part.bounds.log_start_offset,
            has_records=bool(part.buffers),
            has_error=part.error_code is not ErrorCode.NONE,
            diverges=part.diverging is not None,
        )
        if is_news:
            answer = topics.get(entry.topic)
            if answer is None:
                answer = topics[entry.topic] = FetchableTopicResponse()
                if isinstance(entry.topic, str):
                    answer.topic = entry.topic
                else:
                    answer.topic_id = entry.topic
            answer.partitions.append(
                _partition_data(answer, entry.index, part, request, response, context)
            )
    response.responses = [*topics.values()]
    return response


def _asked(request: FetchRequest, context: RequestContext) -> Iterator[Asked]:
    by_id = context.api_version >= _BY_TOPIC_ID
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for place in topic.partitions:
            yield Asked(
                key,
                place.partition,
                place.fetch_offset,
                place.partition_max_bytes,
                place.current_leader_epoch,
                place.last_fetched_epoch,
            )


def _make_session(
    request: FetchRequest, parts: Sequence[PartitionRead], context: RequestContext
) -> Turns[int]:
    """Return the id of a session of what is about to be answered; 0 where there is no room."""
    session = yield from context.gateway.fetch_sessions.create(
        _told(request, parts, context),
        len(parts),
        uses_topic_ids=context.api_version >= _BY_TOPIC_ID,
        now_s=context.received_s,
    )
    return NO_SESSION if session is None else session.id


def _told(
    request: FetchRequest, parts: Sequence[PartitionRead], context: RequestContext
) -> Iterator[Told]:
    for one, part in zip(_asked(request, context), parts, strict=True):
        yield Told(
            one,
            part.bounds.high_watermark,
            part.bounds.log_start_offset,
            has_records=bool(part.buffers),
            has_error=part.error_code is not ErrorCode.NONE,
        )


# --- where clients read ---------------------------------------------------------------------------


def _note_positions(parts: Sequence[PartitionRead], context: RequestContext) -> Turns[None]:
    """Remember where this client reads, for those that commit nothing.

    Not at every request: on a connection with thousands a second it would be a tenth of their cost.
    """
    interval_s = max(_NOTE_INTERVAL_S, len(parts) / _NOTES_PER_S)
    context.session.note_due_s = context.received_s + interval_s
    share = Share(2 * PARTS_PER_TURN)
    for part in parts:
        _note(part.view, part.offset, context)
        if share.spend():
            yield


def _note_session(session: FetchSession, context: RequestContext) -> None:
    """Remember it of all partitions in a session: those at their end are in no request."""
    session.noted_s = context.received_s
    for one in session.partitions():
        _note(one.view, one.offset, context)


def _note(view: PartitionView | None, offset: int, context: RequestContext) -> None:
    if view is not None:
        context.gateway.positions.note(
            context.session.client_id,
            view.topic.topic_id,
            view.index,
            offset,
            context.received_s,
            is_committed=view.isolation is Isolation.READ_COMMITTED,
        )
