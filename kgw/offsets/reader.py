"""RecordReader: the interface through which seeks and subscriptions read partitions.

It has the same methods for partitions of this process and over the network: bounds, stored batches
from an offset on, and the first record at or after a time. Times are in nanoseconds (`ts_ns`), as
in native offsets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kgw.errors import KgwError
    from kgw.offsets.ranges import OffsetBounds
    from kgw.records.record import Record
    from kgw.types import Buffer, TopicId

NO_TS_NS: Final = -1
MAX_TS_NS: Final = (1 << 63) - 1
_NS_PER_MS: Final = 1_000_000

AnswerT = TypeVar("AnswerT")
Answers: TypeAlias = "dict[int, AnswerT | KgwError]"
"""Answers by partition; an error if the partition could not be read."""


def ts_ns_of(timestamp_ms: int) -> int:
    """Return a record's timestamp in nanoseconds, at most the largest int64 (the year 2262)."""
    if timestamp_ms == NO_TIMESTAMP_MS:
        return NO_TS_NS
    return min(timestamp_ms * _NS_PER_MS, MAX_TS_NS)


def ts_ns_at(timestamp_ms: int) -> int:
    """Return a time for a seek in nanoseconds, which may exceed an int64."""
    return timestamp_ms * _NS_PER_MS


def timestamp_ms_at(ts_ns: int) -> int:
    """Return the first whole millisecond that is not before `ts_ns`."""
    return -(-ts_ns // _NS_PER_MS)


class FoundRecord(NamedTuple):
    """The record found by a lookup by time, and the record's timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class ReadRecord(NamedTuple):
    """A record and its partition."""

    partition: int
    record: Record
    has_log_append_time: bool

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def ts_ns(self) -> int:
        return ts_ns_of(self.record.timestamp_ms)


class PartitionBatches(NamedTuple):
    """Whole batches that were read from one partition, beginning with the one at the position."""

    buffers: Sequence[Buffer]
    bounds: OffsetBounds
    aborted: frozenset[int] = frozenset()
    """Base offsets of aborted batches, whose records are not delivered; empty unless the isolation
    level is read_committed."""


class RecordReader(ABC):
    """Reads some partitions of one topic, which are identified by number."""

    topic: str
    topic_id: TopicId

    @abstractmethod
    async def bounds(self, partitions: Collection[int]) -> Answers[OffsetBounds]:
        """Return the readable offsets of each partition."""

    @abstractmethod
    async def find_by_time(self, times_ns: Mapping[int, int]) -> Answers[FoundRecord | None]:
        """Return each partition's first record at or after a time; None if there is none."""

    @abstractmethod
    async def find_newest(self, partitions: Collection[int]) -> Answers[FoundRecord | None]:
        """Return each partition's first record with the greatest timestamp; None if it is empty."""

    @abstractmethod
    async def read(
        self, positions: Mapping[int, int], *, max_bytes: int, max_wait_ms: int
    ) -> Answers[PartitionBatches]:
        """Read each partition from its position; if no partition has records, wait for them.

        `max_bytes` limits the total size, but the first batch may be larger. Instead of batches, a
        partition's value is SeekOutOfRangeError if the position is out of range, and
        DamagedRangeError if the records there cannot be read. Partitions without new records may be
        left out.
        """
