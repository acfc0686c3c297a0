"""Where a reader gets the bytes of a segment from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kgw.backend.embedded.files.fs import DIRECT_BLOCK_BYTES

if TYPE_CHECKING:
    from kgw.backend.embedded.files.read_buffers import ReadBuffers
    from kgw.backend.embedded.log.segment import Segment

LEAST_DIRECT_BYTES: Final = 128 << 10
"""Below it a read past the page cache takes longer than one that has the kernel read ahead."""


class Source(Protocol):
    """Bytes of segments, as they are: nobody has compared them with a checksum."""

    def peek(self, segment: Segment, position: int, size_bytes: int) -> memoryview | None:
        """Return bytes without waiting for a disk; None when that cannot be done. In the loop."""

    def read(self, segment: Segment, position: int, size_bytes: int) -> memoryview:
        """Return bytes, fewer only where the file ends. In a thread.

        Raises OSError, and SideFileDamagedError when the segment was removed.
        """


class Files:
    """The segments' own files.

    What is in the page cache is copied from there. What is not, and is much, is read past the page
    cache: its pages would cost more than the rest of the read.
    """

    __slots__ = ("_buffers", "_least_direct_bytes")

    def __init__(
        self, buffers: ReadBuffers, *, least_direct_bytes: int = LEAST_DIRECT_BYTES
    ) -> None:
        self._buffers = buffers
        self._least_direct_bytes = least_direct_bytes

    def peek(self, segment: Segment, position: int, size_bytes: int) -> memoryview | None:
        # A look at what is not there would have the system read ahead into the page cache.
        if not segment.is_in_memory(position, size_bytes):
            return None
        room = self._buffers.take(size_bytes)
        return room if segment.peek_bytes(room, position) == size_bytes else None

    def read(self, segment: Segment, position: int, size_bytes: int) -> memoryview:
        if not self.is_cold(segment, position, size_bytes):
            room = self._buffers.take(size_bytes)
            return room[: segment.read_into(room, position)]
        before = position % DIRECT_BLOCK_BYTES
        end = before + size_bytes
        room = self._buffers.take_pages(end + -end % DIRECT_BLOCK_BYTES)
        filled = segment.read_direct(room, position - before)
        return room[before : min(filled, end)]

    def is_cold(self, segment: Segment, position: int, size_bytes: int) -> bool:
        """Whether so much of a range has to come from the disk that it is read past the cache.

        In a thread. Raises as `read`.
        """
        least_bytes = self._least_direct_bytes
        return (
            size_bytes >= least_bytes
            and segment.uncached_bytes(position, size_bytes) >= least_bytes
        )
