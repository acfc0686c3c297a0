"""The state of one partition of a subscription: its position, and records that were read ahead.

Pure.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kgw.errors import KafkaError, KgwError
from kgw.offsets.ranges import DamagedRangeError
from kgw.offsets.reader import ReadRecord
from kgw.records.batch import read_batch
from kgw.records.errors import RecordError
from kgw.records.reader import read_records

if TYPE_CHECKING:
    from kgw.client.cursor import RecordFilter
    from kgw.offsets.reader import PartitionBatches
    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits


class SubscribedPartition:
    """One partition of a subscription: its position, and records that were read ahead."""

    def __init__(self, partition: int, position: int, latest: int, wanted: RecordFilter) -> None:
        self.partition = partition
        self.wanted = wanted
        self.seeks = 0
        """Counts the calls of `move_to`: records that were read before the last call are
        dropped."""
        self.move_to(position, latest)

    def move_to(self, position: int, latest: int) -> None:
        self.seeks += 1
        self.position = position
        """The next offset to be delivered."""
        self.latest = latest
        """The end of the partition in the last response."""
        self.batches: deque[RecordBatch] = deque()
        self.aborted: frozenset[int] = frozenset()
        """The base offsets of aborted batches, whose records are not delivered."""
        self.records: deque[ReadRecord] = deque()
        """Unpacked records that are ready to deliver."""
        self.unpacked_end = position
        """The end of the last unpacked batch. When all unpacked records are delivered, `position`
        moves there, past offsets without records."""
        self.failure: KgwError | None = None
        self.is_suspect = False
        """Whether the last response had no records although the partition has more offsets: the
        response may have been full, or the offsets may have no records."""

    @property
    def read_position(self) -> int:
        """The offset at which the next read begins."""
        return self.batches[-1].next_offset if self.batches else self.unpacked_end

    @property
    def is_done(self) -> bool:
        return self.wanted.end_offset is not None and self.position >= self.wanted.end_offset

    @property
    def wants_more(self) -> bool:
        """Whether all fetched batches are unpacked, and more can be fetched."""
        end_offset = self.wanted.end_offset
        is_over = end_offset is not None and self.unpacked_end >= end_offset
        return not (self.batches or self.failure or is_over)

    def _pass_to(self, offset: int) -> None:
        """Mark all offsets below `offset` as unpacked; without records to deliver, move there."""
        self.unpacked_end = offset
        if not self.records:
            end_offset = self.wanted.end_offset
            self.position = offset if end_offset is None else min(offset, end_offset)

    def take_answer(self, answer: PartitionBatches | KgwError, *, is_alone: bool) -> None:
        """Handle a response; `is_alone` means that only this partition was read."""
        if isinstance(answer, KgwError):
            self.failure = answer
            return
        position = self.read_position
        self.latest = answer.bounds.latest
        self.aborted = answer.aborted
        for buffer in answer.buffers:
            start = 0
            while start < len(buffer):
                try:
                    batch = read_batch(buffer, start)
                except RecordError as error:
                    # The end of the unreadable batch is unknown. First deliver the batches before
                    # it; the next read starts at this one and reports it.
                    if not self.batches:
                        self.failure = DamagedRangeError(self.partition, position, None, str(error))
                    return
                start += batch.size_bytes
                if batch.next_offset > position:
                    self.batches.append(batch)
                    position = batch.next_offset
        self.is_suspect = not self.batches and position < self.latest
        if self.is_suspect and is_alone:
            # The assigned offsets up to the end have no records: skip them.
            self._pass_to(self.latest)

    def keep(self, batch: RecordBatch, records: list[ReadRecord]) -> None:
        """Add the unpacked records of the first batch."""
        self.batches.popleft()
        self.records.extend(records)
        self._pass_to(batch.next_offset)
        end_offset = self.wanted.end_offset
        if end_offset is not None and self.unpacked_end >= end_offset:
            self.batches.clear()

    def take(self) -> ReadRecord:
        """Return the next unpacked record."""
        record = self.records.popleft()
        self.position = record.record.offset + 1
        if not self.records:
            self._pass_to(self.unpacked_end)
        return record

    def unpack(self, batch: RecordBatch, limits: DecompressionLimits) -> list[ReadRecord]:
        """Return a batch's records that pass the filter. Raises DamagedRangeError."""
        if batch.is_control or batch.base_offset in self.aborted:
            return []
        begin, wanted, partition = self.position, self.wanted, self.partition
        end_offset = batch.next_offset if wanted.end_offset is None else wanted.end_offset
        has_append_time = batch.uses_log_append_time
        damage_start = max(begin, batch.base_offset)
        if not batch.crc_matches():
            raise DamagedRangeError(
                partition,
                damage_start,
                batch.next_offset,
                f"the batch at offset {batch.base_offset} fails its CRC",
            )
        try:
            records = [
                ReadRecord(partition, record, has_append_time)
                for record in read_records(batch, limits)
                # A read from the middle of a batch returns the whole batch.
                if begin <= record.offset < end_offset
            ]
        except KafkaError as error:
            raise DamagedRangeError(
                partition,
                damage_start,
                batch.next_offset,
                f"the batch at offset {batch.base_offset} is not what its header says: {error}",
            ) from error
        if wanted.since_ns is None and wanted.until_ns is None:
            return records
        return [record for record in records if wanted.takes_time(record.ts_ns)]
