"""Memory that reads share: a bounded number of buffers, each free again once nobody looks at it."""

from __future__ import annotations

from sys import getrefcount
from threading import Lock
from typing import Final

BUFFER_BYTES: Final = 1 << 20
"""What most clients ask of a partition at a time."""
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
        self._buffers: list[bytearray] = []
        self._unused_references = 0

    def __len__(self) -> int:
        return len(self._buffers)

    def take(self, size_bytes: int) -> memoryview:
        """Return room for so many bytes, with anything in it; of its own when no buffer fits."""
        if not _LEAST_BYTES <= size_bytes <= BUFFER_BYTES:
            return memoryview(bytearray(size_bytes))
        buffers = self._buffers
        with self._lock:
            for number in range(len(buffers)):
                if getrefcount(buffers[number]) == self._unused_references:
                    return memoryview(buffers[number])[:size_bytes]
            if len(buffers) >= self._limit:
                return memoryview(bytearray(size_bytes))
            buffers.append(bytearray(BUFFER_BYTES))
            self._unused_references = getrefcount(buffers[-1])
            return memoryview(buffers[-1])[:size_bytes]
