"""RecordReader: the narrow interface through which seeks and subscriptions read a log.

What it gives is the same over a partition in this process and over the wire: bounds, stored batches
from an offset on, and the place of a time. Times are nanoseconds here (`ts_ns`), as native offsets
have them beside every record.
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
"""By partition; a partition that could not be asked has its error in the answer's place."""


def ts_ns_of(timestamp_ms: int) -> int:
    """Return a record's time in nanoseconds; what int64 cannot hold (year 2262) is its end."""
    if timestamp_ms == NO_TIMESTAMP_MS:
        return NO_TS_NS
    return min(timestamp_ms * _NS_PER_MS, MAX_TS_NS)


def ts_ns_at(timestamp_ms: int) -> int:
    """Return a time that is looked for in nanoseconds, however far away it is."""
    return timestamp_ms * _NS_PER_MS


def timestamp_ms_at(ts_ns: int) -> int:
    """Return the first whole millisecond that is not before `ts_ns`."""
    return -(-ts_ns // _NS_PER_MS)


class FoundRecord(NamedTuple):
    """Where a look-up by time led. The time is the record's own."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class ReadRecord(NamedTuple):
    """A record and where it came from."""

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
    """What one read gave of a partition: whole batches from the one that holds the position."""

    buffers: Sequence[Buffer]
    bounds: OffsetBounds
    aborted: frozenset[int] = frozenset()
    """Base offsets of the batches whose records are not delivered: their transactions were aborted,
    and committed records are asked for."""


class RecordReader(ABC):
    """Some partitions of one topic, asked by number."""

    topic: str
    topic_id: TopicId

    @abstractmethod
    async def bounds(self, partitions: Collection[int]) -> Answers[OffsetBounds]:
        """Return what can be read of each partition now."""

    @abstractmethod
    async def find_by_time(self, times_ns: Mapping[int, int]) -> Answers[FoundRecord | None]:
        """Return each partition's first record at or past its time; None where all are older."""

    @abstractmethod
    async def find_newest(self, partitions: Collection[int]) -> Answers[FoundRecord | None]:
        """Return each partition's first record with the greatest time; None where it is empty."""

    @abstractmethod
    async def read(
        self, positions: Mapping[int, int], *, max_bytes: int, max_wait_ms: int
    ) -> Answers[PartitionBatches]:
        """Read on from each partition's position, and wait for the first record if there is none.

        `max_bytes` bounds the sum, but for a first batch that is larger. What a partition answers
        with instead of batches: SeekOutOfRangeError where it does not have the position,
        DamagedRangeError where what is there cannot be read. Partitions with nothing new may be
        left out.
        """
