"""PartitionReader: a topic's partitions in this process, as seeks and subscriptions read them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kgw.errors import CorruptionError, ErrorCode, KafkaError, KgwError, StorageError
from kgw.offsets.ranges import DamagedRangeError, OffsetBounds, SeekOutOfRangeError
from kgw.offsets.reader import (
    Answers,
    FoundRecord,
    PartitionBatches,
    RecordReader,
    timestamp_ms_at,
)
from kgw.partitions.lookup import find_by_time, find_max_timestamp
from kgw.partitions.reading import FetchRead, PartitionRead

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from kgw.clock import Clock
    from kgw.partitions.lookup import TimestampOffset
    from kgw.partitions.partition import Partition
    from kgw.partitions.topic import Topic
    from kgw.partitions.waits import FetchDeadlines
    from kgw.records.limits import DecompressionLimits

_ResultT = TypeVar("_ResultT")

LOOKUPS_AT_ONCE = 3
"""Look-ups by time of one request that run side by side: fewer than there are I/O threads, so that
one for ten thousand partitions, or topics, leaves a thread to others."""


class PartitionReader(RecordReader):
    """Reads a topic of this process.

    With `read_committed` nothing past the last stable offset is shown.
    """

    def __init__(
        self,
        topic: Topic,
        clock: Clock,
        deadlines: FetchDeadlines,
        limits: DecompressionLimits,
        *,
        read_committed: bool = False,
        lookups: asyncio.Semaphore | None = None,
    ) -> None:
        """`lookups` is shared by the readers of one request."""
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self._topic = topic
        self._clock = clock
        self._deadlines = deadlines
        self._limits = limits
        self._read_committed = read_committed
        self._lookups = lookups or asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def bounds(self, partitions: Collection[int]) -> Answers[OffsetBounds]:
        """Return what can be read of each partition: from memory, without waiting."""
        answers: Answers[OffsetBounds] = {}
        for index in partitions:
            partition = self._topic.partition(index)
            answers[index] = (
                self._unknown(index)
                if partition is None or self._topic.is_deleted
                else OffsetBounds(partition.log.log_start_offset, self._end(partition))
            )
        return answers

    async def find_by_time(self, times_ns: Mapping[int, int]) -> Answers[FoundRecord | None]:
        async def find(index: int, partition: Partition) -> FoundRecord | None:
            timestamp_ms = timestamp_ms_at(times_ns[index])
            return _found(
                await find_by_time(partition.log, timestamp_ms, self._end(partition), self._limits)
            )

        return await self._each(times_ns, find)

    async def find_newest(self, partitions: Collection[int]) -> Answers[FoundRecord | None]:
        async def find(_: int, partition: Partition) -> FoundRecord | None:
            return _found(
                await find_max_timestamp(partition.log, self._end(partition), self._limits)
            )

        return await self._each(partitions, find)

    async def read(
        self, positions: Mapping[int, int], *, max_bytes: int, max_wait_ms: int
    ) -> Answers[PartitionBatches]:
        parts = {
            index: PartitionRead(self._topic.partition(index), offset, max_bytes)
            for index, offset in positions.items()
        }
        read = FetchRead(
            list(parts.values()),
            max_bytes=max_bytes,
            min_bytes=1,
            deadline_s=self._clock.monotonic_s() + max_wait_ms / 1000,
            clock=self._clock,
            deadlines=self._deadlines,
        )
        if not read.start():
            try:
                await read
            except asyncio.CancelledError:
                read.stop()
                raise
        return {index: await self._answer(index, part) for index, part in parts.items()}

    async def _answer(self, index: int, part: PartitionRead) -> PartitionBatches | KgwError:
        bounds = OffsetBounds(part.log_start_offset, part.high_watermark)
        if part.error_code is ErrorCode.NONE:
            return PartitionBatches(part.buffers, bounds)
        partition = part.partition
        if partition is None or partition.topic.is_deleted:
            return self._unknown(index)
        if part.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return SeekOutOfRangeError(index, part.offset, bounds)
        if part.error_code is ErrorCode.CORRUPT_MESSAGE:
            end_offset = await _damage_end(partition, part.offset)
            return DamagedRangeError(index, part.offset, end_offset)
        return KafkaError(part.error_code, f"partition {index} cannot be read")

    async def _each(
        self,
        partitions: Collection[int],
        find: Callable[[int, Partition], Awaitable[_ResultT]],
    ) -> Answers[_ResultT]:
        """Look something up in each partition, several at a time."""
        answers: Answers[_ResultT] = {}
        left = iter(partitions)

        async def work() -> None:
            for index in left:
                partition = self._topic.partition(index)
                if partition is None:
                    answers[index] = self._unknown(index)
                    continue
                try:
                    async with self._lookups:
                        answers[index] = await find(index, partition)
                except KgwError as error:
                    answers[index] = self._unknown(index) if self._topic.is_deleted else error

        if len(partitions) == 1:
            await work()
        else:
            workers = min(LOOKUPS_AT_ONCE, len(partitions))
            await asyncio.gather(*(work() for _ in range(workers)))
        return answers

    def _end(self, partition: Partition) -> int:
        if self._read_committed:
            return partition.last_stable_offset
        return partition.log.high_watermark

    def _unknown(self, index: int) -> KafkaError:
        if self._topic.is_deleted:
            code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has been deleted"
        elif self._topic.has_partition(index):
            code, why = ErrorCode.NOT_LEADER_OR_FOLLOWER, f"has partition {index} on another node"
        else:
            code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"has no partition {index}"
        return KafkaError(code, f"topic {self.topic} {why}")


def _found(at: TimestampOffset | None) -> FoundRecord | None:
    return None if at is None else FoundRecord(at.offset, at.timestamp_ms, at.leader_epoch)


async def _damage_end(partition: Partition, offset: int) -> int | None:
    """Return the first offset behind a damaged batch, where the log can tell."""
    try:
        await partition.log.read(offset, 1, partition.log.high_watermark)
    except CorruptionError as error:
        return error.end_offset
    except StorageError:
        pass
    return None
