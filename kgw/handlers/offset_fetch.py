"""OffsetFetch, key 9, versions 0 to 10: how far groups have read.

Behaviour:
- what is durable, and nothing else. A group that is not known, or has not committed, is answered
  with offset -1 and no error; a topic that was created again begins without offsets;
- null topics ask for everything the group has committed in topics that exist;
- `require_stable` changes nothing while there are no transactions: every offset is stable;
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

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.handlers.context import coordinates, coordinator
from kgw.handlers.encoding_turns import AnswerSize, encode_in_turns, encode_topics
from kgw.offsets.committed import DAMAGED_OFFSET
from kgw.protocol.messages.offset_fetch import (
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
    from collections.abc import Iterable, Iterator

    from kgw.handlers.context import Answer, RequestContext
    from kgw.offsets.committed import CommittedOffset
    from kgw.offsets.table import OffsetTable
    from kgw.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
    from kgw.turns import Turns
    from kgw.types import TopicId

_GROUP_ERROR = 2
_SEVERAL_GROUPS = 8
_TOPIC_IDS = 10


PARTITIONS_PER_TURN = 500
"""To look one up, and to encode the answer, takes 2 to 3 us."""
_GROUP_UNITS = 2
"""A group takes so much besides its topics."""


def handle(request: OffsetFetchRequest, context: RequestContext) -> Answer:
    return in_turns(_look_up(request, context), context.gateway.answer_turns)


def _look_up(request: OffsetFetchRequest, context: RequestContext) -> Turns[OffsetFetchResponse]:
    share = Share(PARTITIONS_PER_TURN)
    if context.api_version >= _SEVERAL_GROUPS:
        groups = []
        size = AnswerSize()
        for group in request.groups:
            answer = yield from _group(group, context, share, size)
            groups.append(answer)
            if share.spend(_GROUP_UNITS):
                yield
        groups_encoded = yield from encode_in_turns(
            OffsetFetchResponse, groups, context.api_version, share
        )
        return OffsetFetchResponse(groups=groups_encoded)
    table = coordinator(request.group_id, context).offsets(request.group_id)
    if request.topics is None:
        wanted: Iterable[tuple[str, list[int]]] = (
            (name, indexes) for name, _, indexes in _all_topics(table, context)
        )
    else:
        wanted = ((one.name, one.partition_indexes) for one in request.topics)
    topics = []
    for name, indexes in wanted:
        topic = context.gateway.catalog.get(name)
        topic_id = None if topic is None else topic.topic_id
        answers = []
        for index in indexes:
            answers.append(_partition(index, _find(table, topic_id, index)))
            if share.spend():
                yield
        if context.api_version == 0:
            for one in answers:
                if one.committed_offset == NO_OFFSET and not one.error_code:
                    one.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics.append(OffsetFetchResponseTopic(name=name, partitions=answers))
        if share.spend():
            yield
    encoded = yield from encode_topics(
        OffsetFetchResponse, topics, "partitions", context.api_version, share, AnswerSize()
    )
    return OffsetFetchResponse(topics=encoded)


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


def _group(
    wanted: OffsetFetchRequestGroup, context: RequestContext, share: Share, size: AnswerSize
) -> Turns[OffsetFetchResponseGroup]:
    """Answer for one group, by names or by ids."""
    answer = OffsetFetchResponseGroup(group_id=wanted.group_id)
    if not coordinates(wanted.group_id, context):
        answer.error_code = ErrorCode.NOT_COORDINATOR
        return answer
    catalog = context.gateway.catalog
    table = context.gateway.groups.offsets(wanted.group_id)
    topics = []
    by_id = context.api_version >= _TOPIC_IDS
    if wanted.topics is None:
        for name, topic_id, indexes in _all_topics(table, context):
            answers = yield from _answers(table, topic_id, indexes, share)
            topics.append(
                OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=answers)
            )
    else:
        for asked in wanted.topics:
            topic = catalog.by_id(asked.topic_id) if by_id else catalog.get(asked.name)
            found_id = None if topic is None else topic.topic_id
            answers = yield from _answers(table, found_id, asked.partition_indexes, share)
            if by_id and topic is None:
                for one in answers:
                    one.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            topics.append(
                OffsetFetchResponseTopics(
                    name=asked.name, topic_id=asked.topic_id, partitions=answers
                )
            )
            if share.spend():
                yield
    answer.topics = yield from encode_topics(
        OffsetFetchResponse, topics, "partitions", context.api_version, share, size
    )
    return answer


def _answers(
    table: OffsetTable | None, topic_id: TopicId | None, indexes: Iterable[int], share: Share
) -> Turns[list[OffsetFetchResponsePartitions]]:
    answers = []
    for index in indexes:
        answers.append(_partitions(index, _find(table, topic_id, index)))
        if share.spend():
            yield
    return answers


def _all_topics(
    table: OffsetTable | None, context: RequestContext
) -> Iterator[tuple[str, TopicId, list[int]]]:
    """Yield name, id and partitions of everything committed in topics that exist.

    A damaged row may stand for more partitions than its topic has.
    """
    if table is None:
        return
    for topic_id in table.topic_ids():
        topic = context.gateway.catalog.by_id(topic_id)
        if topic is not None:
            found = table.topic(topic_id).partitions()
            known = sorted(one for one in found if topic.has_partition(one))
            yield topic.name, topic_id, known


def _find(
    table: OffsetTable | None, topic_id: TopicId | None, index: int
) -> CommittedOffset | None:
    return None if table is None or topic_id is None else table.get(topic_id, index)


def _partition(index: int, found: CommittedOffset | None) -> OffsetFetchResponsePartition:
    if found is None or found.offset == DAMAGED_OFFSET:
        return OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=NO_OFFSET,
            metadata="",
            error_code=ErrorCode.NONE if found is None else ErrorCode.CORRUPT_MESSAGE,
        )
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


def _partitions(index: int, found: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    one = _partition(index, found)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=one.committed_offset,
        committed_leader_epoch=one.committed_leader_epoch,
        metadata=one.metadata,
        error_code=one.error_code,
    )
