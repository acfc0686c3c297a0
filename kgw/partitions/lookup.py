"""From a time to an offset: which record is the first at or past it, and which is the latest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kgw.errors import KafkaError
from kgw.offsets.reader import FoundRecord
from kgw.records.reader import RecordTime, first_record_at

if TYPE_CHECKING:
    from kgw.backend.base import PartitionLog
    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits


async def find_by_time(
    log: PartitionLog, timestamp_ms: int, upper_bound: int, limits: DecompressionLimits
) -> FoundRecord | None:
    """Return the first record below the bound whose timestamp is at or past the one given.

    The timestamps of the records decide, not the batch header's: a batch whose header claims a
    greater timestamp than its records have is skipped, and so are records below the log start. For
    a batch that cannot be decoded its first offset is returned: a client may see older records, but
    misses none. Records with a timestamp above the one in their batch's header are not found by it.
    Raises StorageError, CorruptionError.
    """
    while True:
        log_start_offset = log.log_start_offset
        found = await log.find_by_time(
            timestamp_ms,
            log_start_offset,
            upper_bound,
            partial(_first, timestamp_ms, log_start_offset, limits),
        )
        # The log start may have been raised meanwhile.
        if found is None or found.offset >= log.log_start_offset:
            return found


async def find_max_timestamp(
    log: PartitionLog, upper_bound: int, limits: DecompressionLimits
) -> FoundRecord | None:
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


def _first(
    timestamp_ms: int, from_offset: int, limits: DecompressionLimits, batch: RecordBatch
) -> FoundRecord | None:
    """Return the first record of a batch that reaches a time, at or above an offset."""
    try:
        found = first_record_at(batch, timestamp_ms, from_offset, limits)
    except KafkaError:
        found = RecordTime(max(batch.base_offset, from_offset), batch.max_timestamp_ms)
    if found is None:
        return None
    return FoundRecord(found.offset, found.timestamp_ms, batch.leader_epoch)
