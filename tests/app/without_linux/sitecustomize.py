"""Takes from a process, before its first line, what macOS lacks.

In a folder of its own: whoever has that in PYTHONPATH imports it, child processes too. Full syncs
are written down in the file that FULL_SYNCS_FILE names, one byte for each.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
import sys
import sysconfig
import time
import types

LACKING = {
    os: "fdatasync O_DIRECT RWF_NOWAIT RWF_DSYNC RWF_HIPRI RWF_SYNC RWF_APPEND sched_getaffinity "
    "sched_setaffinity posix_fadvise posix_fallocate copy_file_range memfd_create pidfd_open "
    "eventfd eventfd_read eventfd_write splice O_TMPFILE O_PATH getrandom pipe2",
    time: "pthread_getcpuclockid CLOCK_BOOTTIME CLOCK_TAI",
    select: "epoll",
}
FULL_SYNC = 51
"""Of macOS's fcntl.h."""
OPEN_MAX = 10_240
"""More descriptors macOS does not let a process ask for, though it says that there is no limit."""

real_fcntl = fcntl.fcntl


def fcntl_of_macos(descriptor: int, command: int, argument: int = 0, /) -> int:
    """Sync fully, and write that down, or fail as FULL_SYNC_ERROR says; all else as here."""
    if command != FULL_SYNC:
        return real_fcntl(descriptor, command, argument)
    if error := os.environ.get("FULL_SYNC_ERROR"):
        raise OSError(getattr(errno, error), error)
    os.fsync(descriptor)
    counted = os.open(os.environ["FULL_SYNCS_FILE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(counted, b".")
    os.close(counted)
    return 0


def refuse_paths_of_linux(event: str, arguments: tuple[object, ...]) -> None:
    """Raise FileNotFoundError where something below /proc or /sys is opened or listed."""
    path = arguments[0] if event in {"open", "os.listdir", "os.scandir"} else ""
    if str(path).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def refuse_many_descriptors(kind: int, limits: tuple[int, int]) -> None:
    """Raise ValueError as setrlimit does there."""
    if kind == resource.RLIMIT_NOFILE and not 0 <= limits[0] <= OPEN_MAX:
        raise ValueError("current limit exceeds maximum limit")


for module, names in LACKING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
# The standard library asks macOS for its proxies when it is imported there.
proxies = types.ModuleType("_scproxy")
vars(proxies).update(_get_proxy_settings=dict, _get_proxies=dict)
sys.modules["_scproxy"] = proxies
vars(fcntl).update(F_FULLFSYNC=FULL_SYNC, fcntl=fcntl_of_macos)
vars(resource).update(
    getrlimit=lambda _: (256, resource.RLIM_INFINITY), setrlimit=refuse_many_descriptors
)
# Read by the name of the system, and remembered.
sysconfig.get_config_vars()
sys.addaudithook(refuse_paths_of_linux)
sys.platform = "darwin"
