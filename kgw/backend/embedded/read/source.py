"""Reads a segment's bytes from the page cache, or directly from the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kgw.backend.embedded.files.fs import DIRECT_BLOCK_BYTES

if TYPE_CHECKING:
    from kgw.backend.embedded.files.read_buffers import ReadBuffers
    from kgw.backend.embedded.log.segment import Segment

LEAST_DIRECT_BYTES: Final = 128 << 10
"""Smaller ranges are read faster through the page cache, because the kernel reads ahead there."""


class SegmentSource(Protocol):
    """Provides bytes of segments. They are not verified."""

    def peek(self, segment: Segment, position: int, size_bytes: int) -> memoryview | None:
        """Return bytes without waiting for a disk, or None. Called in the event loop."""

    def read(self, segment: Segment, position: int, size_bytes: int) -> memoryview:
        """Return bytes, fewer only at the end of the file. Called in a thread.

        Raises OSError; SideFileDamagedError if the segment was removed.
        """


class Files:
    """Reads the segments' own files.

    Cached bytes are copied from the page cache. Large uncached ranges are read directly from the
    disk, because filling the page cache would double the cost of the read.
    """

    __slots__ = ("_buffers", "_least_direct_bytes")

    def __init__(
        self, buffers: ReadBuffers, *, least_direct_bytes: int = LEAST_DIRECT_BYTES
    ) -> None:
        self._buffers = buffers
        self._least_direct_bytes = least_direct_bytes

    def peek(self, segment: Segment, position: int, size_bytes: int) -> memoryview | None:
        # Trying to read uncached bytes would make the system read ahead into the page cache.
        if not segment.is_in_memory(position, size_bytes):
            return None
        room = self._buffers.take(size_bytes)
        return room if segment.peek_bytes(room, position) == size_bytes else None

    def read(self, segment: Segment, position: int, size_bytes: int) -> memoryview:
        if not self.is_cold(segment, position, size_bytes):
            room = self._buffers.take(size_bytes)
            with segment.opened() as pooled:
                return room[: pooled.file.pread_into(room, position)]
        before = position % DIRECT_BLOCK_BYTES
        end = before + size_bytes
        room = self._buffers.take_pages(end + -end % DIRECT_BLOCK_BYTES)
        with segment.opened() as pooled:
            filled = pooled.file.pread_direct(room, position - before)
        return room[before : min(filled, end)]

    def is_cold(self, segment: Segment, position: int, size_bytes: int) -> bool:
        """Return whether a direct read of a range is better, as many bytes are uncached.

        Called in a thread. Raises the errors of `read`.
        """
        if size_bytes < self._least_direct_bytes:
            return False
        with segment.opened() as pooled:
            return pooled.file.uncached_bytes(position, size_bytes) >= self._least_direct_bytes
