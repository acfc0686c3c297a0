"""Finds out which bytes of a file are in the page cache, and starts write-back of bytes there.

The query reads nothing into the page cache. A read with RWF_NOWAIT would also answer it, but makes
the kernel read ahead: 8 MB of pages that are useless if the read then goes past the cache.
cachestat(2) has no name in Python or the C library yet.
"""

from __future__ import annotations

import ctypes
from mmap import PAGESIZE
from typing import Final

from kgw.system import IS_LINUX

_CACHESTAT: Final = 451
"""Exists in Linux 6.5 and later, with the same number on all architectures except alpha."""
# PyDLL does not release the interpreter lock: the call never waits, so that is not needed.
_SYSTEM_CALL: Final = ctypes.PyDLL(None).syscall
_sync_file_range: Final = getattr(ctypes.CDLL(None), "sync_file_range", None)
_RANGE_WRITE: Final = 2


def cached_bytes(descriptor: int, position: int, size_bytes: int) -> int | None:
    """Return how many bytes of a range are in memory, in whole pages; None if it is unknown."""
    if not IS_LINUX:
        return None
    span = (ctypes.c_uint64 * 2)(position, size_bytes)
    figures = (ctypes.c_uint64 * 5)()
    if _SYSTEM_CALL(_CACHESTAT, descriptor, span, figures, 0):
        return None
    return figures[0] * PAGESIZE


def begin_write_back(descriptor: int, position: int, size: int) -> None:
    """Ask the system to write a part of a file, without waiting; do nothing if it cannot.

    Must be called in a thread: it may wait if the disk is overloaded.
    """
    if _sync_file_range is not None:
        _sync_file_range(
            ctypes.c_int(descriptor),
            ctypes.c_int64(position),
            ctypes.c_int64(size),
            ctypes.c_uint(_RANGE_WRITE),
        )
