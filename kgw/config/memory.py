"""Computes how much memory the process, and its requests, may use."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from kgw.config import Config

# The memory to assume if the system does not report it; small enough for a laptop.
DEFAULT_MEMORY_BYTES = 4 << 30


def request_memory_bytes(config: Config) -> int:
    """Return the memory for the requests of all connections; a quarter by default."""
    given = config.request_memory_bytes
    return available_memory_bytes() // 4 if given < 0 else given


def available_memory_bytes(
    cgroup: str | PathLike[str] = "/sys/fs/cgroup",
    membership: str | PathLike[str] = "/proc/self/cgroup",
) -> int:
    """Return the memory that this process may use: its control group's limit, or the machine's.

    In a container, the process's group looks like the root; a systemd service is in a group below
    the root, and the limits of all groups above it apply, too.
    """
    limits = [_machine_memory_bytes()]
    paths = [f"{cgroup}/memory/memory.limit_in_bytes"]
    group = _group(membership)
    while group.strip("/"):
        paths.append(f"{cgroup}{group}/memory.max")
        group = group.rpartition("/")[0]
    for path in (*paths, f"{cgroup}/memory.max"):
        # `open`, because importing pathlib would slow the start down.
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
