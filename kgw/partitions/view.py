"""A view of a partition: the visible records, and notifications of new records.

Code that reads records, or reports a partition's offsets to clients, uses a view. `bounds` alone
decides where the visible part of a log ends, and `aborted` alone which records in it belong to
aborted transactions. With read_committed the records below the last stable offset are visible; the
first open transaction begins there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kgw.backend.base import ReadResult
from kgw.errors import ErrorCode, KafkaError
from kgw.records.batch import HEADER_BYTES
from kgw.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from kgw.backend.base import EpochEnd, PartitionLog
    from kgw.offsets.reader import FoundRecord
    from kgw.partitions.append.producer_state import ProducerState
    from kgw.records.limits import DecompressionLimits
    from kgw.types import Buffer, TopicId, TopicName

# The last field of a batch's header says how many records follow.
_COUNT_BYTES: Final = 4


class Isolation(IntEnum):
    """Whether a reader gets the records of open and aborted transactions, by Kafka's numbers."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


_LEVELS = frozenset(map(int, Isolation))


def check_isolation(level: int) -> None:
    """Raise KafkaError INVALID_REQUEST for an unknown isolation level."""
    if level not in _LEVELS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"isolation level {level} is neither 0 nor 1")


class Bounds(NamedTuple):
    """The first offset and the end offsets of a log at one time."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    end_offset: int
    """The end of the records that are visible at the isolation level: the high watermark or the
    last stable offset."""


class AbortedRange(NamedTuple):
    """A producer's aborted records, from an offset to its marker: READ_COMMITTED skips them."""

    producer_id: int
    first_offset: int


class ReadTopic(Protocol):
    """The properties of a topic that readers of its partitions use."""

    name: TopicName
    topic_id: TopicId
    is_deleted: bool


class Presence:
    """Whether a partition is on this node. A partition and its views share one object."""

    __slots__ = ("gone_code",)

    def __init__(self) -> None:
        self.gone_code: ErrorCode | None = None
        """The error for requests after the partition was deleted or has moved; None before."""


class PartitionListener(Protocol):
    """An object that is notified when the readable records of a partition change."""

    def advanced(self, size_bytes: int) -> None:
        """Handle that `size_bytes` more can be read."""

    def fire(self) -> None:
        """Handle that the log start offset has moved, or that the partition is gone."""


