"""Finds batches by time, describes segments, and replays batches. For any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.backend.base import SegmentInfo
from kgw.backend.embedded.read.reading import is_header, read, segments_from, verify
from kgw.errors import CorruptionError
from kgw.records.batch import HEADER_BYTES, RecordBatch, read_batch, read_header, split_batches
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.backend.base import BatchLook, FoundT
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.log.side import SideEntry

_NO_TIME: Final = -(1 << 63)
_FIRST_ENTRIES: Final = 32
_MOST_ENTRIES: Final = 2048
_REPLAY_BYTES: Final = 1 << 20


def describe_segments(log: SegmentedLog) -> list[SegmentInfo]:
    """Return the segments as `Segmented.segments`. Raises OSError, SideFileDamagedError."""
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
            # An earlier process created the segment. Use its first record's timestamp as the
            # creation time, unless that is in the future.
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
    look: BatchLook[FoundT],
) -> FoundT | None:
    """Find a batch as `PartitionLog.find_by_time` does. Raises the errors of `read`."""
    for segment in segments_from(log, lower_bound):
        if segment.base_offset >= upper_bound:
            return None
        count = segment.entry_count
        # The side file is loaded, so the segment's largest timestamp is known without a read. A
        # search in each of a thousand segments would need ten thousand reads.
        if segment.largest_timestamp_ms < timestamp_ms:
            continue
        index = max(segment.find_timestamp(timestamp_ms, count), segment.find_offset(lower_bound))
        # The result is empty if a group failed after its entries were counted. No reader reaches
        # that group.
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


def _reaches(
    log: SegmentedLog,
    segment: Segment,
    entry: SideEntry,
    before_ms: int,
    timestamp_ms: int,
    lower_bound: int,
) -> bool:
    """Return whether a batch ends above the lower bound and reaches the timestamp.

    A side entry has the largest timestamp of its batch and all batches before. If this is larger
    than in the previous entry, it is the batch's own. Otherwise the header must be read, because
    the timestamp may be that of a batch below the log start. The header must also be read if the
    batch may end below the lower bound.
    """
    largest_ms = entry.largest_timestamp_ms
    if entry.base_offset >= lower_bound and largest_ms > before_ms:
        return largest_ms >= timestamp_ms
    header = _read_header(log, segment, entry)
    return header.next_offset > lower_bound and header.max_timestamp_ms >= timestamp_ms


def find_max_timestamp(log: SegmentedLog, lower_bound: int, upper_bound: int) -> RecordBatch | None:
    """Find a batch as `PartitionLog.find_max_timestamp` does. Raises the errors of `read`."""
    best: tuple[Segment, SideEntry] | None = None
    best_ms = 0
    for segment in segments_from(log, lower_bound):
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
    """Return the batch with the greatest timestamp that ends above the lower bound."""
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
    """Return a verified header without its records. Raises CorruptionError."""
    header = memoryview(segment.read_bytes(entry.position, HEADER_BYTES))
    if not is_header(header, entry):
        raise CorruptionError(f"partition {log.key}: the batch at {entry.base_offset} is damaged")
    return read_header(header)


def _read_batch(log: SegmentedLog, segment: Segment, entry: SideEntry) -> RecordBatch:
    view = memoryview(segment.read_bytes(entry.position, entry.size_bytes))
    if verify(view, entry) is None:
        raise CorruptionError(f"partition {log.key}: the batch at {entry.base_offset} is damaged")
    return read_batch(view)


def replay(log: SegmentedLog, from_offset: int, upper_bound: int) -> tuple[list[RecordBatch], int]:
    """Return batches from the one with `from_offset` on, and the next offset.

    Data batches have only their header. Damaged batches are skipped, because replay rebuilds as
    much of the state as possible. At the end of the log, the list is empty. Raises OSError,
    SideFileDamagedError.
    """
    batches: list[RecordBatch] = []
    while not batches and from_offset < upper_bound:
        try:
            result = read(log, from_offset, _REPLAY_BYTES, upper_bound)
        except CorruptionError as error:
            from_offset = error.end_offset if error.end_offset is not None else upper_bound
            continue
        if result.next_offset == from_offset:
            break
        batches = [
            read_batch(bytes(batch.buffer))
            if batch.is_control
            else read_header(bytes(batch.buffer[:HEADER_BYTES]))
            for buffer in result.buffers
            for batch in split_batches(buffer)
        ]
        from_offset = result.next_offset
    return batches, from_offset
