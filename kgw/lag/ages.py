"""How old the first unread record is: from memory where it can be, from a few reads otherwise.

Unread is what a group would still be given. Markers are given to nobody, batches that compaction
has emptied have nothing to give, and aborted records are given only to readers that ask for
uncommitted ones. A record whose transaction is open counts: it is given once that has committed.
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
"""For each sample: a group that is days behind costs one read, and none until it moves."""
REMEMBERED = 20_000

HOT_LOOKS_A_PLACE = 10
COLD_READS_A_PLACE = 5
"""Where a group stands before many batches that it is not given, the next sample goes on."""

_ONE_BATCH_BYTES = 1
_MORE_BYTES = 256 << 10
"""Of each read behind the first: batches that a group is not given come in runs."""
_NOT_ITS_FIRST_TIME = DELETE_HORIZON_FLAG | LOG_APPEND_TIME_FLAG
_ANY_TIME_MS = -(1 << 63)


class Seen(NamedTuple):
    """What is known of the records at and behind an offset."""

    next_offset: int
    """What lies below it need not be looked at again."""
    timestamp_ms: int | None = None
    """Of the first record that every group is given; None as long as none was found."""
    at_offset: int = 0
    """Where that is, or where its batch begins."""
    aborted_ms: int | None = None
    """Of the first aborted record before that one; None when there is none."""
    aborted_at: int = 0
    """Where that is, as `at_offset`."""
    is_open: bool = False
    """Whether the transaction of the record that was found was open then."""
    compacted_end: int = 0
    """Where the compacted part of the log ended then."""


class Unread(NamedTuple):
    """The first record that a group would be given."""

    age_ms: int | None
    """0 when there is none, None when it is not known."""
    offset: int | None = None
    """Where it is, or where its batch begins; None when there is none or it is not known."""


_NOTHING = Unread(0)
_UNKNOWN = Unread(None)


class RecordAges:
    """Timestamps of first unread records, remembered for as long as groups stand still.

    A record's time is its batch's first one, so that an age is right to within the time that a
    producer took to fill the batch.
    """

    __slots__ = ("_cold_left", "_hot_left", "_known", "_limit", "failures")

    def __init__(self, limit: int = REMEMBERED) -> None:
        """Remember what was found at so many places."""
        self._limit = limit
        self._known: dict[tuple[PartitionKey, int], Seen] = {}
        self._hot_left = HOT_LOOKS
        self._cold_left = COLD_READS
        self.failures = 0
        """Reads that failed, since the beginning."""

    def begin(self) -> None:
        """Allow as many look-ups as a sample may have."""
        self._hot_left = HOT_LOOKS
        self._cold_left = COLD_READS

    async def unread(
        self, partition: Partition, offset: int, now_ms: int, is_given_aborted: Callable[[], bool]
    ) -> Unread:
        """Return the first record at or behind an offset that a group is given.

        Its age is unknown when it has no time, a read has failed, or enough was read for one
        sample. `is_given_aborted` is asked only where it matters.
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
                    # Where nothing was found out, something would be forgotten for nothing.
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
        """Return what is still known; at least where to begin."""
        offset = key[1]
        compacted_end = _compacted_end(partition.log)
        seen = self._known.get(key)
        if seen is None or offset < compacted_end != seen.compacted_end:
            # What was found may have been removed since.
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
        """Look on from where it is known, first in memory. Raises KgwError."""
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
    """Return what is known once batches that were read have been looked at."""
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
    """Return what is known once the header of the next batch has been looked at. Pure."""
    if is_empty(batch):
        return seen._replace(next_offset=batch.next_offset)
    if is_aborted:
        seen = seen._replace(next_offset=batch.next_offset)
        if seen.aborted_ms is not None:
            return seen
        return seen._replace(aborted_ms=_time_of(batch), aborted_at=batch.base_offset)
    seen = seen._replace(timestamp_ms=_time_of(batch), at_offset=batch.base_offset)
    if batch.is_transactional and batch.base_offset >= last_stable_offset:
        # It may yet be aborted: it is looked at again then.
        at = max(seen.next_offset, batch.base_offset)
        return seen._replace(next_offset=at, is_open=True)
    return seen._replace(next_offset=batch.next_offset)


def is_empty(batch: RecordBatch) -> bool:
    """Whether nobody is given anything of a batch."""
    return batch.is_control or not batch.record_count


def _may_hold_nothing(batch: RecordBatch, offset: int) -> bool:
    """Whether all that a batch holds may lie below an offset: compaction leaves gaps inside."""
    return batch.base_offset < offset and batch.record_count <= batch.last_offset_delta


async def _look_inside(batch: RecordBatch, partition: Partition, offset: int, seen: Seen) -> Seen:
    """Return what is known once a batch was unpacked of which records have been removed."""
    limits = partition.topic.config.decompression_limits
    try:
        record = await asyncio.to_thread(
            partial(first_record_at, batch, _ANY_TIME_MS, offset, limits)
        )
    except KgwError:
        return seen  # a client is given it all the same, and has to say what is wrong with it
    if record is None:
        return seen._replace(next_offset=batch.next_offset, timestamp_ms=None, is_open=False)
    return seen._replace(timestamp_ms=record.timestamp_ms, at_offset=record.offset)


def _compacted_end(log: PartitionLog) -> int:
    return log.compacted_end if isinstance(log, Segmented) else 0


def _time_of(batch: RecordBatch) -> int:
    """Return the time of a batch's first record, or of its latest where only that is known."""
    if batch.attributes & _NOT_ITS_FIRST_TIME or batch.base_timestamp_ms == NO_TIMESTAMP_MS:
        return batch.max_timestamp_ms
    return batch.base_timestamp_ms
