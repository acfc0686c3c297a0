"""What of a file is in the page cache, and having the system write what is.

What is there is asked without bringing anything into it. A read with RWF_NOWAIT would tell, too,
but has the kernel read ahead: 8 MB of pages that nobody wants where a reader goes past the cache.
cachestat(2) has no name in Python or the C library yet.
"""

from __future__ import annotations

import ctypes
from mmap import PAGESIZE
from typing import Final

from kgw.system import IS_LINUX

_CACHESTAT: Final = 451
"""Of Linux 6.5 and later; the same number everywhere but on alpha."""
# PyDLL: it never waits, so that the interpreter need not be given up for it.
_SYSTEM_CALL: Final = ctypes.PyDLL(None).syscall
_sync_file_range: Final = getattr(ctypes.CDLL(None), "sync_file_range", None)
_RANGE_WRITE: Final = 2


def cached_bytes(descriptor: int, position: int, size_bytes: int) -> int | None:
    """Return how much of a range is in memory, in whole pages; None where nothing tells."""
    if not IS_LINUX:
        return None
    span = (ctypes.c_uint64 * 2)(position, size_bytes)
    figures = (ctypes.c_uint64 * 5)()
    if _SYSTEM_CALL(_CACHESTAT, descriptor, span, figures, 0):
        return None
    return figures[0] * PAGESIZE


def begin_write_back(descriptor: int, position: int, size: int) -> None:
    """Have the system write a part of a file, without waiting for it; nothing where it cannot.

    For a thread: it waits for its turn where the disk has more to do than it takes.
    """
    if _sync_file_range is not None:
        _sync_file_range(
            ctypes.c_int(descriptor),
            ctypes.c_int64(position),
            ctypes.c_int64(size),
            ctypes.c_uint(_RANGE_WRITE),
        )
