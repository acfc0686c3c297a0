"""How SeaweedMQ names what Kafka calls a partition and a group. Pure.

SeaweedMQ divides the ring of a topic into ranges of slots. The scheme that kgw takes over, that of
SeaweedFS in September 2025, gave Kafka partition N the 32 slots from N*32 on, both ends included,
on a ring of 1,024 and later of 2,520. Newer versions divide the ring by the number of partitions.
"""

from __future__ import annotations

from typing import NamedTuple

SLOTS_PER_PARTITION = 32
GROUP_PREFIX = "kafka-cg-"


class RingRange(NamedTuple):
    """Slots of a ring, both ends included."""

    start: int
    stop: int

    def __str__(self) -> str:
        """As SeaweedMQ names the directory of a partition: four digits at least."""
        return f"{self.start:04d}-{self.stop:04d}"


def ring_range(partition: int) -> RingRange:
    """Return the slots of a Kafka partition. Raises ValueError for a negative number."""
    if partition < 0:
        raise ValueError(f"a partition is not negative: {partition}")
    start = partition * SLOTS_PER_PARTITION
    return RingRange(start, start + SLOTS_PER_PARTITION - 1)


def partition_of(slots: RingRange) -> int:
    """Return the Kafka partition that has exactly these slots. Raises ValueError for others."""
    partition = slots.start // SLOTS_PER_PARTITION
    if slots.start < 0 or ring_range(partition) != slots:
        raise ValueError(f"slots {slots} are not those of one Kafka partition")
    return partition


def parse_ring_range(text: str) -> RingRange:
    """Return the range that a directory is named after, as 0032-0063. Raises ValueError."""
    start, dash, stop = text.partition("-")
    if not dash or not (start + stop).isascii() or not (start.isdigit() and stop.isdigit()):
        raise ValueError(f"not a range of slots like 0032-0063: {text!r}")
    return RingRange(int(start), int(stop))


def smq_group_name(group_id: str) -> str:
    """Return what a Kafka group is called in SeaweedMQ."""
    return GROUP_PREFIX + group_id


def group_id_of(name: str) -> str:
    """Return the Kafka group of a name in SeaweedMQ.

    A name without the prefix is the group's own: the gateways of the old scheme stored groups under
    either.
    """
    return name.removeprefix(GROUP_PREFIX) or name
