"""Reading a log from the disk: any thread, nothing unverified ever leaves.

A batch is served when the checksum of its header in the side file and its own CRC both match.
"""

from __future__ import annotations

from bisect import bisect_right
from time import thread_time
from typing import TYPE_CHECKING, Final

from kgw.backend.base import ReadResult, SegmentInfo
from kgw.backend.embedded.files.read_buffers import BUFFER_BYTES, ReadBuffers
from kgw.backend.embedded.read.cached_reading import Place, is_slow
from kgw.errors import CorruptionError
from kgw.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    RecordBatch,
    read_batch,
    read_header,
)
from kgw.records.crc import GIVE_UP_GIL, KEEP_GIL, crc32c
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kgw.backend.base import FoundT
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.log.side import SideEntry
    from kgw.types import Buffer

_NO_TIME: Final = -(1 << 63)
_FIRST_ENTRIES: Final = 32
_MOST_ENTRIES: Final = 2048
_REPLAY_BYTES: Final = 1 << 20


def read(
    log: SegmentedLog, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
) -> ReadResult:
    """Read as `read_on`, for those who go on nowhere, into memory of its own."""
    return read_on(log, ReadBuffers(0), offset, max_bytes, upper_bound, at_least_one=at_least_one)[
        0
    ]


def read_on(
    log: SegmentedLog,
    buffers: ReadBuffers,
    offset: int,
    max_bytes: int,
    upper_bound: int,
    *,
    at_least_one: bool = True,
) -> tuple[ReadResult, Place | None]:
    """Read as `PartitionLog.read`; return also where the batch behind begins, when that is known.

    Raises CorruptionError, OSError, and SideFileDamagedError when that must be rebuilt first.
    """
    damage = log.damage_at(offset)
    if damage is not None:
        raise CorruptionError(
            f"partition {log.key}: offsets {damage.start_offset} to {damage.end_offset - 1} "
            "are damaged",
            damage.end_offset,
        )
    segments = log.segments
    number = max(bisect_right(segments, offset, key=lambda one: one.base_offset) - 1, 0)
    for segment in segments[number:]:
        if segment.base_offset >= upper_bound:
            break
        found = _entries_for(segment, offset, max_bytes, upper_bound, at_least_one=at_least_one)
        if found is None:
            continue
        index, entries = found
        if not entries:
            return ReadResult([], 0, offset), None
        result = _read_verified(log, segment, buffers, index, entries, offset, upper_bound)
        if result is not None:
            return result
    return _across_gap(log, offset, upper_bound), None


def _across_gap(log: SegmentedLog, offset: int, upper_bound: int) -> ReadResult:
    """Return empty batches over the gap in which a log ends, nothing anywhere else.

    Whoever reads up to the high watermark would otherwise wait for the next record to get there.
    """
    fillers: list[Buffer] = []
    next_offset = offset
    for gap in log.gaps:
        if gap.start_offset <= offset < gap.end_offset <= upper_bound:
            # An unclean stop comes before it: nothing that a start should wait for.
            from kgw.records.cleaning import MAX_FILLER_OFFSETS, make_filler

            while next_offset < gap.end_offset:
                end_offset = min(gap.end_offset, next_offset + MAX_FILLER_OFFSETS)
                filler = make_filler(next_offset, end_offset, log.epoch_at(next_offset))
                fillers.append(filler.buffer)
                next_offset = end_offset
    return ReadResult(fillers, sum(len(one) for one in fillers), next_offset)


