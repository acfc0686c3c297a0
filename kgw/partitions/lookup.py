"""From a time to an offset: which record is the first at or past it, and which is the latest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import KafkaError
from kgw.records.batch import Compression
from kgw.records.reader import read_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.partitions.partition import Partition
    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits
    from kgw.records.record import Record

# Above this a batch's records are walked in a thread: 16 KB take some 0.1 ms of the loop's time,
# and a compressed batch may be 200 times as long as it looks.
_WALK_IN_LOOP_BYTES = 16_384


class TimestampOffset(NamedTuple):
    """A record's place in time and in the log."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


async def find_by_time(
    partition: Partition, timestamp_ms: int, limits: DecompressionLimits
) -> TimestampOffset | None:
    """Return the first visible record whose timestamp is at or past the one given.

    Raises StorageError, CorruptionError.
    """
    log = partition.log
    batch = await log.find_by_time(timestamp_ms, partition.last_stable_offset)
    if batch is None:
        return None
    return await _first(batch, lambda record: record.timestamp_ms >= timestamp_ms, limits)


async def find_max_timestamp(
    partition: Partition, limits: DecompressionLimits
) -> TimestampOffset | None:
    """Return the first visible record with the greatest timestamp (KIP-734); None when empty."""
    batch = await partition.log.find_max_timestamp(partition.last_stable_offset)
    if batch is None:
        return None
    greatest_ms = batch.max_timestamp_ms
    return await _first(batch, lambda record: record.timestamp_ms >= greatest_ms, limits)


async def _first(
    batch: RecordBatch, matches: Callable[[Record], bool], limits: DecompressionLimits
) -> TimestampOffset:
    """Return the first matching record of a batch.

    A batch that cannot be read, or whose header promised more than its records hold, is answered
    with its beginning: a client may see records from before its time, but never misses one.
    """
    beginning = TimestampOffset(batch.max_timestamp_ms, batch.base_offset, batch.leader_epoch)
    if batch.uses_log_append_time or batch.record_count == 1:
        return beginning

    def walk() -> TimestampOffset:
        try:
            for record in read_records(batch, limits):
                if matches(record):
                    return TimestampOffset(record.timestamp_ms, record.offset, batch.leader_epoch)
        except KafkaError:
            pass
        return beginning

    if batch.compression is Compression.NONE and batch.size_bytes <= _WALK_IN_LOOP_BYTES:
        return walk()
    return await asyncio.to_thread(walk)
