"""RecordReader: the narrow interface through which seeks and subscriptions read a log.

It reads partitions in this process and over the network in the same way: bounds, stored batches
from an offset on, and the first record at or past a time. Times are in nanoseconds here (`ts_ns`),
as in native offsets.
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
"""By partition; the value is an error if the partition could not be asked."""


def ts_ns_of(timestamp_ms: int) -> int:
    """Return a record's timestamp in nanoseconds, at most the largest int64 (the year 2262)."""
    if timestamp_ms == NO_TIMESTAMP_MS:
        return NO_TS_NS
    return min(timestamp_ms * _NS_PER_MS, MAX_TS_NS)


def ts_ns_at(timestamp_ms: int) -> int:
    """Return a time to seek to in nanoseconds; it may exceed an int64."""
    return timestamp_ms * _NS_PER_MS


def timestamp_ms_at(ts_ns: int) -> int:
    """Return the first whole millisecond that is not before `ts_ns`."""
    return -(-ts_ns // _NS_PER_MS)


class FoundRecord(NamedTuple):
    """The record that a lookup by time found, with its own timestamp."""

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
    """The result of a read in one partition: whole batches, the first contains the position."""

    buffers: Sequence[Buffer]
    bounds: OffsetBounds
    aborted: frozenset[int] = frozenset()
    """Base offsets of batches of aborted transactions, whose records are not delivered; empty
    unless only committed records are read."""


class RecordReader(ABC):
    """Some partitions of one topic, asked by number."""

    topic: str
    topic_id: TopicId

    @abstractmethod
    async def bounds(self, partitions: Collection[int]) -> Answers[OffsetBounds]:
        """Return the readable offsets of each partition."""

    @abstractmethod
    async def find_by_time(self, times_ns: Mapping[int, int]) -> Answers[FoundRecord | None]:
        """Return each partition's first record at or past its time; None if all are older."""

    @abstractmethod
    async def find_newest(self, partitions: Collection[int]) -> Answers[FoundRecord | None]:
        """Return each partition's first record with the greatest time; None if it is empty."""

    @abstractmethod
    async def read(
        self, positions: Mapping[int, int], *, max_bytes: int, max_wait_ms: int
    ) -> Answers[PartitionBatches]:
        """Read on from each partition's position, and wait for the first record if there is none.

        `max_bytes` bounds the sum, except that the first batch may be larger. Instead of batches, a
        partition's value is SeekOutOfRangeError if the position is out of range, and
        DamagedRangeError if the records there cannot be read. Partitions without new records may be
        left out.
        """
