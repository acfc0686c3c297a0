"""Finds out which bytes of a file are in the page cache, and starts write-back of bytes there.

cachestat(2) reads nothing into the page cache. A read with RWF_NOWAIT would make the kernel read 8
MB ahead, which is useless if the bytes are then read directly from the disk. Python and the C
library do not have cachestat(2) yet, so it is called by its number.
"""

from __future__ import annotations

import ctypes
from mmap import PAGESIZE
from typing import Final

from kgw.system import IS_LINUX

_CACHESTAT: Final = 451
"""Number of cachestat(2), in Linux 6.5 and later, on all architectures except alpha."""
# PyDLL keeps the interpreter lock during the call, which is harmless because the call never waits.
_SYSTEM_CALL: Final = ctypes.PyDLL(None).syscall
_sync_file_range: Final = getattr(ctypes.CDLL(None), "sync_file_range", None)
_RANGE_WRITE: Final = 2


def cached_bytes(descriptor: int, position: int, size_bytes: int) -> int | None:
    """Return how many bytes of a range are in the page cache, in whole pages; None if unknown."""
    if not IS_LINUX:
        return None
    span = (ctypes.c_uint64 * 2)(position, size_bytes)
    figures = (ctypes.c_uint64 * 5)()
    if _SYSTEM_CALL(_CACHESTAT, descriptor, span, figures, 0):
        return None
    return figures[0] * PAGESIZE


def begin_write_back(descriptor: int, position: int, size: int) -> None:
    """Ask the system to start writing a part of a file; do nothing if there is no such call.

    Must be called in a thread: it may wait if the disk is overloaded.
    """
    if _sync_file_range is not None:
        _sync_file_range(
            ctypes.c_int(descriptor),
            ctypes.c_int64(position),
            ctypes.c_int64(size),
            ctypes.c_uint(_RANGE_WRITE),
        )