def _entries_for(
    segment: Segment, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool
) -> tuple[int, list[SideEntry]] | None:
    """Return the entries of the batches to be read, and the number of the first.

    None when the segment ends before `offset`.
    """
    first = index = segment.find_offset(offset)
    chosen: list[SideEntry] = []
    size_bytes = 0
    count = _FIRST_ENTRIES
    while True:
        entries = segment.read_entries(index, count)
        for number, entry in enumerate(entries):
            if entry.base_offset >= upper_bound:
                return first, chosen
            if not chosen and number == 0 and entry.base_offset < offset:
                following = entries[1] if len(entries) > 1 else None
                if following is None and _ends_before(segment, entry, offset):
                    return None
            size_bytes += entry.size_bytes
            if size_bytes > max_bytes and (chosen or not at_least_one):
                return first, chosen
            chosen.append(entry)
        if len(entries) < count:
            return (first, chosen) if chosen else None
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
    buffers: ReadBuffers,
    index: int,
    entries: list[SideEntry],
    offset: int,
    upper_bound: int,
    *,
    is_again: bool = False,
) -> tuple[ReadResult, Place] | None:
    """Return whole verified batches up to the first damaged one; None when all end by `offset`.

    Never past the page cache when `is_again`.
    """
    start = entries[0].position
    size_bytes = entries[-1].end_position - start
    began_s = thread_time()
    if is_again:
        data, is_cold = memoryview(segment.read_bytes(start, size_bytes)), False
    else:
        data, is_cold = segment.read_shared(buffers, start, size_bytes)
    data = data.toreadonly()
    read_slowly = is_cold or is_slow(len(data), thread_time() - began_s)
    place = Place(segment, index, 0)
    verified = 0
    skipped = 0
    next_offset = offset
    for count, entry in enumerate(entries, 1):
        at = entry.position - start
        view = data[at : at + entry.size_bytes]
        end_offset = verify(view, entry)
        if end_offset is None:
            if verified > skipped:
                break
            if is_cold:
                # Not every file system is right about such reads beside writes to the same file.
                return _read_verified(
                    log, segment, buffers, index, entries, offset, upper_bound, is_again=True
                )
            raise CorruptionError(
                f"partition {log.key}: the batch at offset {entry.base_offset} "
                f"({segment.log_path}, position {entry.position}) is damaged",
                _end_of(log, segment, entry),
            )
        if end_offset > upper_bound:
            if verified == skipped:
                return ReadResult([], 0, offset), place
            break
        verified = at + entry.size_bytes
        place = Place(segment, index + count, count, read_slowly)
        if end_offset <= offset:
            skipped = verified
        else:
            next_offset = end_offset
    if verified == skipped:
        return None
    return ReadResult([data[skipped:verified]], verified - skipped, next_offset), place


def _end_of(log: SegmentedLog, segment: Segment, entry: SideEntry) -> int:
    """Return where the batch after a damaged one begins, as its own header cannot say."""
    following = segment.read_entries(segment.find_offset(entry.base_offset) + 1, 1)
    if following:
        return following[0].base_offset
    later = [one.base_offset for one in log.segments if one.base_offset > segment.base_offset]
    return later[0] if later else log.offsets.high_watermark


def verify(view: memoryview, entry: SideEntry) -> int | None:
    """Return the offset after a batch, None when a byte of it is wrong."""
    if len(view) != entry.size_bytes or len(view) < HEADER_BYTES:
        return None
    header = view[:HEADER_BYTES]
    if crc32c(header) != entry.header_crc:
        return None
    fields = HEADER.unpack(header)
    mode = KEEP_GIL if len(view) <= BUFFER_BYTES else GIVE_UP_GIL
    if crc32c(view[CRC_START:], 0, mode) != fields[4]:
        return None
    return int(fields[0]) + int(fields[6]) + 1


def describe_segments(log: SegmentedLog) -> list[SegmentInfo]:
    """Describe as `Segmented.segments`. Raises OSError, SideFileDamagedError."""
    segments = log.segments
    if not segments:
        return []
    ends = [*(segment.base_offset for segment in segments[1:]), log.written_end]
    return [
        _describe(log, segment, end_offset)
        for segment, end_offset in zip(segments, ends, strict=True)
    ]


def _describe(log: SegmentedLog, segment: Segment, end_offset: int) -> SegmentInfo:
    segment.load()
    begun_ms = NO_TIMESTAMP_MS
    if segment.size_bytes:
        if segment.begun_ms == NO_TIMESTAMP_MS:
            # It was begun in another life. Records tell when, unless they claim to come later.
            now_ms = log.directory.wall_ms()
            first_ms = segment.read_entry(0).largest_timestamp_ms
            segment.begun_ms = first_ms if 0 <= first_ms <= now_ms else now_ms
        begun_ms = segment.begun_ms
    return SegmentInfo(
        segment.base_offset,
        end_offset,
        segment.size_bytes,
        segment.largest_timestamp_ms,
        begun_ms,
    )


def find_by_time(
    log: SegmentedLog,
    timestamp_ms: int,
    lower_bound: int,
    upper_bound: int,
    look: Callable[[RecordBatch], FoundT | None],
) -> FoundT | None:
    """Find as `PartitionLog.find_by_time`. Raises as `read`."""
    segments = log.segments
    for segment in segments[_first_segment(segments, lower_bound) :]:
        if segment.base_offset >= upper_bound:
            return None
        count = segment.entry_count
        # The side file has been loaded by now, and with it the largest timestamp. It is at hand;
        # a thousand segments searched one by one would be ten thousand reads.
        if segment.largest_timestamp_ms < timestamp_ms:
            continue
        index = max(segment.find_timestamp(timestamp_ms, count), segment.find_offset(lower_bound))
        # None where a group has failed since it was counted: nobody may read that far.
        before = segment.read_entries(index - 1, 1) if index else []
        before_ms = before[0].largest_timestamp_ms if before else _NO_TIME
        for entry in _entries_from(segment, index):
            if entry.base_offset >= upper_bound:
                return None
            if _reaches(log, segment, entry, before_ms, timestamp_ms, lower_bound):
                found = look(_read_batch(log, segment, entry))
                if found is not None:
                    return found
            before_ms = entry.largest_timestamp_ms
    return None


