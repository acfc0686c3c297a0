"""One segment: a file of batches in Kafka's layout, and its side file.

Written by one thread, the flusher, and read by several. What readers need of the side file is a
tuple that is replaced as a whole: how many entries the file holds, and those not in it yet.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.log.side import ENTRY_BYTES, SideEntry, decode_entry, encode_batches
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import LogSettings
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.files.pool import FilePool, PooledFile
    from kgw.backend.embedded.log.indexes import IndexBuilder
    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer

_SIDE_TAIL_BYTES: Final = 4096
"""Side entries are gathered up to a page before they are written: with many partitions a write for
each of them in each group costs more than the journal itself."""
_INDEX_ENTRY_BYTES: Final = 8
_PAGE_BYTES: Final = 4096


class SideFileDamagedError(Exception):
    """A side file does not say what a lookup needs; it must be rebuilt from its segment.

    Or the segment was removed while it was read: then there is nothing to rebuild, and whoever
    looks again finds what has come in its place. Or somebody was changing the file just then.
    """

    def __init__(self, segment: Segment, index: int = 0, count: int = 0) -> None:
        """Entries from `index` on are wrong; without a `count`, where the file ends."""
        super().__init__(segment.side_path)
        self.segment = segment
        self.index = index
        self.count = count


class SegmentMark:
    """How far a segment was written, to go back to when a group fails."""

    __slots__ = ("bytes_since_index", "index_count", "largest", "side", "size_bytes")

    def __init__(self, segment: Segment) -> None:
        self.size_bytes = segment.size_bytes
        self.side = segment.side
        self.largest = segment.largest_timestamp_ms
        self.index_count = segment.index_count
        self.bytes_since_index = segment.bytes_since_index


class Segment:
    """Batches from `base_offset` on."""

    def __init__(self, directory: str, base_offset: int, pool: FilePool) -> None:
        self.base_offset = base_offset
        self.stem = layout.segment_stem(base_offset)
        self.stem_path = f"{directory}/{self.stem}"
        self.log_path = self.stem_path + layout.LOG_SUFFIX
        self.pool = pool
        self.size_bytes = 0
        self.begun_ms = NO_TIMESTAMP_MS
        """Wall time of the first append; NO_TIMESTAMP_MS when there was none in this life."""
        self.side: tuple[int, bytes] | None = (0, b"")
        """Entries in the file and those behind them, in memory; None until the file is asked."""
        self.largest_timestamp_ms = NO_TIMESTAMP_MS
        self.index_count = 0
        self.index_builder: IndexBuilder | None = None
        """How far Kafka's indexes have been written; None when they must be begun anew."""
        self.bytes_since_index = 0
        self.side_is_dirty = False
        self.sent_bytes = 0
        """What the system has been asked to bring to the disk; a hint, and no mark of durability.
        """
        self.is_handed_on = False
        """Whether a thread is about to `write_back`: its queue does not grow with the segment."""
        self.is_removed = False
        self.may_hold_rest = False
        """Whether a write failed that may have left bytes behind `size_bytes`."""

    def __repr__(self) -> str:
        return f"<Segment {self.log_path} bytes={self.size_bytes}>"

    @property
    def side_path(self) -> str:
        return self.stem_path + layout.SIDE_SUFFIX

    # --- reading: any thread -----------------------------------------------------------------

    def load(self) -> tuple[int, bytes]:
        """Return how many side entries there are in the file, and the rest of them.

        Raises SideFileDamagedError when the file does not end where the segment ends.
        """
        side = self.side
        if side is not None:
            return side
        try:
            with self._acquire(self.side_path) as pooled:
                side_bytes = pooled.file.size()
                data = pooled.file.pread(ENTRY_BYTES, max(side_bytes - ENTRY_BYTES, 0))
        except FileNotFoundError:
            raise SideFileDamagedError(self) from None
        last = decode_entry(data)
        end_position = last.end_position if last is not None else 0
        is_damaged = bool(side_bytes % ENTRY_BYTES or (side_bytes and last is None))
        with self.pool.loading:
            # What the flusher has added in between is neither forgotten nor taken for damage.
            if self.side is None:
                if is_damaged or end_position != self.size_bytes:
                    raise SideFileDamagedError(self)
                if last is not None:
                    self.largest_timestamp_ms = last.largest_timestamp_ms
                self.side = (side_bytes // ENTRY_BYTES, b"")
            return self.side

    @property
    def entry_count(self) -> int:
        """Batches in this segment; of a group that fails they are gone soon. Raises as `load`."""
        written, tail = self.load()
        return written + len(tail) // ENTRY_BYTES

    def read_entries(self, index: int, count: int) -> list[SideEntry]:
        """Return up to `count` entries from the one with number `index`.

        Raises SideFileDamagedError when one of them fails its checksum.
        """
        data = self.read_raw_entries(index, count)
        entries: list[SideEntry] = []
        for position in range(0, len(data), ENTRY_BYTES):
            entry = decode_entry(data, position)
            if entry is None:
                raise SideFileDamagedError(self, index, count)
            entries.append(entry)
        return entries

    def read_raw_entries(self, index: int, count: int) -> bytes:
        """Return up to `count` entries as `read_entries`, unverified.

        Raises SideFileDamagedError where the file is too short.
        """
        written, tail = self.load()
        data = b""
        if index < written:
            wanted_bytes = min(count, written - index) * ENTRY_BYTES
            with self._acquire(self.side_path) as pooled:
                data = pooled.file.pread(wanted_bytes, index * ENTRY_BYTES)
            if len(data) != wanted_bytes:
                raise SideFileDamagedError(self, index, count)
        missing = count * ENTRY_BYTES - len(data)
        if missing and tail:
            start = max(index - written, 0) * ENTRY_BYTES
            data += tail[start : start + missing]
        return data

    def read_entry(self, index: int) -> SideEntry:
        """Return one entry of a batch that is answered. Raises SideFileDamagedError."""
        entries = self.read_entries(index, 1)
        if not entries:
            raise SideFileDamagedError(self)
        return entries[0]

    def find_offset(self, offset: int) -> int:
        """Return the number of the last entry that begins at or below `offset`; 0 when none does.

        Raises SideFileDamagedError.
        """
        low, high = 0, self.entry_count
        while high - low > 1:
            middle = (low + high) // 2
            entries = self.read_entries(middle, 1)
            if entries and entries[0].base_offset <= offset:
                low = middle
            else:
                high = middle
        return low

    def find_timestamp(self, timestamp_ms: int, count: int) -> int:
        """Return the first of `count` batches with a timestamp at or past the one given.

        `count` when there is none. Raises SideFileDamagedError.
        """
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            entries = self.read_entries(middle, 1)
            if entries and entries[0].largest_timestamp_ms < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def read_bytes(self, position: int, size_bytes: int) -> bytes:
        """Return bytes of the segment; fewer where the file ends early. Raises OSError."""
        with self._acquire(self.log_path) as pooled:
            return pooled.file.pread(size_bytes, position)

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer as `File.pread_into` from the segment. Raises as `read_bytes`."""
        with self._acquire(self.log_path) as pooled:
            return pooled.file.pread_into(buffer, position)

    def read_direct(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer as `File.pread_direct` from the segment. Raises as `read_bytes`."""
        with self._acquire(self.log_path) as pooled:
            return pooled.file.pread_direct(buffer, position)

    def uncached_bytes(self, position: int, size_bytes: int) -> int:
        """Return what `File.uncached_bytes` says of the segment. Raises as `read_bytes`."""
        with self._acquire(self.log_path) as pooled:
            return pooled.file.uncached_bytes(position, size_bytes)

    def is_in_memory(self, position: int, size_bytes: int) -> bool:
        """Whether bytes are in the page cache, as far as that can be told; never waits.

        Unlike a look at them it brings nothing there.
        """
        pooled = self.pool.acquire_open(self.log_path)
        if pooled is None:
            return False
        try:
            return not self.is_removed and not pooled.file.uncached_bytes(position, size_bytes)
        finally:
            self.pool.leave(pooled)

    def peek_bytes(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer as `File.peek_into` from the segment."""
        return self._peek(self.log_path, buffer, position)

    def peek_entries(self, index: int, count: int) -> bytes | bytearray | None:
        """Return up to `count` side entries from the one with number `index`, unverified.

        None when that would have to wait for the disk.
        """
        side = self.side
        if side is None:
            return None
        written, tail = side
        missing = count
        data = bytearray()
        if index < written:
            missing -= min(count, written - index)
            data = bytearray((count - missing) * ENTRY_BYTES)
            with memoryview(data) as view:
                if self._peek(self.side_path, view, index * ENTRY_BYTES) != len(data):
                    return None
        if missing and tail:
            start = max(index - written, 0) * ENTRY_BYTES
            data += tail[start : start + missing * ENTRY_BYTES]
        return data

    def _peek(self, path: str, buffer: memoryview, position: int) -> int:
        pooled = self.pool.acquire_open(path)
        if pooled is None:
            return 0
        try:
            # As in `_acquire`: without it the file is the right one.
            return 0 if self.is_removed else pooled.file.peek_into(buffer, position)
        finally:
            self.pool.leave(pooled)

    def _acquire(self, path: str) -> PooledFile:
        """Return one of the segment's files. Raises as `load`, for a removed one too; OSError.

        The name may be that of the segment's replacement by now. `is_removed` is set before any
        name changes, so that a file which was opened without it is the right one.
        """
        try:
            pooled = self.pool.acquire(path)
        except FileNotFoundError:
            if self.is_removed:
                raise SideFileDamagedError(self) from None
            raise
        if self.is_removed:
            self.release(pooled)
            raise SideFileDamagedError(self)
        return pooled

    # --- writing: the flusher ----------------------------------------------------------------

    def room_for(self, batches: Sequence[RecordBatch], start: int, settings: LogSettings) -> int:
        """Return up to where batches from `start` on may enter, by Kafka's rules for rolling.

        More of them may where an entry of Kafka's index is made for few.
        """
        room_bytes = min(settings.segment_bytes, layout.MAX_POSITION) - self.size_bytes
        room_entries = settings.segment_index_bytes // _INDEX_ENTRY_BYTES - self.index_count
        end = start
        while end < len(batches):
            batch = batches[end]
            room_bytes -= len(batch.buffer)
            if (
                room_bytes < 0
                or end - start >= room_entries
                or batch.last_offset - self.base_offset > layout.MAX_POSITION
            ) and (end > start or self.size_bytes):
                # A batch that is too large for any segment has one to itself.
                break
            end += 1
        return end

    def write(self, batches: Sequence[RecordBatch], settings: LogSettings) -> list[Buffer]:
        """Write batches behind the others, without a sync, and return their buffers.

        Their side entries wait in memory: `write_side` may be called once the batches are durable.

        Raises OSError; the caller then goes back to a mark.
        """
        written, tail = self.load()
        buffers: list[Buffer] = [batch.buffer for batch in batches]
        pooled = self.pool.acquire(self.log_path)
        try:
            # Before the write, so that the descriptor is still there to take the rest of a failed
            # one back with.
            pooled.dirty = True
            self.may_hold_rest = True
            pooled.file.pwrite(buffers, self.size_bytes)
            self.may_hold_rest = False
        finally:
            # Once more: a sync that another thread has begun meanwhile did not cover all of it.
            pooled.dirty = True
            self.pool.release(pooled)
        entries, self.largest_timestamp_ms = encode_batches(
            batches, self.size_bytes, self.largest_timestamp_ms
        )
        self.side = (written, tail + entries)
        since_index, interval_bytes = self.bytes_since_index, settings.index_interval_bytes
        size_bytes = self.size_bytes
        for buffer in buffers:
            if since_index > interval_bytes:
                self.index_count += 1
                since_index = 0
            since_index += len(buffer)
            size_bytes += len(buffer)
        self.bytes_since_index = since_index
        self.size_bytes = size_bytes
        return buffers

    def write_side(
        self, *, at_least_bytes: int = _SIDE_TAIL_BYTES, durable_count: int | None = None
    ) -> None:
        """Write the gathered side entries to their file when they are many.

        Their batches are durable; with `durable_count`, those of the first so many entries of the
        segment are, and only these are written. Raises OSError.
        """
        side = self.side
        if side is None or len(side[1]) < at_least_bytes:
            return
        written, tail = side
        rest = b""
        if durable_count is not None:
            ready_bytes = max(durable_count - written, 0) * ENTRY_BYTES
            tail, rest = tail[:ready_bytes], tail[ready_bytes:]
        if not tail or len(tail) < at_least_bytes:
            return
        # Not dirty for the pool, which may close it before it is synced: a checkpoint writes side
        # files by the thousand, and none could be closed. The kernel may then tell nobody that a
        # write-back has failed; what the disk lacks is noticed, and made anew from the batches.
        with self.pool.acquire(self.side_path, create=True) as pooled:
            pooled.file.pwrite((tail,), written * ENTRY_BYTES)
        self.side_is_dirty = True
        self.side = (written + len(tail) // ENTRY_BYTES, rest)

    def go_back(self, mark: SegmentMark) -> None:
        """Undo what was written since the mark, durably. Raises OSError, SyncFailedError."""
        if self.size_bytes == mark.size_bytes and not self.may_hold_rest:
            # The file could not even be opened, for want of descriptors.
            return
        before, now = mark.side, self.side
        # Whatever becomes of the file: readers find what was answered in front of it or in memory.
        self.side = before
        if before is not None and now is not None and now[0] > before[0]:
            # First: its entries call batches durable that are about to be cut, which recovery
            # would take for damage.
            self._cut(self.side_path, before[0] * ENTRY_BYTES)
        self._cut(self.log_path, mark.size_bytes)
        self.may_hold_rest = False
        self.size_bytes = mark.size_bytes
        self.largest_timestamp_ms = mark.largest
        self.index_count = mark.index_count
        self.bytes_since_index = mark.bytes_since_index
        self.index_builder = None
        self.sent_bytes = min(self.sent_bytes, mark.size_bytes)

    def _cut(self, path: str, size_bytes: int) -> None:
        """Truncate a file, durably: what was given up must not come back behind later batches."""
        with self.pool.acquire(path) as pooled:
            pooled.file.truncate(size_bytes)
            self.pool.sync(pooled)

    def sync(self) -> None:
        """Make the batches durable, unless they are removed. Raises OSError, SyncFailedError."""
        self.sent_bytes = self.size_bytes
        self._sync(self.log_path)

    @property
    def unsent_bytes(self) -> int:
        """What a sync would have to write itself, about."""
        return max(0, self.size_bytes - self.sent_bytes)

    def write_back(self) -> None:
        """Have the system begin to write what it has not been asked to. In any thread."""
        self.is_handed_on = False
        start = self.sent_bytes
        # The page that the next batch goes on in would be written twice.
        end = self.size_bytes - self.size_bytes % _PAGE_BYTES
        if end <= start:
            return
        self.sent_bytes = end
        with suppress(OSError, SideFileDamagedError), self._acquire(self.log_path) as pooled:
            pooled.file.begin_write_back(start, end - start)

    def sync_side(self) -> None:
        """Make the written side entries durable. Raises as `sync`."""
        if self.side_is_dirty:
            self.side_is_dirty = False
            try:
                self._sync(self.side_path)
            except BaseException:
                self.side_is_dirty = True
                raise

    def _sync(self, path: str) -> None:
        try:
            pooled = self.pool.acquire(path)
        except FileNotFoundError:
            if not self.is_removed:
                raise
            return  # by the flusher, while another thread was about to sync it
        try:
            self.pool.sync(pooled)
        finally:
            self.release(pooled)

    def release(self, pooled: PooledFile) -> None:
        """Give back one of the segment's files, which may have been removed meanwhile."""
        self.pool.release(pooled)
        if self.is_removed:
            # Or a file that has no name any more would stay open, and its space be taken.
            self.pool.forget(pooled.path)

    def unlink(self, fs: FileSystem) -> None:
        """Remove all files of a segment. Raises OSError."""
        self.forget()
        for suffix in layout.SEGMENT_SUFFIXES:
            path = self.stem_path + suffix
            if fs.exists(path):
                fs.unlink(path)

    def set_aside(self, fs: FileSystem) -> list[str]:
        """Rename all files of a segment; returns their names, to be removed later. Raises OSError.

        Who is reading one of them goes on.
        """
        self.is_removed = True
        renamed: list[str] = []
        for suffix in layout.SEGMENT_SUFFIXES:
            path = self.stem_path + suffix
            if fs.exists(path):
                fs.rename(path, path + layout.DELETED_SUFFIX)
                renamed.append(path + layout.DELETED_SUFFIX)
        self.forget()
        return renamed

    def forget(self) -> None:
        """Close the files of a segment that is no more."""
        self.is_removed = True
        self.pool.forget(self.log_path)
        self.pool.forget(self.side_path)
