"""Finds the first record at or after a time, and the record with the highest timestamp."""

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
    """Return the first record below the bound with a timestamp at or after the given one.

    The timestamps of records count, not those of batch headers: a batch is skipped if only its
    header has a high enough timestamp. Records below the log start are skipped, too. For a batch
    that cannot be decoded, its first offset is returned: a client may then get older records, but
    misses none. A record with a higher timestamp than its batch header may be missed. Raises
    StorageError, CorruptionError.
    """
    while True:
        log_start_offset = log.log_start_offset
        found = await log.find_by_time(
            timestamp_ms,
            log_start_offset,
            upper_bound,
            partial(_first, timestamp_ms, log_start_offset, limits),
        )
        # The log start offset may have risen meanwhile.
        if found is None or found.offset >= log.log_start_offset:
            return found


async def find_max_timestamp(
    log: PartitionLog, upper_bound: int, limits: DecompressionLimits
) -> FoundRecord | None:
    """Return the first record below the bound with the highest timestamp (KIP-734), or None.

    Raises as `find_by_time`.
    """
    batch = await log.find_max_timestamp(log.log_start_offset, upper_bound)
    if batch is None:
        return None
    greatest_ms = batch.max_timestamp_ms
    found = await find_by_time(log, greatest_ms, upper_bound, limits)
    if found is not None:
        return found
    # No record has the highest timestamp of the headers: the record was deleted or compacted, or
    # the header was wrong. So search for the highest time that any record reaches by bisection.
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
    """Return a batch's first record at or above an offset and at or after a time."""
    try:
        found = first_record_at(batch, timestamp_ms, from_offset, limits)
    except KafkaError:
        found = RecordTime(max(batch.base_offset, from_offset), batch.max_timestamp_ms)
    if found is None:
        return None
    return FoundRecord(found.offset, found.timestamp_ms, batch.leader_epoch)
