"""A log in a list, for the tests of seeks and subscriptions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.offsets.ranges import DamagedRangeError, OffsetBounds, SeekOutOfRangeError, is_in_range
from kgw.offsets.reader import (
    Answers,
    FoundRecord,
    PartitionBatches,
    RecordReader,
    timestamp_ms_at,
)
from kgw.records.batch import read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records
from kgw.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kgw.records.batch import Compression, RecordBatch
    from kgw.records.record import Record


class StoredLog:
    """One partition: batches, where it begins and ends, and what of it is damaged."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.start = 0
        self.end = 0
        self.damaged: range = range(0)

    def add(
        self,
        *times_ms: int,
        compression: Compression | None = None,
        hole_before: int = 0,
        is_control: bool = False,
    ) -> None:
        """Append a batch with a record for each time; its value is its offset."""
        self.end += hole_before
        builder = (
            BatchBuilder(base_offset=self.end, is_control=is_control)
            if compression is None
            else BatchBuilder(base_offset=self.end, compression=compression)
        )
        for number, timestamp_ms in enumerate(times_ms):
            builder.add(value=b"%d" % (self.end + number), timestamp_ms=timestamp_ms)
        self.batches.append(read_batch(builder.build()))
        self.end += len(times_ms)

    @property
    def records(self) -> list[Record]:
        return [
            record
            for batch in self.batches
            if not batch.is_control
            for record in read_records(batch)
            if record.offset >= self.start
        ]

    def find(self, timestamp_ms: int) -> FoundRecord | None:
        for record in self.records:
            if record.timestamp_ms >= timestamp_ms:
                return FoundRecord(record.offset, record.timestamp_ms, 0)
        return None


class StoredReader(RecordReader):
    """Reads logs; a read that has nothing waits until `arrived` is called, or for ever."""

    topic = "events"
    topic_id = TopicId(bytes(range(16)))

    def __init__(self, logs: Sequence[StoredLog], *, batches_a_read: int = 1000) -> None:
        self.logs = dict(enumerate(logs))
        self.reads: list[dict[int, int]] = []
        self.waits_ms: list[int] = []
        self.batches_a_read = batches_a_read
        self.waiting = asyncio.Event()
        self.cancelled = 0
        self._arrived = asyncio.Event()

    def arrived(self) -> None:
        """End the waits for records."""
        self._arrived.set()

    async def bounds(self, partitions: Collection[int]) -> Answers[OffsetBounds]:
        return {one: OffsetBounds(self.logs[one].start, self.logs[one].end) for one in partitions}

    async def find_by_time(self, times_ns: Mapping[int, int]) -> Answers[FoundRecord | None]:
        return {one: self.logs[one].find(timestamp_ms_at(at)) for one, at in times_ns.items()}

    async def find_newest(self, partitions: Collection[int]) -> Answers[FoundRecord | None]:
        newest: Answers[FoundRecord | None] = {}
        for one in partitions:
            times_ms = [record.timestamp_ms for record in self.logs[one].records]
            newest[one] = self.logs[one].find(max(times_ms)) if times_ms else None
        return newest

    async def read(
        self, positions: Mapping[int, int], *, max_bytes: int, max_wait_ms: int
    ) -> Answers[PartitionBatches]:
        self.reads.append(dict(positions))
        self.waits_ms.append(max_wait_ms)
        answers = self._read(positions)
        is_empty = all(
            isinstance(one, PartitionBatches) and not one.buffers for one in answers.values()
        )
        if is_empty and max_wait_ms:
            self._arrived.clear()
            self.waiting.set()
            try:
                await self._arrived.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            answers = self._read(positions)
        return answers

    def _read(self, positions: Mapping[int, int]) -> Answers[PartitionBatches]:
        answers: Answers[PartitionBatches] = {}
        left = self.batches_a_read
        for partition, position in positions.items():
            log = self.logs[partition]
            bounds = OffsetBounds(log.start, log.end)
            if not is_in_range(position, *bounds):
                answers[partition] = SeekOutOfRangeError(partition, position, bounds)
            elif position in log.damaged:
                answers[partition] = DamagedRangeError(partition, position, log.damaged.stop)
            else:
                batches = [one for one in log.batches if one.next_offset > position]
                readable = [one for one in batches if one.base_offset not in log.damaged][:left]
                if log.damaged:
                    readable = [one for one in readable if one.base_offset < log.damaged.start] or [
                        one for one in readable if position >= log.damaged.stop
                    ]
                left -= len(readable)
                answers[partition] = PartitionBatches([one.buffer for one in readable], bounds)
        return answers