def _first_segment(segments: Sequence[Segment], offset: int) -> int:
    return max(bisect_right(segments, offset, key=lambda one: one.base_offset) - 1, 0)


def _reaches(
    log: SegmentedLog,
    segment: Segment,
    entry: SideEntry,
    before_ms: int,
    timestamp_ms: int,
    lower_bound: int,
) -> bool:
    """Whether a batch ends above the bound and its max timestamp is at or past the one given.

    The entry has the largest timestamp up to here, which is the batch's own where it has grown.
    Only where it has not, or where the batch may end too early, its header is looked at: where what
    was largest lies below the log start, or turned out to be a header's claim.
    """
    largest_ms = entry.largest_timestamp_ms
    if entry.base_offset >= lower_bound and largest_ms > before_ms:
        return largest_ms >= timestamp_ms
    header = _read_header(log, segment, entry)
    return header.next_offset > lower_bound and header.max_timestamp_ms >= timestamp_ms


def find_max_timestamp(log: SegmentedLog, lower_bound: int, upper_bound: int) -> RecordBatch | None:
    """Find as `PartitionLog.find_max_timestamp`. Raises as `read`."""
    best: tuple[Segment, SideEntry] | None = None
    best_ms = 0
    segments = log.segments
    for segment in segments[_first_segment(segments, lower_bound) :]:
        if segment.base_offset >= upper_bound:
            break
        count = segment.entry_count
        if count == 0 or (best is not None and segment.largest_timestamp_ms <= best_ms):
            continue
        last = segment.read_entry(segment.find_offset(upper_bound - 1))
        if best is not None and last.largest_timestamp_ms <= best_ms:
            continue
        entry = segment.read_entry(segment.find_timestamp(last.largest_timestamp_ms, count))
        timestamp_ms = last.largest_timestamp_ms
        if entry.base_offset < lower_bound:
            found = _newest_from(log, segment, lower_bound, upper_bound)
            if found is None:
                continue
            entry, timestamp_ms = found
        if best is None or timestamp_ms > best_ms:
            best, best_ms = (segment, entry), timestamp_ms
    return None if best is None else _read_batch(log, *best)


def _newest_from(
    log: SegmentedLog, segment: Segment, lower_bound: int, upper_bound: int
) -> tuple[SideEntry, int] | None:
    """Return the batch with the greatest timestamp among those that end above the bound."""
    best: tuple[SideEntry, int] | None = None
    for entry in _entries_from(segment, segment.find_offset(lower_bound)):
        if entry.base_offset >= upper_bound:
            break
        header = _read_header(log, segment, entry)
        if header.next_offset <= lower_bound:
            continue
        if best is None or header.max_timestamp_ms > best[1]:
            best = (entry, header.max_timestamp_ms)
    return best


def _entries_from(segment: Segment, index: int) -> Iterator[SideEntry]:
    count = _FIRST_ENTRIES
    while True:
        entries = segment.read_entries(index, count)
        yield from entries
        if len(entries) < count:
            return
        index += count
        count = min(count * 4, _MOST_ENTRIES)


def _read_header(log: SegmentedLog, segment: Segment, entry: SideEntry) -> RecordBatch:
    """Return a verified header alone. Raises CorruptionError."""
    header = segment.read_bytes(entry.position, HEADER_BYTES)
    if len(header) < HEADER_BYTES or crc32c(header) != entry.header_crc:
        raise CorruptionError(f"partition {log.key}: the batch at {entry.base_offset} is damaged")
    return read_header(header)


def _read_batch(log: SegmentedLog, segment: Segment, entry: SideEntry) -> RecordBatch:
    view = memoryview(segment.read_bytes(entry.position, entry.size_bytes))
    if verify(view, entry) is None:
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
        found = _entries_for(segment, from_offset, _REPLAY_BYTES, upper_bound, at_least_one=True)
        if found is None or not found[1]:
            continue
        _, entries = found
        start = entries[0].position
        data = memoryview(segment.read_bytes(start, entries[-1].end_position - start))
        batches: list[RecordBatch] = []
        next_offset = entries[-1].base_offset + 1
        for entry in entries:
            at = entry.position - start
            view = data[at : at + entry.size_bytes]
            end_offset = verify(view, entry)
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
