"""Reading a log from the disk: any thread, nothing unverified ever leaves.

A batch is served when the checksum of its header in the side file and its own CRC both match.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from kgw.backend.base import ReadResult
from kgw.errors import CorruptionError
from kgw.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    RecordBatch,
    read_batch,
    read_header,
)
from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.backend.embedded.log import SegmentedLog
    from kgw.backend.embedded.segment import Segment
    from kgw.backend.embedded.side import SideEntry

_FIRST_ENTRIES: Final = 32
_MOST_ENTRIES: Final = 2048
_REPLAY_BYTES: Final = 1 << 20


def read(
    log: SegmentedLog, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
) -> ReadResult:
    """Read as `PartitionLog.read`.

    Raises CorruptionError, OSError, and SideFileDamagedError when that must be rebuilt first.
    """
    damage = log.damage_at(offset)
    if damage is not None:
        raise CorruptionError(
            f"partition {log.key}: offsets {damage.start_offset} to {damage.end_offset - 1} "
            "are damaged"
        )
    segments = log.segments
    number = max(bisect_right(segments, offset, key=lambda one: one.base_offset) - 1, 0)
    for segment in segments[number:]:
        if segment.base_offset >= upper_bound:
            break
        entries = _entries_for(segment, offset, max_bytes, upper_bound, at_least_one=at_least_one)
        if entries is None:
            continue
        if not entries:
            break
        result = _read_verified(log, segment, entries, offset, upper_bound)
        if result is not None:
            return result
    return ReadResult([], 0, offset)


def _entries_for(
    segment: Segment, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool
) -> list[SideEntry] | None:
    """Return the entries of the batches to be read; None when the segment ends before `offset`."""
    index = segment.find_offset(offset)
    chosen: list[SideEntry] = []
    size_bytes = 0
    count = _FIRST_ENTRIES
    while True:
        entries = segment.read_entries(index, count)
        for number, entry in enumerate(entries):
            if entry.base_offset >= upper_bound:
                return chosen
            if not chosen and number == 0 and entry.base_offset < offset:
                following = entries[1] if len(entries) > 1 else None
                if following is None and _ends_before(segment, entry, offset):
                    return None
            size_bytes += entry.size_bytes
            if size_bytes > max_bytes and (chosen or not at_least_one):
                return chosen
            chosen.append(entry)
        if len(entries) < count:
            return chosen or None
        index += len(entries)
        count = min(count * 4, _MOST_ENTRIES)


def _ends_before(segment: Segment, entry: SideEntry, offset: int) -> bool:
    """Whether the last batch of a segment lies wholly below `offset`; a damaged one does not."""
    header = segment.read_bytes(entry.position, HEADER_BYTES)
    if len(header) < HEADER_BYTES or crc32c(header) != entry.header_crc:
        return False
    return read_header(header).next_offset <= offset


def _read_verified(
    log: SegmentedLog,
    segment: Segment,
    entries: list[SideEntry],
    offset: int,
    upper_bound: int,
) -> ReadResult | None:
    """Return whole verified batches up to the first damaged one; None when all end by `offset`."""
    start = entries[0].position
    data = memoryview(segment.read_bytes(start, entries[-1].end_position - start))
    verified = 0
    skipped = 0
    next_offset = offset
    for entry in entries:
        at = entry.position - start
        view = data[at : at + entry.size_bytes]
        end_offset = _verify(view, entry)
        if end_offset is None:
            if verified > skipped:
                break
            raise CorruptionError(
                f"partition {log.key}: the batch at offset {entry.base_offset} "
                f"({segment.log_path}, position {entry.position}) is damaged"
            )
        if end_offset > upper_bound:
            if verified == skipped:
                return ReadResult([], 0, offset)
            break
        verified = at + entry.size_bytes
        if end_offset <= offset:
            skipped = verified
        else:
            next_offset = end_offset
    if verified == skipped:
        return None
    return ReadResult([data[skipped:verified]], verified - skipped, next_offset)


def _verify(view: memoryview, entry: SideEntry) -> int | None:
    """Return the offset after a batch, None when a byte of it is wrong."""
    if len(view) != entry.size_bytes or len(view) < HEADER_BYTES:
        return None
    header = view[:HEADER_BYTES]
    if crc32c(header) != entry.header_crc:
        return None
    fields = HEADER.unpack(header)
    if crc32c(view[CRC_START:]) != fields[4]:
        return None
    return int(fields[0]) + int(fields[6]) + 1


def find_by_time(log: SegmentedLog, timestamp_ms: int, upper_bound: int) -> RecordBatch | None:
    """Find as `PartitionLog.find_by_time`. Raises as `read`."""
    log_start_offset = log.offsets.log_start_offset
    for segment in log.segments:
        if segment.base_offset >= upper_bound:
            return None
        count = segment.entry_count
        index = segment.find_timestamp(timestamp_ms, count)
        for entry in _entries_from(segment, index):
            if entry.base_offset >= upper_bound:
                return None
            # The first one has it for certain; those after it have to be looked at, which happens
            # only where records below the log start were the newest.
            batch = _read_batch(log, segment, entry)
            if batch.next_offset > log_start_offset and batch.max_timestamp_ms >= timestamp_ms:
                return batch
    return None


def find_max_timestamp(log: SegmentedLog, upper_bound: int) -> RecordBatch | None:
    """Find as `PartitionLog.find_max_timestamp`. Raises as `read`."""
    best: tuple[Segment, SideEntry] | None = None
    best_timestamp_ms = 0
    log_start_offset = log.offsets.log_start_offset
    for segment in log.segments:
        if segment.base_offset >= upper_bound:
            break
        count = segment.entry_count
        if count == 0:
            continue
        last = segment.read_entry(segment.find_offset(upper_bound - 1))
        if best is not None and last.largest_timestamp_ms <= best_timestamp_ms:
            continue
        entry = segment.read_entry(segment.find_timestamp(last.largest_timestamp_ms, count))
        if entry.base_offset < log_start_offset:
            found = _newest_from(log, segment, upper_bound)
            if found is None:
                continue
            entry, timestamp_ms = found
            if best is not None and timestamp_ms <= best_timestamp_ms:
                continue
            best, best_timestamp_ms = (segment, entry), timestamp_ms
        else:
            best, best_timestamp_ms = (segment, entry), last.largest_timestamp_ms
    return None if best is None else _read_batch(log, *best)


def _newest_from(
    log: SegmentedLog, segment: Segment, upper_bound: int
) -> tuple[SideEntry, int] | None:
    """Return the batch with the greatest timestamp among those that are not below the log start."""
    best: tuple[SideEntry, int] | None = None
    log_start_offset = log.offsets.log_start_offset
    for entry in _entries_from(segment, segment.find_offset(log_start_offset)):
        if entry.base_offset >= upper_bound:
            break
        batch = _read_batch(log, segment, entry)
        if batch.next_offset <= log_start_offset:
            continue
        if best is None or batch.max_timestamp_ms > best[1]:
            best = (entry, batch.max_timestamp_ms)
    return best


def _entries_from(segment: Segment, index: int) -> Iterator[SideEntry]:
    while True:
        entries = segment.read_entries(index, _FIRST_ENTRIES)
        yield from entries
        if len(entries) < _FIRST_ENTRIES:
            return
        index += len(entries)


def _read_batch(log: SegmentedLog, segment: Segment, entry: SideEntry) -> RecordBatch:
    view = memoryview(segment.read_bytes(entry.position, entry.size_bytes))
    if _verify(view, entry) is None:
        raise CorruptionError(f"partition {log.key}: the batch at {entry.base_offset} is damaged")
    return read_batch(view)


def replay(log: SegmentedLog, from_offset: int, upper_bound: int) -> tuple[list[RecordBatch], int]:
    """Return the next batches from the one that holds `from_offset`, and where to go on.

    Data batches come as headers alone. Damaged ones are left out: replay rebuilds what can still be
    known. An empty list is the end. Raises OSError, SideFileDamagedError.
    """
    damage = log.damage_at(from_offset)
    while damage is not None:
        from_offset = damage.end_offset
        damage = log.damage_at(from_offset)
    segments = log.segments
    number = max(bisect_right(segments, from_offset, key=lambda one: one.base_offset) - 1, 0)
    for segment in segments[number:]:
        if segment.base_offset >= upper_bound:
            break
        entries = _entries_for(segment, from_offset, _REPLAY_BYTES, upper_bound, at_least_one=True)
        if not entries:
            continue
        start = entries[0].position
        data = memoryview(segment.read_bytes(start, entries[-1].end_position - start))
        batches: list[RecordBatch] = []
        next_offset = entries[-1].base_offset + 1
        for entry in entries:
            at = entry.position - start
            view = data[at : at + entry.size_bytes]
            end_offset = _verify(view, entry)
            if end_offset is None or end_offset <= from_offset:
                continue
            next_offset = end_offset
            header = read_header(bytes(view[:HEADER_BYTES]))
            batches.append(read_batch(bytes(view)) if header.is_control else header)
        if batches or next_offset > from_offset:
            if not batches:
                return replay(log, next_offset, upper_bound)
            return batches, next_offset
    return [], from_offset
