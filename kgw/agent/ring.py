"""SMQ's ring of slots: finds the partition of a key, and of a range of slots. Pure."""

from __future__ import annotations

from hashlib import md5
from typing import Final

RING_SLOTS: Final = 2520
"""The number of slots that an SMQ topic divides among its partitions."""
_OWN_RANGE: Final = 32
"""In a topic that kgw leads, partition N has the slots from N * 32 on, whatever the partition
count.
"""


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition that SMQ's own publisher chooses: its range has the key's slot.

    The slot is computed from the first four bytes of the key's MD5. All records without a key go to
    one partition, which keeps their order. If a topic has more partitions than slots, which SMQ
    does not allow, the hash chooses the partition.
    """
    digest = md5(key, usedforsecurity=False).digest()
    number = abs(int.from_bytes(digest[:4], "big", signed=True))
    if partition_count > RING_SLOTS:
        return number % partition_count
    slot = number % RING_SLOTS
    return min(slot // (RING_SLOTS // partition_count), partition_count - 1)


def partition_of_range(
    ring_size: int, range_start: int, range_stop: int, partition_count: int
) -> int | None:
    """Return the partition that an SMQ client means by a range of slots; None if it means none.

    A range may follow SMQ's division of the ring, by the number of partitions, or kgw's.
    """
    if ring_size == RING_SLOTS and 0 < partition_count <= RING_SLOTS:
        size = RING_SLOTS // partition_count
        index, rest = divmod(range_start, size)
        stop = RING_SLOTS if index == partition_count - 1 else range_start + size
        if not rest and 0 <= index < partition_count and range_stop == stop:
            return index
    index, rest = divmod(range_start, _OWN_RANGE)
    if rest or not 0 <= index < partition_count:
        return None
    # Some clients name the last slot of a range, others the slot after it.
    is_own = range_stop - range_start in {_OWN_RANGE - 1, _OWN_RANGE}
    return index if is_own else None
