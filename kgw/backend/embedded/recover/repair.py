"""Reads a whole segment, cuts off a torn tail and corrects the side file."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.durability import sync_directory, sync_file
from kgw.backend.embedded.log.side import ENTRY_BYTES, decode_entry
from kgw.backend.embedded.recover.scan import SegmentScan, SegmentScanner
from kgw.offsets.manager import MAX_OFFSET
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import EpochStart
    from kgw.backend.embedded.files.fs import File
    from kgw.backend.embedded.files.pool import PooledFile
    from kgw.backend.embedded.log.data_directory import DataDirectory
    from kgw.backend.embedded.log.segment import Segment

_COPY_BYTES: Final = 4 << 20


def scan_and_repair(
    directory: DataDirectory,
    segment: Segment,
    *,
    epochs: Sequence[EpochStart],
    proven_end: int,
    segment_end: int | None,
    position: int = 0,
    next_offset: int | None = None,
    side_index: int = 0,
    largest_timestamp_ms: int = NO_TIMESTAMP_MS,
    rewrite_from: int | None = None,
    vouch_below: int = MAX_OFFSET,
) -> SegmentScan:
    """Scan a segment from a batch boundary on, cut off a torn tail and correct the side file.

    The scan begins at `position`, where a batch with `next_offset` is expected and which has
    `side_index` entries before it; or at the start of the segment. With `rewrite_from`, batches
    from that offset on are written again and the file is synced. At most the directory's
    `scanned_entries` are in memory at a time. Raises OSError, SyncFailedError.
    """
    pool = directory.pool
    log_file = pool.acquire(segment.log_path)
    side_file = pool.acquire(segment.side_path, create=True)
    mending = _SideMending(directory, segment, log_file, side_file.file, side_index, rewrite_from)
    try:
        scanner = SegmentScanner(
            log_file.file,
            side_file.file,
            side_index,
            epochs,
            proven_end,
            mending,
            vouch_below=vouch_below,
            piece_entries=directory.options.scanned_entries,
        )
        found = scanner.scan(
            position,
            segment.base_offset if next_offset is None else next_offset,
            largest_timestamp_ms,
            segment_end=segment_end,
        )
        if found.is_torn:
            partition = segment.log_path.rsplit("/", 2)[1]
            directory.quarantine.keep(partition, segment.stem, log_file.file, found.end_position)
            log_file.file.truncate(found.end_position)
        mending.finish(scanner.entries, found.end_position)
    finally:
        mending.close()
        pool.release(side_file)
        pool.release(log_file)
    with pool.loading:
        # Set these under the lock: otherwise a reader of the old side file could overwrite them.
        segment.size_bytes = found.end_position
        segment.largest_timestamp_ms = found.largest_timestamp_ms
        segment.side = (found.entry_count, b"")
    segment.index_builder = None
    segment.side_is_dirty = True
    return found


class _SideMending:
    """Corrects a side file in steps, while its segment is scanned.

    Correct entries are not written again, and missing ones are added. If entries must move to other
    positions, a new file is written beside the old file. The scan still needs the old file, and
    after a crash the next scan needs it, too.
    """

    def __init__(
        self,
        directory: DataDirectory,
        segment: Segment,
        log_file: PooledFile,
        old: File,
        index: int,
        rewrite_from: int | None,
    ) -> None:
        self._fs = directory.fs
        self._pool = directory.pool
        self._segment = segment
        self._log_file = log_file
        self._old = old
        self._old_bytes = old.size()
        self._new: File | None = None
        self._is_placed = False
        self._new_path = segment.stem_path + layout.NEW_SIDE_SUFFIX
        self._position = index * ENTRY_BYTES
        self._rewrite_from = rewrite_from
        self._rewrite_position: int | None = None

    def take(self, entries: bytearray, end_position: int) -> None:
        """Write the next entries, once their batches are durable."""
        if self._make_durable(entries, end_position):
            self._pool.sync(self._log_file)
        if self._new is None and not self._fits(entries, end_position):
            self._new = self._begin_anew()
        self._write(entries)

    def finish(self, entries: bytearray, end_position: int) -> None:
        """Write the last entries, and cut the file after them."""
        self._make_durable(entries, end_position)
        if self._rewrite_from is not None:
            self._pool.sync(self._log_file)
        if self._new is None and not self._fits(entries, end_position):
            self._new = self._begin_anew()
        self._write(entries)
        if self._new is not None:
            self._replace(self._new)
        elif self._old_bytes > self._position:
            self._old.truncate(self._position)

    def close(self) -> None:
        """Close a new file; remove it if it has not replaced the old one."""
        if self._new is not None:
            self._new.close()
            if not self._is_placed:
                self._remove_new()

    def _make_durable(self, entries: bytearray, end_position: int) -> bool:
        """Write batches that may not be durable again; return whether there were any."""
        start = self._rewrite_position
        if start is None and self._rewrite_from is not None:
            start = _position_of(entries, self._rewrite_from)
        if start is None:
            return False
        _rewrite(self._log_file.file, start, end_position)
        self._rewrite_position = end_position
        return True

    def _fits(self, entries: bytearray, end_position: int) -> bool:
        """Return whether writing entries in place keeps the old entries that are needed.

        The scan needs old entries of later batches to get past damage. And after a crash, the file
        must have each batch's entry exactly once.
        """
        old = self._old.pread(len(entries), self._position)
        if len(old) < len(entries) and entries.startswith(old):
            return True
        if old == entries:
            return True
        places = range(0, len(old) - ENTRY_BYTES + 1, ENTRY_BYTES)
        known = (decode_entry(old, place) for place in places)
        if any(one is not None and one.position >= end_position for one in known):
            return False
        end = self._position + len(entries)
        if self._old_bytes <= end:
            return True
        following = decode_entry(self._old.pread(ENTRY_BYTES, end))
        return following is not None and following.position == end_position

    def _begin_anew(self) -> File:
        """Begin a new file with a copy of the entries up to here, which are correct."""
        file = self._fs.open(self._new_path, create=True)
        try:
            file.truncate(0)
            for start in range(0, self._position, _COPY_BYTES):
                file.pwrite(
                    (self._old.pread(min(_COPY_BYTES, self._position - start), start),), start
                )
        except BaseException:
            file.close()
            self._remove_new()
            raise
        return file

    def _remove_new(self) -> None:
        with suppress(OSError):
            self._fs.unlink(self._new_path)

    def _write(self, entries: bytearray) -> None:
        file = self._new or self._old
        if file.pread(len(entries), self._position) != entries:
            file.pwrite((entries,), self._position)
        self._position += len(entries)
        if self._new is None:
            self._old_bytes = max(self._old_bytes, self._position)

    def _replace(self, file: File) -> None:
        sync_file(file)
        if self._segment.is_removed:
            self._fs.unlink(self._new_path)
            return
        self._fs.rename(self._new_path, self._segment.side_path)
        self._is_placed = True
        self._pool.forget(self._segment.side_path)
        sync_directory(self._fs, self._segment.stem_path.rsplit("/", 1)[0])


def _position_of(entries: bytearray, offset: int) -> int | None:
    """Return the position of the first batch at or above `offset`, or None."""
    count = len(entries) // ENTRY_BYTES

    def base_offset(number: int) -> int:
        entry = decode_entry(entries, number * ENTRY_BYTES)
        return -1 if entry is None else entry.base_offset

    number = bisect_left(range(count), offset, key=base_offset)
    entry = decode_entry(entries, number * ENTRY_BYTES) if number < count else None
    return None if entry is None else entry.position


def _rewrite(file: File, start: int, end: int) -> None:
    while start < end:
        data = file.pread(min(_COPY_BYTES, end - start), start)
        if not data:
            return
        file.pwrite((data,), start)
        start += len(data)
