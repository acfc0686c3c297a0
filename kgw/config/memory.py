"""How much memory the process may use, and which part of it requests may use."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from kgw.config import Config

# The budget if the system does not report its memory: small enough for a laptop.
DEFAULT_MEMORY_BYTES = 4 << 30


def request_memory_bytes(config: Config) -> int:
    """Return the memory for the requests of all connections: a quarter unless it is set."""
    given = config.request_memory_bytes
    return available_memory_bytes() // 4 if given < 0 else given


def available_memory_bytes(
    cgroup: str | PathLike[str] = "/sys/fs/cgroup",
    membership: str | PathLike[str] = "/proc/self/cgroup",
) -> int:
    """Return the memory this process may use: the control group's limit or the machine's.

    A container sees its own group as the root; a service of systemd is in a group below the root,
    and the limits of all groups above it hold, too.
    """
    limits = [_machine_memory_bytes()]
    paths = [f"{cgroup}/memory/memory.limit_in_bytes"]
    group = _group(membership)
    while group.strip("/"):
        paths.append(f"{cgroup}{group}/memory.max")
        group = group.rpartition("/")[0]
    for path in (*paths, f"{cgroup}/memory.max"):
        # With `open`, because pathlib would cost start-up time.
        with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:  # noqa: PTH123
            limits.append(int(file.read()))
    return min(limits)


def _group(membership: str | PathLike[str]) -> str:
    """Return the path of this process's control group (version 2), as the kernel reports it."""
    with contextlib.suppress(OSError, ValueError), open(membership, encoding="utf-8") as file:  # noqa: PTH123
        for line in file.read().splitlines():
            if line.startswith("0::/"):
                return line[3:]
    return ""


def _machine_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return DEFAULT_MEMORY_BYTES
