"""One segment: a file of batches in Kafka's format, and its side file.

The flusher's thread writes the segment, and several threads read it. Readers get the state of the
side file from a tuple that is replaced as a whole. The tuple has the number of entries in the file,
and the entries that are not in the file yet.
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
"""Side entries are written a page at a time. With many partitions, a write for each partition in
each group would cost more than the journal."""
_INDEX_ENTRY_BYTES: Final = 8
_PAGE_BYTES: Final = 4096


class SideFileDamagedError(Exception):
    """A side file lacks the entries that a lookup needs, and must be rebuilt from its segment.

    Also raised if the segment was removed, or the side file was changed, during the read. After a
    removal there is nothing to rebuild, and a repeated lookup finds the new segment.
    """

    def __init__(self, segment: Segment, index: int = 0, count: int = 0) -> None:
        """`count` entries from `index` on are wrong, or the end of the file if `count` is 0."""
        super().__init__(segment.side_path)
        self.segment = segment
        self.index = index
        self.count = count


class SegmentMark:
    """The end of a segment before a write, to undo the write if its group fails."""

    __slots__ = ("bytes_since_index", "index_count", "largest", "side", "size_bytes")

    def __init__(self, segment: Segment) -> None:
        self.size_bytes = segment.size_bytes
        self.side = segment.side
        self.largest = segment.largest_timestamp_ms
        self.index_count = segment.index_count
        self.bytes_since_index = segment.bytes_since_index


class Segment:
    """The batches of a log from `base_offset` on, up to the next segment."""

    def __init__(self, directory: str, base_offset: int, pool: FilePool) -> None:
        self.base_offset = base_offset
        self.stem = layout.segment_stem(base_offset)
        self.stem_path = f"{directory}/{self.stem}"
        self.log_path = self.stem_path + layout.LOG_SUFFIX
        self.side_path = self.stem_path + layout.SIDE_SUFFIX
        self.pool = pool
        self.size_bytes = 0
        self.begun_ms = NO_TIMESTAMP_MS
        """Wall time of the first append since the process started; NO_TIMESTAMP_MS if there was
        none."""
        self.side: tuple[int, bytes] | None = (0, b"")
        """Number of entries in the file, and the encoded entries after them, which are only in
        memory. None until the file has been read."""
        self.largest_timestamp_ms = NO_TIMESTAMP_MS
        self.index_count = 0
        self.index_builder: IndexBuilder | None = None
        """The builder of this segment's Kafka indexes. None if the indexes must be written from the
        start."""
        self.bytes_since_index = 0
        self.side_is_dirty = False
        self.sent_bytes = 0
        """Number of bytes that the system was asked to write back. They need not be durable."""
        self.is_handed_on = False
        """Whether a call of `write_back` is queued already."""
        self.is_removed = False
        self.may_hold_rest = False
        """Whether a failed write may have left bytes after `size_bytes`."""

    def __repr__(self) -> str:
        return f"<Segment {self.log_path} bytes={self.size_bytes}>"

    # --- reading: any thread -----------------------------------------------------------------

    def load(self) -> tuple[int, bytes]:
        """Return the number of side entries in the file, and the encoded entries after them.

        Raises SideFileDamagedError if the entries do not end where the segment ends.
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
            # The flusher may have added entries meanwhile. Keep them; they are no damage.
            if self.side is None:
                if is_damaged or end_position != self.size_bytes:
                    raise SideFileDamagedError(self)
                if last is not None:
                    self.largest_timestamp_ms = last.largest_timestamp_ms
                self.side = (side_bytes // ENTRY_BYTES, b"")
            return self.side

    @property
    def entry_count(self) -> int:
        """Number of batches in this segment, including batches of a group that may still fail.

        Raises the errors of `load`.
        """
        written, tail = self.load()
        return written + len(tail) // ENTRY_BYTES

    def read_entries(self, index: int, count: int) -> list[SideEntry]:
        """Return up to `count` entries, beginning with entry number `index`.

        Raises SideFileDamagedError if an entry fails its checksum.
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
        """Return up to `count` entries as `read_entries` does, but encoded and unverified.

        Raises SideFileDamagedError if the file is too short.
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
        """Return the entry of an acknowledged batch. Raises SideFileDamagedError."""
        entries = self.read_entries(index, 1)
        if not entries:
            raise SideFileDamagedError(self)
        return entries[0]

    def find_offset(self, offset: int) -> int:
        """Return the number of the last entry whose base offset is at or below `offset`.

        Returns 0 if there is no such entry. Raises SideFileDamagedError.
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
        """Return the number of the first of `count` batches that reaches the timestamp.

        Returns `count` if no batch reaches the timestamp. Raises SideFileDamagedError.
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
        """Return bytes of the segment; fewer if the file ends early. Raises OSError."""
        with self.opened() as pooled:
            return pooled.file.pread(size_bytes, position)

    def opened(self) -> PooledFile:
        """Return the open file of batches, to be used with `with`.

        Raises the errors of `read_bytes`.
        """
        return self._acquire(self.log_path)

    def is_in_memory(self, position: int, size_bytes: int) -> bool:
        """Return whether bytes are known to be in the page cache. Never waits.

        Unlike `peek_bytes`, this does not read any bytes into the page cache.
        """
        pooled = self.pool.acquire_open(self.log_path)
        if pooled is None:
            return False
        try:
            return not self.is_removed and not pooled.file.uncached_bytes(position, size_bytes)
        finally:
            self.pool.leave(pooled)

    def peek_bytes(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer from the segment with `File.peek_into`."""
        return self._peek(self.log_path, buffer, position)

    def peek_entries(self, index: int, count: int) -> bytes | bytearray | None:
        """Return up to `count` encoded side entries, beginning with number `index`, unverified.

        Returns None if the call would have to wait for the disk.
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
            # As in `_acquire`, the opened file is this segment's if the segment is not removed.
            return 0 if self.is_removed else pooled.file.peek_into(buffer, position)
        finally:
            self.pool.leave(pooled)

    def _acquire(self, path: str) -> PooledFile:
        """Return one of the segment's open files.

        Raises SideFileDamagedError for a removed segment, OSError. The path may already belong to
        the segment that replaced this one. But `is_removed` is set before any file is renamed: if
        it is not set after the opening, the file is the right one.
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
        """Return the index after the last batch, from `start` on, that fits into this segment.

        Uses Kafka's rules for rolling a segment, but counts an index entry for each batch, so a
        segment may be rolled a little earlier than in Kafka.
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
                # A batch that is too large for any segment gets a segment of its own.
                break
            end += 1
        return end

    def write(self, batches: Sequence[RecordBatch], settings: LogSettings) -> list[Buffer]:
        """Append batches to the file, without a sync, and return their buffers.

        Their side entries stay in memory; `write_side` may be called once the batches are durable.
        Raises OSError, after which the caller must call `go_back`.
        """
        written, tail = self.load()
        buffers: list[Buffer] = [batch.buffer for batch in batches]
        pooled = self.pool.acquire(self.log_path)
        try:
            # Set before the write, so that the descriptor stays open and can be used to undo a
            # failed write.
            pooled.dirty = True
            self.may_hold_rest = True
            pooled.file.pwrite(buffers, self.size_bytes)
            self.may_hold_rest = False
        finally:
            # Set again, because a sync in another thread may have reset it without covering all
            # these bytes.
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
        """Write the side entries in memory to the file, if they have at least `at_least_bytes`.

        Their batches must be durable. With `durable_count`, only the first `durable_count` batches
        of the segment are durable, and only their entries are written. Raises OSError.
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
        # Do not mark the file dirty, so that the pool may close it before a sync: a checkpoint
        # writes thousands of side files. A failed write-back may then remain unreported, but
        # missing entries are noticed later and rebuilt from the batches.
        with self.pool.acquire(self.side_path, create=True) as pooled:
            pooled.file.pwrite((tail,), written * ENTRY_BYTES)
        self.side_is_dirty = True
        self.side = (written + len(tail) // ENTRY_BYTES, rest)

    def go_back(self, mark: SegmentMark) -> None:
        """Undo the writes since the mark, durably. Raises OSError, SyncFailedError."""
        if self.size_bytes == mark.size_bytes and not self.may_hold_rest:
            # The file could not even be opened, because too many files are open.
            return
        before, now = mark.side, self.side
        # Set this even if the truncation fails, so that readers find only entries of acknowledged
        # batches.
        self.side = before
        if before is not None and now is not None and now[0] > before[0]:
            # Cut the side file first. Its entries claim that batches are durable; if these batches
            # were cut first, a recovery could report damage.
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
        """Truncate a file durably, so that the cut bytes cannot reappear after later batches."""
        with self.pool.acquire(path) as pooled:
            pooled.file.truncate(size_bytes)
            self.pool.sync(pooled)

    def sync(self) -> None:
        """Make the batches durable, unless they are removed. Raises OSError, SyncFailedError."""
        self.sent_bytes = self.size_bytes
        self._sync(self.log_path)

    def write_back(self) -> None:
        """Ask the system to start writing the bytes that were not part of an earlier request.

        In any thread.
        """
        self.is_handed_on = False
        start = self.sent_bytes
        # Leave out the last, incomplete page, because the next batch would cause a second write of
        # it.
        end = self.size_bytes - self.size_bytes % _PAGE_BYTES
        if end <= start:
            return
        self.sent_bytes = end
        with suppress(OSError, SideFileDamagedError), self.opened() as pooled:
            pooled.file.begin_write_back(start, end - start)

    def sync_side(self) -> None:
        """Make the written side entries durable. Raises the errors of `sync`."""
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
            return  # removed by the flusher before this thread could sync it
        try:
            self.pool.sync(pooled)
        finally:
            self.release(pooled)

    def release(self, pooled: PooledFile) -> None:
        """Return a file to the pool, even if the segment was removed meanwhile."""
        self.pool.release(pooled)
        if self.is_removed:
            # Otherwise the removed file would stay open and use disk space.
            self.pool.forget(pooled.path)

    def unlink(self, fs: FileSystem) -> None:
        """Remove all files of a segment. Raises OSError."""
        self.forget()
        for suffix in layout.SEGMENT_SUFFIXES:
            path = self.stem_path + suffix
            if fs.exists(path):
                fs.unlink(path)

    def set_aside(self, fs: FileSystem) -> list[str]:
        """Rename all files of a segment; return the new paths, which the caller removes later.

        Reads that are running can continue. Raises OSError.
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
        """Close the files of a segment that is no longer part of the log."""
        self.is_removed = True
        self.pool.forget(self.log_path)
        self.pool.forget(self.side_path)
