"""PartitionReader: reads a topic's partitions in this process, for seeks and subscriptions."""

from __future__ import annotations

import asyncio
from functools import partial
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
from kgw.partitions.read.answer_room import AnswerBudget
from kgw.partitions.read.fetch_parts import PartitionRead
from kgw.partitions.read.lookups_by_time import Lookups
from kgw.partitions.read.reading import FetchRead, fetch_times
from kgw.partitions.view import Isolation
from kgw.records.aborted import aborted_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from kgw.partitions.read.cold_reads import ColdReads
    from kgw.partitions.topics.topic import Topic
    from kgw.partitions.view import Bounds, PartitionView
    from kgw.partitions.waits import RequestDeadlines

_ResultT = TypeVar("_ResultT")


class PartitionReader(RecordReader):
    """Reads a topic in this process at an isolation level."""

    def __init__(
        self,
        topic: Topic,
        deadlines: RequestDeadlines,
        cold_reads: ColdReads,
        *,
        isolation: int = Isolation.READ_UNCOMMITTED,
    ) -> None:
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self._topic = topic
        self._deadlines = deadlines
        self._cold_reads = cold_reads
        self._limits = topic.config.decompression_limits
        self._isolation = isolation

    def _view(self, index: int) -> PartitionView | None:
        partition = self._topic.partition(index)
        return None if partition is None else partition.view(self._isolation)

    async def bounds(self, partitions: Collection[int]) -> Answers[OffsetBounds]:
        """Return the readable bounds of each partition, from memory without waiting."""
        answers: Answers[OffsetBounds] = {}
        for index in partitions:
            view = self._view(index)
            answers[index] = (
                self._unknown(index)
                if view is None or self._topic.is_deleted
                else _offset_bounds(view.bounds())
            )
        return answers

    async def find_by_time(self, times_ns: Mapping[int, int]) -> Answers[FoundRecord | None]:
        async def find(index: int, view: PartitionView) -> FoundRecord | None:
            timestamp_ms = timestamp_ms_at(times_ns[index])
            return await view.find_by_time(timestamp_ms, self._limits)

        return await self._each(times_ns, find)

    async def find_newest(self, partitions: Collection[int]) -> Answers[FoundRecord | None]:
        async def find(_: int, view: PartitionView) -> FoundRecord | None:
            return await view.find_max_timestamp(self._limits)

        return await self._each(partitions, find)

    async def read(
        self, positions: Mapping[int, int], *, max_bytes: int, max_wait_ms: int
    ) -> Answers[PartitionBatches]:
        parts = {
            index: PartitionRead(self._view(index), offset, max_bytes)
            for index, offset in positions.items()
        }
        times = fetch_times(self._deadlines.clock.monotonic_s(), max_wait_ms)
        budget = AnswerBudget(max_bytes, 1)
        read = FetchRead([*parts.values()], budget, times, self._deadlines, self._cold_reads)
        try:
            if not read.is_done:
                await read
                read.read_latest()
        finally:
            read.stop()
        lookups = Lookups(self._deadlines.clock)
        return {index: await self._answer(index, part, lookups) for index, part in parts.items()}

    async def _answer(
        self, index: int, part: PartitionRead, lookups: Lookups
    ) -> PartitionBatches | KgwError:
        bounds = _offset_bounds(part.bounds)
        if part.error_code is ErrorCode.NONE:
            if self._isolation != Isolation.READ_COMMITTED or not part.buffers:
                return PartitionBatches(part.buffers, bounds)
            transactions = part.aborted()
            if part.buffers:
                aborted = aborted_batches(part.buffers, transactions)
                return PartitionBatches(part.buffers, bounds, aborted)
            # The records were removed since the read, and their transactions are forgotten.
            part.examine()
        view = part.view
        if view is None or view.presence.gone_code is not None:
            return self._unknown(index)
        if part.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            # `part.bounds` is empty, as Fetch sends no bounds with this error.
            return SeekOutOfRangeError(index, part.offset, _offset_bounds(view.bounds()))
        if part.error_code is ErrorCode.CORRUPT_MESSAGE:
            end_offset = await _damage_end(view, part.offset, lookups)
            return DamagedRangeError(index, part.offset, end_offset)
        return KafkaError(part.error_code, f"partition {index} cannot be read")

    async def _each(
        self,
        partitions: Collection[int],
        find: Callable[[int, PartitionView], Coroutine[None, None, _ResultT]],
    ) -> Answers[_ResultT]:
        """Run a lookup for each partition, several at a time."""
        lookups = Lookups(self._deadlines.clock)

        async def look(index: int) -> _ResultT | KgwError:
            view = self._view(index)
            if view is None:
                return self._unknown(index)
            try:
                return await lookups.run(partial(find, index, view))
            except KgwError as error:
                return self._unknown(index) if self._topic.is_deleted else error

        return dict(zip(partitions, await asyncio.gather(*map(look, partitions)), strict=True))

    def _unknown(self, index: int) -> KafkaError:
        if self._topic.is_deleted:
            code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has been deleted"
        elif self._topic.has_partition(index):
            code, why = ErrorCode.NOT_LEADER_OR_FOLLOWER, f"has partition {index} on another node"
        else:
            code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"has no partition {index}"
        return KafkaError(code, f"topic {self.topic} {why}")


def _offset_bounds(bounds: Bounds) -> OffsetBounds:
    return OffsetBounds(bounds.log_start_offset, bounds.end_offset)


async def _damage_end(view: PartitionView, offset: int, lookups: Lookups) -> int | None:
    """Return the first offset after a damaged batch; None if the log cannot tell it in time."""
    try:
        await lookups.run(partial(view.read, offset, 1, view.bounds().end_offset))
    except CorruptionError as error:
        return error.end_offset
    except StorageError:
        pass
    return None
