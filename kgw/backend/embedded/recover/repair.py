"""Reading one segment through and putting it in order: its torn tail, and its side file."""

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
    """Read a segment from a batch boundary on; cut a torn tail; bring the side file into line.

    It begins at `position`, where `next_offset` is expected and `side_index` entries are behind it,
    or else with the segment.
    With `rewrite_from`, batches from that offset on are written again and the file is synced.
    Holds the directory's `scanned_entries` at a time. Raises OSError, SyncFailedError.
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
        # Or a reader that has just looked at the file could put in what it has found.
        segment.size_bytes = found.end_position
        segment.largest_timestamp_ms = found.largest_timestamp_ms
        segment.side = (found.entry_count, b"")
    segment.index_builder = None
    segment.side_is_dirty = True
    return found


class _SideMending:
    """Brings a side file into line with its segment, piece by piece, while that is scanned.

    What is right is left alone, and what is missing is added. Where the entries come to lie
    elsewhere than in the old file, a new one is made beside it: the scan goes on by the old one,
    and so does the next one if there is a crash meanwhile.
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
        """Put the next entries in place, after the batches that they call durable."""
        if self._make_durable(entries, end_position):
            self._pool.sync(self._log_file)
        if self._new is None and not self._fits(entries, end_position):
            self._new = self._begin_anew()
        self._write(entries)

    def finish(self, entries: bytearray, end_position: int) -> None:
        """Put the last entries in place, and end the file behind them."""
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
        """Let go of a new file, and remove one that was not put in place."""
        if self._new is not None:
            self._new.close()
            if not self._is_placed:
                self._remove_new()

    def _make_durable(self, entries: bytearray, end_position: int) -> bool:
        """Write again what nothing proves to be durable; whether there was any."""
        start = self._rewrite_position
        if start is None and self._rewrite_from is not None:
            start = _position_of(entries, self._rewrite_from)
        if start is None:
            return False
        _rewrite(self._log_file.file, start, end_position)
        self._rewrite_position = end_position
        return True

    def _fits(self, entries: bytearray, end_position: int) -> bool:
        """Whether entries can be put where they belong without a loss of old ones that count yet.

        Entries of batches behind these lead the scan past damage. And a crash must leave the entry
        of each batch there once: not twice, and not missing.
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
        """Begin a new file with what has been put in place so far."""
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
    """Return where the first of the batches at or above an offset lies."""
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
