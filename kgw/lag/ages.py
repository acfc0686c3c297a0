"""The age of a group's first unread record: from memory if possible, otherwise by a few reads.

A record is unread if a Fetch would still return it to the group. Control records are never
returned, empty batches, which compaction leaves, have no records, and aborted records are returned
only to readers with the isolation level read_uncommitted. A record of an open transaction counts as
unread, as it is returned once the transaction has committed.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.base import Segmented
from kgw.errors import KgwError
from kgw.offsets.lag import record_age_ms
from kgw.records.batch import (
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    read_batch,
)
from kgw.records.reader import first_record_at
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.base import PartitionLog, ReadResult
    from kgw.partitions.partition import Partition
    from kgw.records.batch import RecordBatch
    from kgw.types import PartitionKey

HOT_LOOKS = 5_000
COLD_READS = 50
"""The limit of reads from storage in one sample.

A group that is days behind needs one read, and no further read until it commits.
"""
REMEMBERED = 20_000

HOT_LOOKS_A_PLACE = 10
COLD_READS_A_PLACE = 5
"""The limit of batches and of reads for one offset of a group in one sample.

The next sample continues, for example if many batches in a row have no records for the group.
"""

_ONE_BATCH_BYTES = 1
_MORE_BYTES = 256 << 10
"""The size of each read after the first one: batches without records for a group often follow each
other."""
_NOT_ITS_FIRST_TIME = DELETE_HORIZON_FLAG | LOG_APPEND_TIME_FLAG
_ANY_TIME_MS = -(1 << 63)


class Seen(NamedTuple):
    """Findings about the records at and after an offset."""

    next_offset: int
    """The offset at which to continue: batches below it need not be read again."""
    timestamp_ms: int | None = None
    """The time of the first record that a Fetch returns to all groups; None if none was found
    yet."""
    at_offset: int = 0
    """The offset of this record, or of the first record of its batch."""
    aborted_ms: int | None = None
    """The time of the first aborted record before this record; None if there is none."""
    aborted_at: int = 0
    """The offset of the batch with that aborted record."""
    is_open: bool = False
    """Whether the record's transaction was open when the record was read."""
    compacted_end: int = 0
    """The end of the compacted part of the log at that time."""


class Unread(NamedTuple):
    """The first record that a Fetch would return to a group."""

    age_ms: int | None
    """0 if there is no such record, None if its age is not known."""
    offset: int | None = None
    """The offset of the record or of its batch; None if it is not known or there is no such
    record."""


_NOTHING = Unread(0)
_UNKNOWN = Unread(None)


class RecordAges:
    """Timestamps of first unread records, remembered until groups commit other offsets.

    As the time of a record counts that of the first record of its batch: the error of an age is at
    most the time that a producer took to fill the batch.
    """

    __slots__ = ("_cold_left", "_hot_left", "_known", "_limit", "failures")

    def __init__(self, limit: int = REMEMBERED) -> None:
        """Remember findings for at most `limit` offsets."""
        self._limit = limit
        self._known: dict[tuple[PartitionKey, int], Seen] = {}
        self._hot_left = HOT_LOOKS
        self._cold_left = COLD_READS
        self.failures = 0
        """How many reads have failed since the start."""

    def begin(self) -> None:
        """Reset the limits on batches from memory and reads from storage, for a new sample."""
        self._hot_left = HOT_LOOKS
        self._cold_left = COLD_READS

    async def unread(
        self, partition: Partition, offset: int, now_ms: int, is_given_aborted: Callable[[], bool]
    ) -> Unread:
        """Return the first record at or after an offset that a Fetch would return to a group.

        Its age is unknown if the record has no timestamp, a read has failed, or the reads allowed
        for one sample are used up. `is_given_aborted` is called only if the answer matters.
        """
        log = partition.log
        offset = max(offset, log.log_start_offset)
        if offset >= log.high_watermark:
            return _NOTHING
        key = (log.key, offset)
        try:
            seen = self._remembered(key, partition)
            if not _is_enough(seen, log, is_given_aborted):
                before = seen
                seen = await self._look(partition, offset, seen, is_given_aborted)
                if seen != before:
                    # Without new findings, the findings about another offset are not dropped.
                    self._remember(key, seen)
        except KgwError:
            self.failures += 1
            return _UNKNOWN
        if seen.aborted_ms is not None and is_given_aborted():
            return Unread(record_age_ms(seen.aborted_ms, now_ms), max(offset, seen.aborted_at))
        if seen.timestamp_ms is not None:
            return Unread(record_age_ms(seen.timestamp_ms, now_ms), max(offset, seen.at_offset))
        return _NOTHING if seen.next_offset >= log.high_watermark else _UNKNOWN

    def _remembered(self, key: tuple[PartitionKey, int], partition: Partition) -> Seen:
        """Return the findings about an offset that are still valid."""
        offset = key[1]
        compacted_end = _compacted_end(partition.log)
        seen = self._known.get(key)
        if seen is None or offset < compacted_end != seen.compacted_end:
            # Compaction may have removed the record that was found.
            return Seen(offset, compacted_end=compacted_end)
        if seen.is_open and partition.view().bounds().last_stable_offset > seen.next_offset:
            return seen._replace(timestamp_ms=None, is_open=False)
        return seen

    def _remember(self, key: tuple[PartitionKey, int], seen: Seen) -> None:
        known = self._known
        if key not in known and len(known) >= self._limit:
            del known[next(iter(known))]
        known[key] = seen

    async def _look(
        self, partition: Partition, offset: int, seen: Seen, is_given_aborted: Callable[[], bool]
    ) -> Seen:
        """Read from `seen.next_offset`, first from memory. Raises KgwError."""
        log = partition.log
        hot_left, cold_left = HOT_LOOKS_A_PLACE, COLD_READS_A_PLACE
        max_bytes = _ONE_BATCH_BYTES
        while True:
            found: ReadResult | None = None
            if hot_left and self._hot_left:
                hot_left -= 1
                self._hot_left -= 1
                found = log.read_hot(seen.next_offset, max_bytes, log.high_watermark)
            if found is None:
                hot_left = 0
                if not (cold_left and self._cold_left):
                    return seen
                cold_left -= 1
                self._cold_left -= 1
                found = await log.read(seen.next_offset, max_bytes, log.high_watermark)
            if not found.buffers:
                return seen
            seen = await _look_at(found, partition, offset, seen)
            if _is_enough(seen, log, is_given_aborted):
                return seen
            max_bytes = _MORE_BYTES


