"""ListOffsets, key 2, versions 0 to 11: the offset of a time, and both ends of a partition.

Behaviour:
- -1 latest (the high watermark, for both isolation levels as there are no transactions yet),
  -2 earliest, -3 the record with the greatest timestamp, -4 earliest on local disk (= earliest),
  -5 and -6 of remote storage, which there is none of: no offset;
- a time: the first record at or past it; no offset when all are older. The records of the one batch
  found are read, in a thread when large; a batch that cannot be decompressed within the limits is
  answered with its beginning;
- leader epochs are checked (KIP-320);
- v0 answers a list: the end and, where there is room for two, the beginning.

v1: by time (KIP-79). v2: isolation level (KIP-98). v4: leader epochs (KIP-320). v6: flexible
(KIP-482). v7: -3 (KIP-734). v8: -4 (KIP-405). v9: -5 (KIP-1005). v10: timeout for remote storage
(KIP-1075). v11: -6 (KIP-1023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import CorruptionError, ErrorCode, KafkaError, StorageError
from kgw.partitions.lookup import TimestampOffset, find_by_time, find_max_timestamp
from kgw.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kgw.records.limits import DecompressionLimits
from kgw.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.handlers.context import RequestContext
    from kgw.partitions.partition import Partition
    from kgw.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NOTHING = TimestampOffset(NO_TIMESTAMP_MS, NO_OFFSET, NO_LEADER_EPOCH)


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    seen: set[tuple[str, int]] = set()
    for wanted in request.topics:
        topic = context.gateway.catalog.get(wanted.name)
        answers: list[ListOffsetsPartitionResponse] = []
        for place in wanted.partitions:
            index = place.partition_index
            partition = None if topic is None else topic.partition(index)
            if (wanted.name, index) in seen:
                answers.append(_failure(index, ErrorCode.INVALID_REQUEST))
            elif partition is None:
                answers.append(_failure(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                answers.append(await _answer(partition, place, context))
            seen.add((wanted.name, index))
        response.topics.append(ListOffsetsTopicResponse(name=wanted.name, partitions=answers))
    return response


def error_response(
    request: ListOffsetsRequest, code: ErrorCode, message: str | None, context: RequestContext
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_failure(place.partition_index, code) for place in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _failure(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)


async def _answer(
    partition: Partition, place: ListOffsetsPartition, context: RequestContext
) -> ListOffsetsPartitionResponse:
    index = place.partition_index
    timestamp = place.timestamp
    try:
        partition.check_leader_epoch(place.current_leader_epoch)
        if timestamp < 0 and context.api_version < _SINCE.get(timestamp, 1 << 15):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        found = await _find(partition, timestamp, context)
    except KafkaError as error:
        return _failure(index, error.code)
    except CorruptionError:
        return _failure(index, ErrorCode.CORRUPT_MESSAGE)
    except StorageError:
        code = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition.topic.is_deleted
            else ErrorCode.KAFKA_STORAGE_ERROR
        )
        return _failure(index, code)
    if context.api_version == 0:
        return ListOffsetsPartitionResponse(
            partition_index=index, old_style_offsets=_old_style(partition, found, place)
        )
    return ListOffsetsPartitionResponse(
        partition_index=index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch if context.api_version >= 4 else NO_LEADER_EPOCH,
    )


async def _find(partition: Partition, timestamp: int, context: RequestContext) -> TimestampOffset:
    log = partition.log
    if timestamp == LATEST:
        offset = partition.last_stable_offset
        return TimestampOffset(NO_TIMESTAMP_MS, offset, log.epoch_at(offset))
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        offset = log.log_start_offset
        return TimestampOffset(NO_TIMESTAMP_MS, offset, log.epoch_at(offset))
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return _NOTHING
    config = context.gateway.config
    limits = DecompressionLimits(config.decompressed_bytes_max, config.decompression_ratio_max)
    if timestamp == MAX_TIMESTAMP:
        return await find_max_timestamp(partition, limits) or _NOTHING
    return await find_by_time(partition, timestamp, limits) or _NOTHING


def _old_style(
    partition: Partition, found: TimestampOffset, place: ListOffsetsPartition
) -> list[int]:
    """Return what version 0 gives: offsets to begin at, the newest first, at most so many."""
    newest = partition.last_stable_offset if found.offset == NO_OFFSET else found.offset
    offsets = [newest]
    if place.timestamp == LATEST and partition.log.log_start_offset < newest:
        offsets.append(partition.log.log_start_offset)
    return offsets[: max(0, place.max_num_offsets)]
