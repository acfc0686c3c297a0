"""DeleteRecords, key 21, versions 0 to 2: let partitions begin later, for ever.

Behaviour:
- durable before it is answered: a Fetch below the new start is OFFSET_OUT_OF_RANGE from then on,
  and after any crash. The bytes of whole segments below it go, after file.delete.delay.ms; the
  active one is closed first where all of it is deleted, which Kafka does not do. What is left is
  never shown;
- -1 is the high watermark; an offset at or below the log start changes nothing and succeeds; one
  above the high watermark, or another negative one, is OFFSET_OUT_OF_RANGE;
- the answer carries the log start;
- a topic that is compacted only is POLICY_VIOLATION: its records go when newer ones replace them;
  while it is loaded with original offsets it is not, so that it can begin where they do;
- an offset above what kgw.archive.hold holds is POLICY_VIOLATION: who means it takes the setting
  away first;
- of a partition that is named twice the last offset counts, as in Kafka;
- UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER for a partition of another node;
- what is not durable when the timeout is over, 5 s where it says none, is REQUEST_TIMED_OUT for all
  partitions of the request, and goes on: to ask again is harmless.

v0: KIP-107. v2: flexible (KIP-482).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.places import answer_places
from kgw.metrics import count
from kgw.partitions.rules.retention import BY_REQUEST
from kgw.partitions.topics.hold import hold_of
from kgw.partitions.topics.topic import why_missing
from kgw.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from kgw.handlers.context import RequestContext
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest

HIGH_WATERMARK = -1

PARTITIONS_PER_TURN = 100
"""Those of one turn are deleted from side by side; 10 to 15 us each."""


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    async def answer(
        name: str, wanted: Sequence[DeleteRecordsPartition], _: Counter[tuple[str, int]]
    ) -> list[DeleteRecordsPartitionResult]:
        topic = context.gateway.catalog.get(name)
        return await asyncio.gather(*(_result(topic, place, context) for place in wanted))

    topics = await answer_places(
        request,
        context,
        DeleteRecordsResponse,
        DeleteRecordsTopicResult,
        PARTITIONS_PER_TURN,
        answer,
    )
    return DeleteRecordsResponse(topics=topics)


def error_response(
    request: DeleteRecordsRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=wanted.name,
                partitions=[_failure(place.partition_index, code) for place in wanted.partitions],
            )
            for wanted in request.topics
        ]
    )


async def _result(
    topic: Topic | None, place: DeleteRecordsPartition, context: RequestContext
) -> DeleteRecordsPartitionResult:
    index = place.partition_index
    try:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=await _delete(topic, index, place.offset, context)
        )
    except (KafkaError, StorageError) as error:
        is_gone = topic is not None and topic.is_deleted
        return _failure(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_gone else error.code)


async def _delete(topic: Topic | None, index: int, offset: int, context: RequestContext) -> int:
    """Delete below an offset and return the log start. Raises KafkaError, StorageError."""
    partition = None if topic is None else topic.partition(index)
    if topic is None or partition is None:
        raise KafkaError(why_missing(topic, index))
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    loading = topic.config.loading
    if not topic.config.deletes and not (loading is not None and loading.keeps_offsets):
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    log = partition.log
    is_all = offset == HIGH_WATERMARK
    if is_all:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    _check_hold(partition, offset, context)
    if is_all and offset > log.log_start_offset:
        # First: what is appended meanwhile does not keep all that was there before.
        await partition.close_active_segment()
        offset = log.high_watermark
        _check_hold(partition, offset, context)
    removed = await partition.delete_before(offset)
    count(context.gateway.metrics.removed_records, BY_REQUEST, removed)
    return log.log_start_offset


def _check_hold(partition: Partition, offset: int, context: RequestContext) -> None:
    """Raise KafkaError POLICY_VIOLATION where an archive has yet to read what is to be deleted."""
    hold = hold_of(partition, context.gateway.catalog.committed)
    if hold is not None and offset > max(hold.offset, partition.log.log_start_offset):
        raise KafkaError(ErrorCode.POLICY_VIOLATION)


def _failure(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_OFFSET, error_code=code
    )
