"""OffsetCommit, key 8, versions 0 to 10: store how far a group has read.

Behaviour:
- durable before it is answered; what many groups commit at the same time shares a flush. Commits
  count in the order in which they arrive, those of one member that overlap too;
- members commit in their generation: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, and
  REBALANCE_IN_PROGRESS while the generation waits for its assignment. Without a generation anybody
  commits, as long as the group has no members; the group is created. A member of a group that does
  not exist hears ILLEGAL_GENERATION, from v9 on GROUP_ID_NOT_FOUND;
- offsets belong to a topic's id: they end with the topic. UNKNOWN_TOPIC_OR_PARTITION,
  UNKNOWN_TOPIC_ID; OFFSET_METADATA_TOO_LARGE; a negative offset is INVALID_REQUEST;
- the retention time of v2 to v4 is kept to; otherwise offsets expire when the group has been empty
  for `offsets.retention.minutes`;
- COORDINATOR_NOT_AVAILABLE when nothing can be stored: nothing of the request was, or all of it.

v0 is served as v1, without membership: there is no ZooKeeper. v1: membership. v2: retention time.
v3: throttle time. v5: no retention time (KIP-211). v6: leader epochs (KIP-320). v7: static members
(KIP-345). v8: flexible (KIP-482). v9: KIP-848. v10: topic ids (KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kgw.completion import Completion
from kgw.errors import ErrorCode
from kgw.handlers.context import Later, coordinator
from kgw.handlers.encoding_turns import encode_topics
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
    from kgw.handlers.context import Answer, RequestContext
    from kgw.offsets.committed import OffsetChanges
    from kgw.partitions.topic import Topic
    from kgw.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from kgw.turns import Turns
    from kgw.types import TopicId

_STATIC_MEMBERS = 7
_FLEXIBLE = 8
_GROUP_ID_NOT_FOUND = 9
_TOPIC_IDS = 10

_BLOCK_UNITS = 20
"""A block takes as long as so many single offsets, and each of its own that part of one."""


PARTITIONS_PER_TURN = 500
"""To take an offset in takes 2 us."""


class _Accepted(NamedTuple):
    """What can be stored of a request, by place or by topic, and an answer for every partition."""

    offsets: OffsetChanges
    blocks: dict[TopicId, OffsetBlock] | None
    response: OffsetCommitResponse


def handle(request: OffsetCommitRequest, context: RequestContext) -> Answer:
    accepted = in_turns(_accept(request, context), context.gateway.answer_turns)
    if isinstance(accepted, Rest):
        return _commit_later(accepted, request, context)
    return _commit(request, context, accepted)


async def _commit_later(
    accepting: Rest[_Accepted], request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse:
    """Take the rest of many offsets in, commit all of them together, and answer."""
    gateway = context.gateway
    accepted = await accepting
    while not all(map(gateway.catalog.by_id, _topic_ids(accepted))):
        # Deleted meanwhile: their offsets have been forgotten, and must not come back.
        accepted = await finish(_accept(request, context), gateway.answer_turns)
    answer = _commit(request, context, accepted)
    if isinstance(answer, Later):
        answer = cast("OffsetCommitResponse", await answer.made())
    answer.topics = await finish(
        encode_topics(
            OffsetCommitResponse,
            answer.topics,
            "partitions",
            context.api_version,
            Share(2 * PARTITIONS_PER_TURN),
        ),
        gateway.answer_turns,
    )
    return answer


def _topic_ids(accepted: _Accepted) -> set[TopicId]:
    if accepted.blocks is not None:
        return set(accepted.blocks)
    return {topic_id for topic_id, _ in accepted.offsets}


def _commit(
    request: OffsetCommitRequest, context: RequestContext, accepted: _Accepted
) -> OffsetCommitResponse | Later:
    offsets, blocks, response = accepted
    code = coordinator(request.group_id, context).commit(
        request.group_id,
        request.member_id,
        request.group_instance_id if context.api_version >= _STATIC_MEMBERS else None,
        request.generation_id_or_member_epoch,
        offsets,
        blocks,
    )

    def answer(code: ErrorCode) -> OffsetCommitResponse:
        """Give the group's code to every partition that has no error of its own."""
        if code is ErrorCode.GROUP_ID_NOT_FOUND and context.api_version < _GROUP_ID_NOT_FOUND:
            code = ErrorCode.ILLEGAL_GENERATION
        if code is ErrorCode.NONE:
            return response
        if blocks is not None:
            return error_response(request, code, None, context)
        for topic in response.topics:
            for one in topic.partitions:
                one.error_code = one.error_code or code
        return response

    if isinstance(code, Completion):
        reply = code
        return Later(reply, lambda: answer(reply.result))
    return answer(code)


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
    response = OffsetCommitResponse()
    share = Share(PARTITIONS_PER_TURN)
    blocks = yield from _accept_blocks(request, context, response, share)
    offsets: OffsetChanges = {}
    if blocks is None:
        offsets = yield from _accept_offsets(request, context, response, share)
    return _Accepted(offsets, blocks, response)


