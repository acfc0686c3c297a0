"""OffsetForLeaderEpoch, key 23, versions 0 to 4: where a leader epoch ended.

Behaviour:
- the newest epoch not above the one asked for, and the offset at which it ended: the log's end for
  the current one; -1 and -1 for an epoch that this log has never known;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node;
- the client's own leader epoch is checked (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH).

v1: the epoch found (KIP-279). v2: the client's leader epoch (KIP-320). v3: replica id (KIP-392),
which has no effect. v4: flexible (KIP-482).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.handlers.encoding_turns import encode_topics
from kgw.partitions.topics.topic import why_missing
from kgw.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kgw.turns import Share, in_turns

if TYPE_CHECKING:
    from kgw.handlers.context import Answer, RequestContext
    from kgw.partitions.partition import Partition
    from kgw.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )
    from kgw.turns import Turns

PARTITIONS_PER_TURN = 400
"""So many are looked up and encoded in a turn of the loop (docs/decisions/0068)."""


def handle(request: OffsetForLeaderEpochRequest, context: RequestContext) -> Answer:
    return in_turns(_look_up(request, context), context.gateway.answer_turns)


def _look_up(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> Turns[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    share = Share(PARTITIONS_PER_TURN)
    for wanted in request.topics:
        topic = context.gateway.catalog.get(wanted.topic)
        answers = []
        for place in wanted.partitions:
            partition = None if topic is None else topic.partition(place.partition)
            if partition is not None:
                answers.append(_answer(partition, place))
            else:
                code = why_missing(topic, place.partition)
                answers.append(EpochEndOffset(partition=place.partition, error_code=code))
            if share.spend():
                yield
        response.topics.append(OffsetForLeaderTopicResult(topic=wanted.topic, partitions=answers))
        if share.spend():
            yield
    response.topics = yield from encode_topics(
        OffsetForLeaderEpochResponse, response.topics, "partitions", context.api_version, share
    )
    return response


def error_response(
    request: OffsetForLeaderEpochRequest,
    code: ErrorCode,
    message: str | None,
    context: RequestContext,
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=place.partition, error_code=code)
                    for place in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(partition: Partition, place: OffsetForLeaderPartition) -> EpochEndOffset:
    view = partition.view()
    try:
        view.check_leader_epoch(place.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=place.partition, error_code=error.code)
    end = view.epoch_end(place.leader_epoch)
    if end is None:
        return EpochEndOffset(partition=place.partition)
    return EpochEndOffset(
        partition=place.partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset
    )
