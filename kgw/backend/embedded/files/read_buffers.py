"""A bounded number of buffers that reads share; a buffer is free once nothing refers to it."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from sys import getrefcount
from threading import Lock
from typing import Final

from kgw.backend.embedded.files.fs import DIRECT_BLOCK_BYTES

BUFFER_BYTES: Final = 1 << 20
"""The number of bytes that most clients request of a partition at a time."""
_ROOM_BYTES: Final = BUFFER_BYTES + 2 * DIRECT_BLOCK_BYTES
"""Size of a buffer. Direct reads need whole blocks, so up to two more blocks than requested are
read."""
_LEAST_BYTES: Final = 64 << 10
"""Smaller reads get memory from malloc, which reuses it. For larger sizes malloc would get fresh
pages from the system each time."""


class ReadBuffers:
    """Buffers of 1 MB, created on demand and kept. May be used in any thread.

    Fresh memory costs 240 page faults a megabyte, or 0.3 s a GB. That is as long as reading,
    verifying and sending these bytes takes. Buffers are not released explicitly. A response has
    views of a buffer until it is sent, and each view refers to the buffer.
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
        """Return a shared buffer, or a new one if none is free. Its content is arbitrary."""
        if not _LEAST_BYTES <= size_bytes <= BUFFER_BYTES:
            return memoryview(bytearray(size_bytes))
        shared = self._find()
        return memoryview(bytearray(size_bytes) if shared is None else shared)[:size_bytes]

    def take_pages(self, size_bytes: int) -> memoryview:
        """Return a page-aligned buffer as `take` does, for direct reads."""
        shared = self._find() if size_bytes <= _ROOM_BYTES else None
        return memoryview(_pages(size_bytes) if shared is None else shared)[:size_bytes]

    @property
    def has_free(self) -> bool:
        """Whether the next call of `take` would get a shared buffer."""
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
