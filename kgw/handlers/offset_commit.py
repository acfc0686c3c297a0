"""OffsetCommit, key 8, versions 0 to 10: store how far a group has read.

Behaviour:
- durable before it is answered; what many groups commit at the same time shares a flush. Commits
  count in the order in which they arrive, those of one member that overlap too;
- members commit in their generation: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, and
  REBALANCE_IN_PROGRESS while the generation waits for its assignment. Without a generation anybody
  commits, as long as the group has no members; the group is created. A member of a group that does
  not exist hears ILLEGAL_GENERATION, from v9 on GROUP_ID_NOT_FOUND;
- offsets belong to a topic's id: they end with the topic. UNKNOWN_TOPIC_OR_PARTITION,
  UNKNOWN_TOPIC_ID; OFFSET_METADATA_TOO_LARGE. A negative offset is stored and told like any other;
  clients take it for none, and kafkajs commits -1 and -2 to begin at either end of the log;
- the retention time of v2 to v4 is kept to; otherwise offsets expire when the group has been empty
  for `offsets.retention.minutes`;
- COORDINATOR_NOT_AVAILABLE when nothing can be stored, NOT_COORDINATOR when another process has
  taken the state over: nothing of the request was stored, or all of it.

v0 is served as v1, without membership: there is no ZooKeeper. v1: membership. v2: retention time.
v3: throttle time. v5: no retention time (KIP-211). v6: leader epochs (KIP-320). v7: static members
(KIP-345). v8: flexible (KIP-482). v9: KIP-848. v10: topic ids (KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kgw.errors import ErrorCode
from kgw.groups.requests import CommitRequest
from kgw.handlers.context import Later, coordinator
from kgw.handlers.encoding_turns import encode_topics
from kgw.handlers.groups import when_answered
from kgw.offsets.block import OffsetBlock
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kgw.protocol.packed import PackedItems, numbers_of
from kgw.protocol.schema import EncodedItems
from kgw.turns import Rest, Share, finish, in_turns

if TYPE_CHECKING:
    from typing import TypeVar

    from kgw.handlers.context import Answer, RequestContext
    from kgw.offsets.topic_offsets import TopicChange
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestTopic,
    )
    from kgw.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic
    from kgw.protocol.schema import Response
    from kgw.turns import Turns
    from kgw.types import TopicId

    WantedT = TypeVar("WantedT", bound=OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic)

_STATIC_MEMBERS = 7
_FLEXIBLE = 8
_GROUP_ID_NOT_FOUND = 9
_TOPIC_IDS = 10

AFTER_THE_GROUP = {ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE}
"""What is told of a partition only if nothing is wrong with the group."""

_BLOCK_UNITS = 20
"""A block takes as long as so many single offsets, and each of its own that part of one."""


PARTITIONS_PER_TURN = 500
"""To take an offset in takes 2 us."""


class _Accepted(NamedTuple):
    """What can be stored of a request, and an answer for every partition."""

    offsets: dict[TopicId, TopicChange]
    response: OffsetCommitResponse


def handle(request: OffsetCommitRequest, context: RequestContext) -> Answer:
    accepted = in_turns(_accept(request, context), context.gateway.answer_turns)
    if isinstance(accepted, Rest):
        return _commit_later(accepted, request, context)
    return _commit(request, context, accepted)


async def _commit_later(
    accepting: Rest[_Accepted], request: OffsetCommitRequest, context: RequestContext
) -> Response:
    """Take the rest of many offsets in, commit all of them together, and answer."""
    gateway = context.gateway
    accepted = await accepting
    while not all(map(gateway.catalog.by_id, accepted.offsets)):
        # Deleted meanwhile: their offsets have been forgotten, and must not come back.
        accepted = await finish(_accept(request, context), gateway.answer_turns)
    return await encoded_later(_commit(request, context, accepted), context)


async def encoded_later(answer: Response | Later, context: RequestContext) -> Response:
    """Return an answer for many partitions as soon as there is one, encoded in turns."""
    response: Any = await answer.made() if isinstance(answer, Later) else answer
    response.topics = await finish(
        encode_topics(
            type(response),
            response.topics,
            "partitions",
            context.api_version,
            Share(2 * PARTITIONS_PER_TURN),
        ),
        context.gateway.answer_turns,
    )
    return cast("Response", response)


def _commit(
    request: OffsetCommitRequest, context: RequestContext, accepted: _Accepted
) -> Response | Later:
    reply = coordinator(request.group_id, context).commit(
        request.group_id,
        CommitRequest(
            request.member_id,
            request.group_instance_id if context.api_version >= _STATIC_MEMBERS else None,
            request.generation_id_or_member_epoch,
            accepted.offsets,
        ),
    )
    return when_answered(reply, lambda code: _answer(request, context, accepted.response, code))


def _answer(
    request: OffsetCommitRequest,
    context: RequestContext,
    response: OffsetCommitResponse,
    code: ErrorCode,
) -> OffsetCommitResponse:
    """Give the group's code to every partition that has no error of its own."""
    if code is ErrorCode.NONE:
        return response
    if code is ErrorCode.GROUP_ID_NOT_FOUND and context.api_version < _GROUP_ID_NOT_FOUND:
        code = ErrorCode.ILLEGAL_GENERATION
    for topic, wanted in zip(response.topics, request.topics, strict=True):
        partitions: Any = topic.partitions
        if isinstance(partitions, EncodedItems):
            topic.partitions = [_partition(one.partition_index, code) for one in wanted.partitions]
        else:
            for one in topic.partitions:
                # Who is not of the group hears that before the length of what he says.
                if one.error_code in AFTER_THE_GROUP:
                    one.error_code = code
    return response


