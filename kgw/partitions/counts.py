"""Counts of records and bytes produced to and fetched from each partition.

Without `kgw.metrics.labels` partitions have no counts of their own: all share one object.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final

from kgw.partitions.append.appending import AppendCounts
from kgw.records.batch import CONTROL_FLAG, PREFIX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.types import Buffer, PartitionKey, TopicId

# The header of a batch: base offset, batch length, leader epoch, magic, CRC, attributes, further
# fields, number of records.
_HEADER: Final = Layout(">8xi4xx4xh34xi")


class PartitionCounts(AppendCounts):
    """Records and bytes appended to a partition, and fetched from it by clients."""

    __slots__ = ("fetched_bytes", "fetched_records")

    def __init__(self) -> None:
        super().__init__()
        self.fetched_bytes = 0
        self.fetched_records = 0

    def add(self, other: PartitionCounts) -> None:
        """Add the counts of another object."""
        self.batches += other.batches
        self.records += other.records
        self.size_bytes += other.size_bytes
        self.fetched_bytes += other.fetched_bytes
        self.fetched_records += other.fetched_records


class CountsByPartition:
    """The counts of every partition on this node."""

    def __init__(self) -> None:
        self._by_topic: dict[TopicId, dict[int, PartitionCounts]] = {}
        self._gone = PartitionCounts()

    def of(self, key: PartitionKey) -> PartitionCounts:
        """Return the counts of a partition; new ones if it has none yet."""
        topic = self._by_topic.setdefault(key.topic_id, {})
        found = topic.get(key.partition)
        if found is None:
            found = topic[key.partition] = PartitionCounts()
        return found

    def fetched(self, key: PartitionKey, buffers: Iterable[Buffer], *, are_batches: bool) -> None:
        """Count bytes of a partition in an answer, and records if they are batches (magic 2).

        Does nothing if the topic was deleted meanwhile.
        """
        counts = self._by_topic.get(key.topic_id, {}).get(key.partition)
        if counts is None:
            return
        for buffer in buffers:
            counts.fetched_bytes += len(buffer)
            if are_batches:
                counts.fetched_records += record_count(buffer)

    def forget_topic(self, topic_id: TopicId) -> dict[int, PartitionCounts]:
        """Remove and return the counts of a deleted topic's partitions, which stay in the total."""
        topic = self._by_topic.pop(topic_id, {})
        for one in topic.values():
            self._gone.add(one)
        return topic

    def total(self) -> PartitionCounts:
        """Return the counts of all partitions together, including deleted ones."""
        total = PartitionCounts()
        total.add(self._gone)
        for topic in self._by_topic.values():
            for one in topic.values():
                total.add(one)
        return total


def record_count(buffer: Buffer) -> int:
    """Return the number of records in whole batches by their headers; no control records."""
    found = position = 0
    while position + _HEADER.size <= len(buffer):
        length, attributes, count = _HEADER.unpack_from(buffer, position)
        if length < _HEADER.size - PREFIX_BYTES:
            break  # Damaged bytes: the client that reads the records reports them.
        if not attributes & CONTROL_FLAG:
            found += count
        position += PREFIX_BYTES + length
    return found