def _accept_offsets(
    request: OffsetCommitRequest,
    context: RequestContext,
    response: OffsetCommitResponse,
    share: Share,
) -> Turns[OffsetChanges]:
    """Return the offsets that can be stored, and put an answer for every partition in it."""
    clock = context.gateway.clock
    now_s, wall_ms = clock.monotonic_s(), clock.wall_ms()
    limit = context.gateway.config.offset_metadata_max_bytes
    retention_ms = request.retention_time_ms if request.retention_time_ms >= 0 else NO_EXPIRY_MS
    by_id = context.api_version >= _TOPIC_IDS
    accepted: OffsetChanges = {}
    for wanted in request.topics:
        topic = _topic(wanted, context)
        answers = []
        for one in wanted.partitions:
            index = one.partition_index
            code = _problem(one, limit)
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not topic.has_partition(index):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif code is ErrorCode.NONE:
                accepted[topic.topic_id, index] = CommittedOffset(
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.committed_metadata or "",
                    # v1 alone lets the client say when it committed.
                    one.commit_timestamp if one.commit_timestamp >= 0 else wall_ms,
                    retention_ms,
                    now_s,
                )
            answers.append(_partition(index, code))
            if share.spend():
                yield
        response.topics.append(
            OffsetCommitResponseTopic(
                name=wanted.name, topic_id=wanted.topic_id, partitions=answers
            )
        )
        if share.spend():
            yield
    return accepted


def _problem(one: OffsetCommitRequestPartition, limit: int) -> ErrorCode:
    """Return what is wrong with an offset in itself, its metadata being limited in bytes."""
    if one.committed_offset < 0:
        return ErrorCode.INVALID_REQUEST
    metadata = one.committed_metadata
    if metadata and len(metadata) * 4 > limit and len(metadata.encode()) > limit:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _accept_blocks(
    request: OffsetCommitRequest,
    context: RequestContext,
    response: OffsetCommitResponse,
    share: Share,
) -> Turns[dict[TopicId, OffsetBlock] | None]:
    """Do the same for a request of which all can be stored and all came packed; else return None.

    Nothing is said in the response then. tests/handlers/test_group_offsets.py compares the two.
    """
    clock = context.gateway.clock
    retention_ms = request.retention_time_ms if request.retention_time_ms >= 0 else NO_EXPIRY_MS
    blocks: dict[TopicId, OffsetBlock] = {}
    answers = []
    for wanted in request.topics:
        items = wanted.partitions
        topic = _topic(wanted, context)
        if not isinstance(items, PackedItems) or topic is None or topic.topic_id in blocks:
            return None
        columns, count = items.columns, len(items)
        indexes = numbers_of(columns["partition_index"], count)
        offsets = numbers_of(columns["committed_offset"], count)
        if (
            # v1 alone lets the client say when it committed.
            "commit_timestamp" in columns
            or min(offsets) < 0
            or not topic.has_partition(min(indexes))
            or not topic.has_partition(max(indexes))
            or len(set(indexes)) < count
            or len((items.text or "").encode()) > context.gateway.config.offset_metadata_max_bytes
        ):
            return None
        blocks[topic.topic_id] = OffsetBlock(
            columns["partition_index"],
            columns["committed_offset"],
            columns.get("committed_leader_epoch", b"\xff" * 4 * count),
            items.text or "",
            clock.wall_ms(),
            retention_ms,
            clock.monotonic_s(),
        )
        # Partition index and error code NONE; flexible versions end an element with no tags.
        answer_bytes = 7 if context.api_version >= _FLEXIBLE else 6
        answer = bytearray(count * answer_bytes)
        for number in range(4):
            answer[number::answer_bytes] = columns["partition_index"][number::4]
        encoded: Any = EncodedItems(count, [bytes(answer)])
        answers.append(
            OffsetCommitResponseTopic(
                name=wanted.name, topic_id=wanted.topic_id, partitions=encoded
            )
        )
        if share.spend(_BLOCK_UNITS + count // _BLOCK_UNITS):
            yield
    response.topics += answers
    return blocks


def _topic(wanted: OffsetCommitRequestTopic, context: RequestContext) -> Topic | None:
    catalog = context.gateway.catalog
    if context.api_version >= _TOPIC_IDS:
        return catalog.by_id(wanted.topic_id)
    return catalog.get(wanted.name)


def _partition(index: int, code: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=index, error_code=code)