def error_response(
    request: OffsetCommitRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[_partition(one.partition_index, code) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _accept(request: OffsetCommitRequest, context: RequestContext) -> Turns[_Accepted]:
    """Return what can be stored. It is answered with NONE so far."""
    accepted = _Accepted({}, OffsetCommitResponse())
    share = Share(PARTITIONS_PER_TURN)
    request.topics = yield from answered_topics(request.topics, context, _TOPIC_IDS, share)
    for wanted in request.topics:
        topic = committed_topic(wanted, context, _TOPIC_IDS)
        block = None
        if topic is not None and topic.topic_id not in accepted.offsets:
            block = _block(request, wanted, topic, context)
        if topic is not None and block is not None:
            accepted.offsets[topic.topic_id] = block
            answers: Any = _encoded_answers(block, context.api_version)
            units = _BLOCK_UNITS + len(block) // _BLOCK_UNITS
        else:
            offsets, answers = yield from _accept_singly(request, wanted, topic, context, share)
            if topic is not None and offsets:
                before = accepted.offsets.get(topic.topic_id, {})
                if isinstance(before, OffsetBlock):
                    before = before.entries()
                accepted.offsets[topic.topic_id] = {**(before or {}), **offsets}
            units = 1
        accepted.response.topics.append(
            OffsetCommitResponseTopic(
                name=wanted.name, topic_id=wanted.topic_id, partitions=answers
            )
        )
        if share.spend(units):
            yield
    return accepted


def _accept_singly(
    request: OffsetCommitRequest,
    wanted: OffsetCommitRequestTopic,
    topic: Topic | None,
    context: RequestContext,
    share: Share,
) -> Turns[tuple[dict[int, CommittedOffset], list[OffsetCommitResponsePartition]]]:
    """Return the offsets of one topic that can be stored, and an answer for every partition."""
    clock = context.gateway.running_clock
    now_s, running_ms = clock.monotonic_s(), clock.running_ms()
    limit = context.gateway.config.offset_metadata_max_bytes
    retention_ms = _retention_ms(request)
    by_id = context.api_version >= _TOPIC_IDS
    accepted: dict[int, CommittedOffset] = {}
    answers = []
    for one in wanted.partitions:
        index = one.partition_index
        code = metadata_problem(one.committed_metadata, limit)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not topic.has_partition(index):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif code is ErrorCode.NONE:
            accepted[index] = CommittedOffset(
                one.committed_offset,
                one.committed_leader_epoch,
                one.committed_metadata or "",
                # Whatever a client of v1 says: its clock is no better than ours.
                running_ms,
                retention_ms,
                now_s,
            )
        answers.append(_partition(index, code))
        if share.spend():
            yield
    return accepted, answers


def _retention_ms(request: OffsetCommitRequest) -> int:
    return request.retention_time_ms if request.retention_time_ms >= 0 else NO_EXPIRY_MS


def metadata_problem(metadata: str | None, limit: int) -> ErrorCode:
    """Return what is wrong with what is to be kept beside an offset.

    Kafka counts neither bytes nor characters, but Java's: those beyond U+FFFF are two.
    """
    if metadata and len(metadata) * 2 > limit and len(metadata.encode("utf-16-le")) > 2 * limit:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _block(
    request: OffsetCommitRequest,
    wanted: OffsetCommitRequestTopic,
    topic: Topic,
    context: RequestContext,
) -> OffsetBlock | None:
    """Return the same as columns where they came packed and all can be stored, else None.

    tests/handlers/test_group_offsets.py compares the two.
    """
    items = wanted.partitions
    if not isinstance(items, PackedItems):
        return None
    clock = context.gateway.running_clock
    columns, count = items.columns, len(items)
    indexes = numbers_of(columns["partition_index"], count)
    offsets = numbers_of(columns["committed_offset"], count)
    if (
        min(offsets) < 0
        or not topic.has_partition(min(indexes))
        or not topic.has_partition(max(indexes))
        or len(set(indexes)) < count
        or metadata_problem(items.text, context.gateway.config.offset_metadata_max_bytes)
    ):
        return None
    return OffsetBlock(
        columns["partition_index"],
        columns["committed_offset"],
        columns.get("committed_leader_epoch", b"\xff" * 4 * count),
        items.text or "",
        clock.running_ms(),
        _retention_ms(request),
        clock.monotonic_s(),
    )


def _encoded_answers(block: OffsetBlock, version: int) -> EncodedItems:
    """Return the answers for a block: partition index and error code NONE."""
    # Flexible versions end an element with no tags.
    answer_bytes = 7 if version >= _FLEXIBLE else 6
    answer = bytearray(len(block) * answer_bytes)
    for number in range(4):
        answer[number::answer_bytes] = block.partitions[number::4]
    return EncodedItems(len(block), [bytes(answer)])


def answered_topics(
    topics: list[WantedT], context: RequestContext, topic_ids_since: int, share: Share
) -> Turns[list[WantedT]]:
    """Return the topics that an answer names, as in Kafka.

    All that name partitions, each time they are named; of one that does not exist all mentions are
    one, even without partitions.
    """
    if len(topics) == 1 and topics[0].partitions:
        return topics
    by_id = context.api_version >= topic_ids_since
    names = {one.topic_id for one in topics} if by_id else {one.name for one in topics}
    if len(names) == len(topics) and all(one.partitions for one in topics):
        return topics
    answered: list[WantedT] = []
    unknown: dict[bytes | str, Any] = {}
    for wanted in topics:
        if committed_topic(wanted, context, topic_ids_since) is not None:
            if wanted.partitions:
                answered.append(wanted)
        else:
            key = wanted.topic_id if by_id else wanted.name
            if key not in unknown:
                unknown[key] = wanted
                answered.append(wanted)
            else:
                unknown[key].partitions = [*unknown[key].partitions, *wanted.partitions]
        if share.spend():
            yield
    return answered


def committed_topic(
    wanted: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic,
    context: RequestContext,
    topic_ids_since: int,
) -> Topic | None:
    """Return the topic that offsets are committed to, by its name or its id; None: none such."""
    catalog = context.gateway.catalog
    if context.api_version >= topic_ids_since:
        return catalog.by_id(wanted.topic_id)
    return catalog.get(wanted.name)


def _partition(index: int, code: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=index, error_code=code)
