"""Reading one segment through and putting it in order: its torn tail, and its side file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.backend.embedded.scan import SegmentScan, SegmentScanner
from kgw.backend.embedded.side import ENTRY_BYTES, decode_entry
from kgw.offsets.manager import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.fs import File
    from kgw.backend.embedded.layout import EpochStart
    from kgw.backend.embedded.log import DataDirectory
    from kgw.backend.embedded.segment import Segment

_COPY_BYTES: Final = 4 << 20


def scan_and_repair(
    directory: DataDirectory,
    segment: Segment,
    *,
    epochs: Sequence[EpochStart],
    proven_end: int,
    position: int,
    next_offset: int,
    side_index: int,
    largest_timestamp_ms: int,
    segment_end: int | None,
    rewrite_from: int | None,
    vouch_below: int = MAX_OFFSET,
) -> tuple[SegmentScan, SegmentScanner]:
    """Read a segment from a batch boundary on; cut a torn tail; bring the side file into line.

    With `rewrite_from`, batches from that offset on are written again and the file is synced.
    Raises OSError, SyncFailedError.
    """
    pool = directory.pool
    log_file = pool.acquire(segment.log_path)
    side_file = pool.acquire(segment.side_path, create=True)
    try:
        scanner = SegmentScanner(
            log_file.file,
            side_file.file,
            side_index,
            epochs,
            proven_end,
            vouch_below=vouch_below,
        )
        found = scanner.scan(position, next_offset, largest_timestamp_ms, segment_end=segment_end)
        if found.is_torn:
            partition = segment.log_path.rsplit("/", 2)[1]
            directory.quarantine.keep(partition, segment.stem, log_file.file, found.end_position)
            log_file.file.truncate(found.end_position)
        if rewrite_from is not None:
            start = _position_of(scanner.entries, rewrite_from)
            if start is not None:
                _rewrite(log_file.file, start, found.end_position)
            pool.sync(log_file)
        _replace_side(side_file.file, side_index, scanner.entries)
    finally:
        pool.release(side_file)
        pool.release(log_file)
    with pool.loading:
        # Or a reader that has just looked at the file could put in what it has found.
        segment.size_bytes = found.end_position
        segment.largest_timestamp_ms = found.largest_timestamp_ms
        segment.side = (found.entry_count, b"")
    segment.index_builder = None
    segment.side_is_dirty = True
    return found, scanner


def _position_of(entries: bytearray, offset: int) -> int | None:
    for number in range(0, len(entries), ENTRY_BYTES):
        entry = decode_entry(entries, number)
        if entry is not None and entry.base_offset >= offset:
            return entry.position
    return None


def _rewrite(file: File, start: int, end: int) -> None:
    while start < end:
        data = file.pread(min(_COPY_BYTES, end - start), start)
        if not data:
            return
        file.pwrite((data,), start)
        start += len(data)


def _replace_side(file: File, index: int, entries: bytearray) -> None:
    """Write entries from number `index` on where they differ, and end the file behind them."""
    start = index * ENTRY_BYTES
    end = start + len(entries)
    if file.pread(len(entries) + 1, start) != entries:
        file.pwrite((entries,), start)
    if file.size() != end:
        file.truncate(end)
