"""Memory that reads share: a bounded number of buffers, each free again once nobody looks at it."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from sys import getrefcount
from threading import Lock
from typing import Final

from kgw.backend.embedded.files.fs import DIRECT_BLOCK_BYTES

BUFFER_BYTES: Final = 1 << 20
"""What most clients ask of a partition at a time."""
_ROOM_BYTES: Final = BUFFER_BYTES + 2 * DIRECT_BLOCK_BYTES
"""Of a buffer: batches begin and end anywhere, what is read past the page cache does not."""
_LEAST_BYTES: Final = 64 << 10
"""Below it malloc gives out memory that it has; above, fresh pages from the system each time."""


class ReadBuffers:
    """Buffers of 1 MB, made when they are needed and kept. Any thread.

    A megabyte of fresh memory costs 240 page faults, 0.3 s a GB: as much as reading, verifying and
    sending it together. Nobody gives a buffer back: an answer on its way holds views of it, as long
    as its socket takes, and each view holds a reference to the buffer.
    """

    __slots__ = ("_buffers", "_limit", "_lock", "_unused_references")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._buffers: list[mmap] = []
        self._unused_references = 0

    def __len__(self) -> int:
        return len(self._buffers)

    def take(self, size_bytes: int) -> memoryview:
        """Return room for so many bytes, with anything in it; of its own when no buffer fits."""
        if not _LEAST_BYTES <= size_bytes <= BUFFER_BYTES:
            return memoryview(bytearray(size_bytes))
        shared = self._find()
        return memoryview(bytearray(size_bytes) if shared is None else shared)[:size_bytes]

    def take_pages(self, size_bytes: int) -> memoryview:
        """Return room as `take` that begins with a page, for reads past the page cache."""
        shared = self._find() if size_bytes <= _ROOM_BYTES else None
        return memoryview(_pages(size_bytes) if shared is None else shared)[:size_bytes]

    @property
    def has_free(self) -> bool:
        """Whether the next one to ask gets a shared buffer."""
        return self._find() is not None

    def _find(self) -> mmap | None:
        buffers = self._buffers
        with self._lock:
            for number in range(len(buffers)):
                if getrefcount(buffers[number]) == self._unused_references:
                    return buffers[number]
            if len(buffers) >= self._limit:
                return None
            buffers.append(_pages(_ROOM_BYTES))
            self._unused_references = getrefcount(buffers[-1])
            return buffers[-1]


def _pages(size_bytes: int) -> mmap:
    return mmap(-1, size_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)
