"""What the C library keeps of memory that was given back.

glibc takes large blocks from the system one by one, and gives them back; but each that is freed
raises the size from which on a block is large, up to 32 MB. Blocks below it come from the heap, of
which up to twice that size stays with the process. A batch of 1 MB that became 21 MB, and was
refused, cost the process 40 MB for good. To set the sizes keeps them from rising.
"""

from __future__ import annotations

import ctypes
from typing import Final

# As in glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3

LARGE_BYTES: Final = 4 << 20
"""Above what requests usually have: these come from the heap, which is faster."""
KEPT_BYTES: Final = 2 * LARGE_BYTES
"""At the end of each heap. glibc keeps the same proportion."""


def give_back_large_blocks() -> None:
    """Have blocks from `LARGE_BYTES` on returned to the system when they are freed.

    For the whole process. Does nothing where the C library is another one.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, LARGE_BYTES)
        set_option(_TRIM_THRESHOLD, KEPT_BYTES)