class PartitionView:
    """The view of a partition for readers of one isolation level."""

    __slots__ = ("_listeners", "_log", "_producers", "index", "isolation", "presence", "topic")

    def __init__(
        self,
        topic: ReadTopic,
        index: int,
        log: PartitionLog,
        producers: ProducerState,
        listeners: dict[PartitionListener, None],
        isolation: Isolation,
        presence: Presence,
    ) -> None:
        """`producers`, `listeners` and `presence` belong to the partition."""
        self.topic = topic
        self.index = index
        self.isolation = isolation
        self.presence = presence
        self._log = log
        self._producers = producers
        self._listeners = listeners

    def __repr__(self) -> str:
        return f"<PartitionView {self.topic.name}-{self.index} {self.isolation.name}>"

    @property
    def identity(self) -> Hashable:
        """Differs between views that may read different bytes at the same offset."""
        return type(self), self._log, self.isolation

    # --- bounds and transactions -----------------------------------------------------------------

    def bounds(self) -> Bounds:
        """Return the current log start offset and end offsets."""
        log = self._log
        log_start_offset = log.log_start_offset
        high_watermark = log.high_watermark
        last_stable_offset = high_watermark
        for first in self._producers.open_transactions:
            # DeleteRecords may have removed the beginning.
            last_stable_offset = max(log_start_offset, min(first.first_offset, high_watermark))
            break
        is_committed = self.isolation is Isolation.READ_COMMITTED
        return Bounds(
            log_start_offset,
            high_watermark,
            last_stable_offset,
            last_stable_offset if is_committed else high_watermark,
        )

    def aborted(self, from_offset: int, to_offset: int) -> Sequence[AbortedRange]:
        """Return the aborted transactions whose records may lie in `[from_offset, to_offset)`.

        Forgotten transactions are left out: see `aborted_from`.
        """
        index = self._producers.aborted
        if index is None:
            return ()
        return [AbortedRange(*one) for one in index.overlapping(from_offset, to_offset)]

    @property
    def aborted_from(self) -> int:
        """The offset below which transactions with their abort markers are forgotten.

        If it has risen above records that were read, they must be read again: they may belong to
        aborted transactions that `aborted` has forgotten.
        """
        return self._producers.aborted_from

    def is_readable(self, offset: int, bounds: Bounds) -> bool:
        """Return whether a Fetch offset is in range; `bounds` are the current bounds.

        An offset that is assigned but not visible yet is in range: the reader waits for it.
        """
        return (
            bounds.log_start_offset <= offset
            and (offset < bounds.end_offset or offset <= self._log.end_offset)
            and not self._log.is_in_gap(offset)
        )

    # --- records ---------------------------------------------------------------------------------

    def read_hot(self, offset: int, max_bytes: int, end_offset: int) -> ReadResult | None:
        """Read from memory without waiting.

        Return None if only `read`, which may wait, has the records.

        The result may end early if there are many small batches, as in `PartitionLog.read_hot`.
        """
        return self._log.read_hot(offset, max_bytes, end_offset)

    async def read(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool = True
    ) -> ReadResult:
        """Return whole batches from `offset` up to a bound from `bounds`, as `read_on` does."""
        return await read_on(self._log, offset, max_bytes, end_offset, at_least_one=at_least_one)

    async def find_by_time(
        self, timestamp_ms: int, limits: DecompressionLimits
    ) -> FoundRecord | None:
        """Return the first visible record at or after a time, as `lookup.find_by_time` does."""
        # Imported here to keep start-up fast.
        from kgw.partitions.lookup import find_by_time

        return await find_by_time(self._log, timestamp_ms, self.bounds().end_offset, limits)

    async def find_max_timestamp(self, limits: DecompressionLimits) -> FoundRecord | None:
        """Return the first visible record with the highest timestamp (KIP-734), or None."""
        from kgw.partitions.lookup import find_max_timestamp

        return await find_max_timestamp(self._log, self.bounds().end_offset, limits)

    # --- leader epochs ---------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        return self._log.leader_epoch

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise KafkaError unless a client's leader epoch is the current one (KIP-320).

        -1 means that the client knows no epoch, and is always accepted.
        """
        if current_leader_epoch == NO_LEADER_EPOCH:
            return
        leader_epoch = self._log.leader_epoch
        if current_leader_epoch < leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {leader_epoch} by now"
            )
        if current_leader_epoch > leader_epoch:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"the leader epoch is only {leader_epoch}"
            )

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        """Return the end offset of an epoch, as `PartitionLog.epoch_end` does."""
        return self._log.epoch_end(leader_epoch)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, even if it is not written yet."""
        return self._log.epoch_at(offset)

    # --- notifications ---------------------------------------------------------------------------

    def listen(self, listener: PartitionListener) -> None:
        """Notify a listener of changes. A second call for it has no effect."""
        self._listeners[listener] = None

    def ignore(self, listener: PartitionListener) -> None:
        """Stop notifying a listener, if it is registered."""
        self._listeners.pop(listener, None)


async def read_on(
    log: PartitionLog, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool
) -> ReadResult:
    """Read as `PartitionLog.read` does, and continue while all batches are without records.

    Compaction leaves such batches. kafka-go (0.4.51) starts again at offset 0 after an answer
    without records.
    """
    result = await log.read(offset, max_bytes, end_offset, at_least_one=at_least_one)
    while result.size_bytes and result.next_offset < end_offset:
        if not all(map(_has_no_record, result.buffers)):
            break
        left_bytes = max(0, max_bytes - result.size_bytes)
        more = await log.read(result.next_offset, left_bytes, end_offset)
        if not more.size_bytes:
            break
        result = ReadResult(
            [*result.buffers, *more.buffers],
            result.size_bytes + more.size_bytes,
            more.next_offset,
            result.batches + more.batches,
            more.is_cut,
        )
    return result


def _has_no_record(buffer: Buffer) -> bool:
    """Return whether the buffer has only batches without records, which consist of headers."""
    return all(
        not any(buffer[end - _COUNT_BYTES : end])
        for end in range(HEADER_BYTES, len(buffer) + 1, HEADER_BYTES)
    )
