"""Functions of the operating system that differ between Linux and macOS, or are missing in one.

kgw is made for Linux. On macOS, servers, tests and tools can run on laptops; that was tested only
on a Linux without the functions that macOS lacks (docs/decisions/0149-macos.md).
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from typing import Final

IS_LINUX: Final = sys.platform == "linux"
"""Whether Linux's system call numbers can be used."""

HAS_THREAD_CLOCKS: Final = hasattr(time, "pthread_getcpuclockid")
"""Whether a thread can read the processor time of another thread."""

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
    """Make the written bytes and the size of a file durable. Raises OSError."""
    if _FULL_SYNC is not None:
        _sync_fully(descriptor, _FULL_SYNC)
    else:
        os.fdatasync(descriptor)


def sync(descriptor: int) -> None:
    """Make a file with its metadata, or the names in a directory, durable. Raises OSError."""
    if _FULL_SYNC is not None:
        _sync_fully(descriptor, _FULL_SYNC)
    else:
        os.fsync(descriptor)


def _sync_fully(descriptor: int, command: int) -> None:
    """Sync as fsync(2) does on Linux; on macOS, fsync leaves written data in the disk's cache."""
    try:
        fcntl.fcntl(descriptor, command)
    except OSError as error:
        # Some file systems, such as network ones, do not support the command. Any other error
        # comes from the disk.
        if error.errno not in _NO_FULL_SYNC:
            raise
        os.fsync(descriptor)


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def lacking() -> tuple[str, ...]:
    """Return the functions that kgw lacks on this system, as texts for operators."""
    return () if IS_LINUX else _LACKING
