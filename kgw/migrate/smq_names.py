"""What SeaweedMQ called a partition and a group of Kafka. Pure.

SeaweedMQ divides the ring of a topic into ranges of slots. The scheme that kgw takes over, that of
SeaweedFS in September 2025, gave Kafka partition N the 32 slots from N*32 on, both ends included,
on a ring of 1,024 and later of 2,520. Newer versions divide the ring by the number of partitions.
"""

from __future__ import annotations

SLOTS_PER_PARTITION = 32
GROUP_PREFIX = "kafka-cg-"


def ring_range(partition: int) -> tuple[int, int]:
    """Return the first and the last slot of a Kafka partition."""
    start = partition * SLOTS_PER_PARTITION
    return start, start + SLOTS_PER_PARTITION - 1


def partition_of(directory: str) -> int:
    """Return the Kafka partition whose slots a directory is named after, as 0032-0063.

    Raises ValueError for another name, and for slots that are not those of one partition.
    """
    start, dash, stop = directory.partition("-")
    if not dash or not (start + stop).isascii() or not (start.isdigit() and stop.isdigit()):
        raise ValueError(f"not a range of slots like 0032-0063: {directory!r}")
    partition = int(start) // SLOTS_PER_PARTITION
    if ring_range(partition) != (int(start), int(stop)):
        raise ValueError(f"slots {directory} are not those of one Kafka partition")
    return partition


def group_id_of(name: str) -> str:
    """Return the Kafka group of a name in SeaweedMQ.

    A name without the prefix is the group's own: the gateways of the old scheme stored groups under
    either.
    """
    return name.removeprefix(GROUP_PREFIX) or name
