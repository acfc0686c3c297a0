"""How much memory the process may use, and what of it is for requests."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from kgw.config import Config

# Where nothing says how much memory there is, a budget that a laptop does not notice.
DEFAULT_MEMORY_BYTES = 4 << 30


def request_memory_bytes(config: Config) -> int:
    """Return what the requests of all connections may take: a quarter unless it is set."""
    given = config.request_memory_bytes
    return available_memory_bytes() // 4 if given < 0 else given


def available_memory_bytes(cgroup: str | PathLike[str] = "/sys/fs/cgroup") -> int:
    """Return the memory this process may use: the control group's limit or the machine's."""
    limits = [_machine_memory_bytes()]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        path = f"{cgroup}/{name}"
        # By `open`: pathlib costs start-up time.
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:  # noqa: PTH123
            limits.append(int(file.read()))
    return min(limits)


def _machine_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return DEFAULT_MEMORY_BYTES
