"""OffsetFetch, key 9, versions 0 to 10: how far groups have read.

Behaviour:
- what is durable, and nothing else. A group that is not known, or has not committed, is answered
  with offset -1 and no error; a topic that was created again begins without offsets;
- null topics ask for everything the group has committed in topics that exist;
- with `require_stable`, a partition that a transaction commits to which has not ended is
  UNSTABLE_OFFSET_COMMIT: the client asks again. Without, the offset before is told;
- an offset whose stored form is damaged is CORRUPT_MESSAGE, an error that reaches the application:
  an answer of -1 would send the group to wherever it begins without one;
- UNKNOWN_TOPIC_ID for ids.

v0 is served as v1, but without an offset it says UNKNOWN_TOPIC_OR_PARTITION, as with ZooKeeper.
v2: all topics, an error for the group (KIP-88). v3: throttle time. v5: leader epochs (KIP-320).
v6: flexible (KIP-482). v7: require_stable (KIP-447). v8: several groups (KIP-709). v9: member and
epoch of the consumer protocol, not looked at in a classic group (KIP-848). v10: topic ids
(KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.errors import ErrorCode
from kgw.handlers.context import coordinates, coordinator
from kgw.handlers.encoding_turns import AnswerSize, encode_in_turns, encode_topics
from kgw.offsets.committed import DAMAGED_OFFSET
from kgw.protocol.messages.offset_fetch import (
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kgw.turns import Share, in_turns
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kgw.groups.coordinator import GroupCoordinator
    from kgw.handlers.context import Answer, RequestContext
    from kgw.offsets.pending import PendingTable
    from kgw.offsets.table import OffsetTable
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopics
    from kgw.turns import Turns

_GROUP_ERROR = 2
_SEVERAL_GROUPS = 8
_TOPIC_IDS = 10


PARTITIONS_PER_TURN = 500
"""To look one up, and to encode the answer, takes 2 to 3 us."""
_GROUP_UNITS = 2
"""A group takes so much besides its topics."""


class _Offsets(NamedTuple):
    """What one group has committed, and what is not stable of it for who minds."""

    table: OffsetTable | None
    pending: PendingTable | None

    @classmethod
    def of(cls, groups: GroupCoordinator, group_id: str, request: OffsetFetchRequest) -> _Offsets:
        pending = groups.unstable_offsets(group_id) if request.require_stable else None
        return cls(groups.offsets(group_id), pending)


def handle(request: OffsetFetchRequest, context: RequestContext) -> Answer:
    return in_turns(_look_up(request, context), context.gateway.answer_turns)


def _look_up(request: OffsetFetchRequest, context: RequestContext) -> Turns[OffsetFetchResponse]:
    share = Share(PARTITIONS_PER_TURN)
    size = AnswerSize()
    if context.api_version >= _SEVERAL_GROUPS:
        groups = []
        for group in request.groups:
            answer = OffsetFetchResponseGroup(group_id=group.group_id)
            if coordinates(group.group_id, context):
                offsets = _Offsets.of(context.gateway.groups, group.group_id, request)
                answer.topics = yield from _topics(group.topics, offsets, context, share, size)
            else:
                answer.error_code = ErrorCode.NOT_COORDINATOR
            groups.append(answer)
            if share.spend(_GROUP_UNITS):
                yield
        groups_encoded = yield from encode_in_turns(
            OffsetFetchResponse, groups, context.api_version, share
        )
        return OffsetFetchResponse(groups=groups_encoded)
    offsets = _Offsets.of(coordinator(request.group_id, context), request.group_id, request)
    topics = yield from _topics(request.topics, offsets, context, share, size)
    return OffsetFetchResponse(topics=topics)


def error_response(
    request: OffsetFetchRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=NO_OFFSET,
                        metadata="",
                        error_code=code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
        if context.api_version < _GROUP_ERROR
        else [],
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
            for group in request.groups
        ],
    )


def _topics(
    wanted: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    offsets: _Offsets,
    context: RequestContext,
    share: Share,
    size: AnswerSize,
) -> Turns[Any]:
    """Answer for some topics of a group, or for all of them."""
    has_groups = context.api_version >= _SEVERAL_GROUPS
    topic_class: Any = OffsetFetchResponseTopics if has_groups else OffsetFetchResponseTopic
    topics = []
    table, pending = offsets
    for names, topic, indexes in _asked(wanted, table, context):
        unstable: Collection[int] = ()
        if pending is not None and topic is not None:
            unstable = pending.partitions(topic.topic_id)
        answers = []
        for index in indexes:
            is_stable = index not in unstable
            answers.append(_partition(index, table, topic, is_stable, context.api_version))
            if share.spend():
                yield
        topics.append(topic_class(**names, partitions=answers))
        if share.spend():
            yield
    encoded = yield from encode_topics(
        OffsetFetchResponse, topics, "partitions", context.api_version, share, size
    )
    return encoded


def _asked(
    wanted: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    table: OffsetTable | None,
    context: RequestContext,
) -> Iterator[tuple[dict[str, Any], Topic | None, Sequence[int]]]:
    """Yield by which names topics are answered for, the topics, and their partitions.

    A damaged row may stand for more partitions than its topic has.
    """
    catalog, version = context.gateway.catalog, context.api_version
    if wanted is not None:
        for one in wanted:
            if isinstance(one, OffsetFetchRequestTopic):
                yield {"name": one.name}, catalog.get(one.name), one.partition_indexes
            else:
                by_id = version >= _TOPIC_IDS
                topic = catalog.by_id(one.topic_id) if by_id else catalog.get(one.name)
                names = {"name": one.name, "topic_id": one.topic_id}
                yield names, topic, one.partition_indexes
    elif table is not None:
        for topic_id in table.topic_ids():
            topic = catalog.by_id(topic_id)
            if topic is not None:
                found = table.topic(topic_id).partitions()
                names = {"name": topic.name}
                if version >= _SEVERAL_GROUPS:
                    names["topic_id"] = topic_id
                yield names, topic, sorted(one for one in found if topic.has_partition(one))


def _partition(
    index: int, table: OffsetTable | None, topic: Topic | None, is_stable: bool, version: int
) -> Any:
    """Answer for one partition."""
    found = None if table is None or topic is None else table.get(topic.topic_id, index)
    code = ErrorCode.NONE
    if topic is None and version >= _TOPIC_IDS:
        code = ErrorCode.UNKNOWN_TOPIC_ID
    elif not is_stable:
        code, found = ErrorCode.UNSTABLE_OFFSET_COMMIT, None
    elif found is None and version == 0:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif found is not None and found.offset == DAMAGED_OFFSET:
        code, found = ErrorCode.CORRUPT_MESSAGE, None
    answer: Any = (
        OffsetFetchResponsePartitions
        if version >= _SEVERAL_GROUPS
        else OffsetFetchResponsePartition
    )
    if found is None:
        return answer(
            partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
        )
    return answer(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )
