"""Gives every measurement free memory in the same state, whatever ran before it.

A virtual machine may give free memory back to its host, which has to find it again when somebody
touches it: 2 to 2.6 s of processor time a GB where it was measured, and slower reads from the disk.
What was freed lately is not given back yet, so that a server would be charged by who was measured
before it, and by when Kafka deletes what it no longer needs.
"""

from __future__ import annotations

import mmap
import time

# As much as one measurement takes from the page cache, and less than the 1 GiB of free memory that
# the kernel keeps from the host where this was measured: more would start the giving back.
READY_BYTES = 960 << 20
# What is too much is given back every 2 s: that must not happen while the clock runs.
REST_S = 2.1


def settle(rest_s: float, ready_bytes: int = READY_BYTES) -> None:
    """Have so much memory free that the host has found, and let what is too much go back to it."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, ready_bytes, flags=flags).close()
    time.sleep(rest_s)
