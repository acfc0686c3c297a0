"""Reads sealed segments and writes new ones; plain code on the file-system interface.

A run reads and verifies sealed segments. It writes changed segments into the partition's
`compaction` directory and syncs them. Then `swap` replaces the old segments. `compaction` and
`recompression` decide which batches a new segment gets.
"""

from __future__ import annotations

import errno
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from kgw.backend.base import CompactionJob, LogSettings, RecompressionJob
from kgw.backend.embedded.files.pool import FilePool
from kgw.backend.embedded.log.index_files import write_indexes
from kgw.backend.embedded.log.segment import Segment
from kgw.backend.embedded.log.swap import CompactedSegment, begin_directory
from kgw.backend.embedded.read.reading import verify
from kgw.errors import CorruptionError
from kgw.records.batch import read_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.records.batch import RecordBatch

JobT = TypeVar("JobT", bound=CompactionJob | RecompressionJob)

_OPEN_FILES: Final = 16
_WINDOW_BYTES: Final = 1 << 20
"""Number of bytes to read or write at once."""
_ENTRIES: Final = 1024
_SYNC_BYTES: Final = 2 << 20
"""Bytes written between two syncs. A single sync of a gigabyte would block appends for too long."""


class SourceSegment(NamedTuple):
    """A sealed segment at the begin of a run."""

    base_offset: int
    end_offset: int
    size_bytes: int


class Order(NamedTuple, Generic[JobT]):
    """All parameters of a run."""

    path: str
    """The partition's directory."""
    sources: tuple[SourceSegment, ...]
    start_offset: int
    """Records below this offset were processed by earlier runs."""
    job: JobT
    settings: LogSettings
    min_free_bytes: int


class RewriteThrottle:
    """Slows down a run by waiting after disk operations. This base class does not wait."""

    def moved(self, size_bytes: int) -> None:
        """Called when bytes have been read or written."""

    def synced(self) -> None:
        """Called when written bytes have been synced."""


def sealed_segments(log: SegmentedLog) -> list[SourceSegment]:
    """Return all segments but the active one. Must be called between two groups of appends."""
    return [
        SourceSegment(segment.base_offset, following.base_offset, segment.size_bytes)
        for segment, following in pairwise(log.segments)
    ]


class Rewriting(Generic[JobT]):
    """Reads and writes the files of one run."""

    def __init__(
        self, fs: FileSystem, order: Order[JobT], throttle: RewriteThrottle | None = None
    ) -> None:
        self._fs = fs
        self._order = order
        self._job = order.job
        self._throttle = throttle or RewriteThrottle()
        self._pool = FilePool(fs, _OPEN_FILES)
        self._target_path = ""
        self._pending: list[RecordBatch] = []
        self._pending_bytes = 0
        self._unsynced_bytes = 0
        self._bytes_read = 0

    def _begin(self) -> None:
        """Create the directory for new segments."""
        self._target_path = begin_directory(self._fs, self._order.path)

    def _open(self, source: SourceSegment) -> Segment:
        segment = Segment(self._order.path, source.base_offset, self._pool)
        segment.size_bytes = source.size_bytes
        segment.side = None
        return segment

    def _batches(self, segment: Segment) -> Iterator[RecordBatch]:
        """Yield a segment's batches, verified."""
        index = 0
        while entries := segment.read_entries(index, _ENTRIES):
            index += len(entries)
            while entries:
                start = entries[0].position
                count = 1
                while count < len(entries) and entries[count].end_position - start <= _WINDOW_BYTES:
                    count += 1
                window, entries = entries[:count], entries[count:]
                size_bytes = window[-1].end_position - start
                data = memoryview(segment.read_bytes(start, size_bytes))
                self._bytes_read += size_bytes
                self._throttle.moved(size_bytes)
                for entry in window:
                    at = entry.position - start
                    view = data[at : at + entry.size_bytes]
                    if verify(view, entry) is None:
                        raise CorruptionError(
                            f"{segment.log_path}: the batch at offset {entry.base_offset}, "
                            f"position {entry.position}, is damaged"
                        )
                    yield read_batch(view)

    def _create(self, base_offset: int) -> Segment:
        segment = Segment(self._target_path, base_offset, self._pool)
        for path in (segment.log_path, segment.side_path):
            self._pool.release(self._pool.acquire(path, create=True))
        self._unsynced_bytes = 0
        return segment

    def _copy(self, source: Segment, target: Segment, upper_bound: int | None = None) -> None:
        """Copy the batches that begin below `upper_bound`; all batches if there is no bound."""
        for batch in self._batches(source):
            if upper_bound is not None and batch.base_offset >= upper_bound:
                break
            self._append(target, batch)
        self._write(target)

    def _append(self, target: Segment, batch: RecordBatch) -> None:
        self._pending.append(batch)
        self._pending_bytes += len(batch.buffer)
        if self._pending_bytes >= _WINDOW_BYTES:
            self._write(target)

    def _forget_pending(self) -> None:
        """Discard the batches that were appended since the last write."""
        self._pending, self._pending_bytes = [], 0

    def _write(self, target: Segment) -> None:
        """Write the batches that were appended since the last write."""
        batches, size_bytes = self._pending, self._pending_bytes
        self._forget_pending()
        if not batches:
            return
        free_bytes = self._fs.free_bytes(self._order.path)
        if free_bytes < self._order.min_free_bytes + size_bytes:
            raise OSError(errno.ENOSPC, f"only {free_bytes} bytes are free", target.log_path)
        target.write(batches, self._order.settings)
        # The side entries claim that their batches are durable. The batches are synced before other
        # code reads these entries.
        target.write_side(at_least_bytes=1)
        self._throttle.moved(size_bytes)
        self._unsynced_bytes += size_bytes
        if self._unsynced_bytes >= _SYNC_BYTES:
            target.sync()
            self._unsynced_bytes = 0
            self._throttle.synced()

    def _complete(self, segment: Segment, replaced: tuple[int, ...]) -> CompactedSegment:
        """Make a new segment durable, together with its side file and indexes."""
        segment.sync()
        segment.sync_side()
        write_indexes(self._fs, segment, self._order.settings.index_interval_bytes, is_final=True)
        return CompactedSegment(
            segment.base_offset,
            replaced,
            segment.size_bytes,
            segment.entry_count,
            segment.largest_timestamp_ms,
        )
