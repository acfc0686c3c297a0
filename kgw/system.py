"""What the operating systems that kgw runs on have in different forms, and what some of them lack.

Linux is the one that kgw is made for. macOS runs servers, tests and tools on laptops; it was tried
only as a Linux from which everything was taken that macOS lacks (docs/decisions/0149-macos.md).
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from typing import Final

IS_LINUX: Final = sys.platform == "linux"
"""Whether system calls may be made by the numbers that they have on Linux."""

HAS_THREAD_CLOCKS: Final = hasattr(time, "pthread_getcpuclockid")
"""Whether a thread can be asked for the processor time of another one."""

_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_NO_FULL_SYNC: Final = frozenset({errno.ENOTSUP, errno.EINVAL, errno.ENOTTY})
_LACKING: Final = (
    "reads past the page cache",
    "what of a file is in memory",
    "syncs of many files in one call",
    "the place of a callback that holds the event loop",
    "the memory that the process uses, and the limit of a control group",
    "notices to systemd",
)


def sync_data(descriptor: int) -> None:
    """Make what was written to a file durable: its bytes, and its size. Raises OSError."""
    if _FULL_SYNC is not None:
        _sync_fully(descriptor, _FULL_SYNC)
    else:
        os.fdatasync(descriptor)


def sync(descriptor: int) -> None:
    """Make a file, or the names in a directory, durable with all that is known of it. OSError."""
    if _FULL_SYNC is not None:
        _sync_fully(descriptor, _FULL_SYNC)
    else:
        os.fsync(descriptor)


def _sync_fully(descriptor: int, command: int) -> None:
    """As fsync(2) of Linux: that of macOS leaves what was written in the memory of the disk."""
    try:
        fcntl.fcntl(descriptor, command)
    except OSError as error:
        # A file system that knows no such command, of a network say; any other error is the disk's.
        if error.errno not in _NO_FULL_SYNC:
            raise
        os.fsync(descriptor)


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def lacking() -> tuple[str, ...]:
    """Return what kgw does without here, in words for an operator; nothing on Linux."""
    return () if IS_LINUX else _LACKING