def _is_enough(seen: Seen, log: PartitionLog, is_given_aborted: Callable[[], bool]) -> bool:
    return (
        seen.timestamp_ms is not None
        or seen.next_offset >= log.high_watermark
        or (seen.aborted_ms is not None and is_given_aborted())
    )


async def _look_at(found: ReadResult, partition: Partition, offset: int, seen: Seen) -> Seen:
    """Return the findings after examining batches that were read."""
    view = partition.view()
    for buffer in found.buffers:
        position = 0
        while position < len(buffer):
            batch = read_batch(buffer, position)
            position += batch.size_bytes
            is_aborted = batch.is_transactional and any(
                one.producer_id == batch.producer_id
                for one in view.aborted(batch.base_offset, batch.next_offset)
            )
            stable = view.bounds().last_stable_offset
            seen = see(batch, seen, is_aborted=is_aborted, last_stable_offset=stable)
            if seen.timestamp_ms is not None and _may_hold_nothing(batch, offset):
                seen = await _look_inside(batch, partition, offset, seen)
            if seen.timestamp_ms is not None:
                return seen
    return seen


def see(batch: RecordBatch, seen: Seen, *, is_aborted: bool, last_stable_offset: int) -> Seen:
    """Return the findings after examining the header of the next batch."""
    if is_empty(batch):
        return seen._replace(next_offset=batch.next_offset)
    if is_aborted:
        seen = seen._replace(next_offset=batch.next_offset)
        if seen.aborted_ms is not None:
            return seen
        return seen._replace(aborted_ms=_time_of(batch), aborted_at=batch.base_offset)
    seen = seen._replace(timestamp_ms=_time_of(batch), at_offset=batch.base_offset)
    if batch.is_transactional and batch.base_offset >= last_stable_offset:
        # The transaction may still abort: this batch is read again after its end.
        at = max(seen.next_offset, batch.base_offset)
        return seen._replace(next_offset=at, is_open=True)
    return seen._replace(next_offset=batch.next_offset)


def is_empty(batch: RecordBatch) -> bool:
    """Return whether a batch has no records that a Fetch returns to any client."""
    return batch.is_control or not batch.record_count


def _may_hold_nothing(batch: RecordBatch, offset: int) -> bool:
    """Return whether all records of a batch may be below an offset, as compaction leaves gaps."""
    return batch.base_offset < offset and batch.record_count <= batch.last_offset_delta


async def _look_inside(batch: RecordBatch, partition: Partition, offset: int, seen: Seen) -> Seen:
    """Return the findings after unpacking a batch from which records have been removed."""
    limits = partition.topic.config.decompression_limits
    try:
        record = await asyncio.to_thread(
            partial(first_record_at, batch, _ANY_TIME_MS, offset, limits)
        )
    except KgwError:
        return seen  # a Fetch returns this batch to clients, too, and they report its damage
    if record is None:
        return seen._replace(next_offset=batch.next_offset, timestamp_ms=None, is_open=False)
    return seen._replace(timestamp_ms=record.timestamp_ms, at_offset=record.offset)


def _compacted_end(log: PartitionLog) -> int:
    return log.compacted_end if isinstance(log, Segmented) else 0


def _time_of(batch: RecordBatch) -> int:
    """Return the time of a batch's first record, or its maximum timestamp if it has no other."""
    if batch.attributes & _NOT_ITS_FIRST_TIME or batch.base_timestamp_ms == NO_TIMESTAMP_MS:
        return batch.max_timestamp_ms
    return batch.base_timestamp_ms
