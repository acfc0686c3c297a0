"""From a time to an offset: which record is the first at or past it, and which is the latest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import KafkaError
from kgw.records.batch import Compression
from kgw.records.times import RecordTime, first_record_at

if TYPE_CHECKING:
    from kgw.backend.base import PartitionLog
    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits

# Above this a batch's records are walked in a thread: 16 KB take some 0.1 ms of the loop's time,
# and a compressed batch may be 200 times as long as it looks.
_WALK_IN_LOOP_BYTES = 16_384


class TimestampOffset(NamedTuple):
    """A record's place in time and in the log."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


async def find_by_time(
    log: PartitionLog, timestamp_ms: int, upper_bound: int, limits: DecompressionLimits
) -> TimestampOffset | None:
    """Return the first record below the bound whose timestamp is at or past the one given.

    Records count, not what headers say of them: a batch that promises more than it holds is passed,
    and so are records below the log start. Only a batch whose header hides a greater timestamp than
    it says is not found by it. Raises StorageError, CorruptionError.
    """
    lower_bound = log.log_start_offset
    while True:
        batch = await log.find_by_time(timestamp_ms, lower_bound, upper_bound)
        if batch is None:
            return None
        found = await _first(batch, timestamp_ms, lower_bound, limits)
        if found is None:
            lower_bound = batch.next_offset
        elif found.offset < log.log_start_offset:
            # It has been raised meanwhile.
            lower_bound = log.log_start_offset
        else:
            return TimestampOffset(found.timestamp_ms, found.offset, batch.leader_epoch)


async def find_max_timestamp(
    log: PartitionLog, upper_bound: int, limits: DecompressionLimits
) -> TimestampOffset | None:
    """Return the first record below the bound with the greatest timestamp (KIP-734), if any.

    Raises as `find_by_time`.
    """
    batch = await log.find_max_timestamp(log.log_start_offset, upper_bound)
    if batch is None:
        return None
    greatest_ms = batch.max_timestamp_ms
    found = await find_by_time(log, greatest_ms, upper_bound, limits)
    if found is not None:
        return found
    # The greatest header promised more than there is: its records are gone below the log start or
    # by compaction, or it never was true. Whether any record reaches a time can be asked, and has
    # one answer up to the greatest and another above it.
    known_ms, above_ms = -1, greatest_ms
    while known_ms < above_ms - 1:
        at = await find_by_time(log, (known_ms + above_ms) // 2, upper_bound, limits)
        if at is None:
            above_ms = (known_ms + above_ms) // 2
        else:
            known_ms = at.timestamp_ms
    return await find_by_time(log, known_ms, upper_bound, limits)


async def _first(
    batch: RecordBatch, timestamp_ms: int, from_offset: int, limits: DecompressionLimits
) -> RecordTime | None:
    """Return the first record of a batch that reaches a time, at or above an offset.

    A batch that cannot be read is answered with its beginning: a client may see records from before
    its time, but never misses one.
    """

    def walk() -> RecordTime | None:
        try:
            return first_record_at(batch, timestamp_ms, from_offset, limits)
        except KafkaError:
            return RecordTime(max(batch.base_offset, from_offset), batch.max_timestamp_ms)

    if batch.compression is Compression.NONE and batch.size_bytes <= _WALK_IN_LOOP_BYTES:
        return walk()
    return await asyncio.to_thread(walk)
