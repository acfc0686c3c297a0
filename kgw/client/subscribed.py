"""One partition of a subscription: its position, and the records read ahead. Pure."""

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
    """One partition of a subscription: its position, and the records read ahead."""

    def __init__(self, partition: int, position: int, latest: int, wanted: RecordFilter) -> None:
        self.partition = partition
        self.wanted = wanted
        self.seeks = 0
        """The number of moves: records read before the last one are not delivered after it."""
        self.move_to(position, latest)

    def move_to(self, position: int, latest: int) -> None:
        self.seeks += 1
        self.position = position
        """The next offset to be delivered."""
        self.latest = latest
        """The partition's end as last reported."""
        self.batches: deque[RecordBatch] = deque()
        self.aborted: frozenset[int] = frozenset()
        """Base offsets of the aborted batches, whose records are left out."""
        self.records: deque[ReadRecord] = deque()
        """Unpacked records that can be delivered."""
        self.unpacked_end = position
        """The end of the last batch that was unpacked; `position` moves there when no unpacked
        record is left, so that gaps are passed."""
        self.failure: KgwError | None = None
        self.is_suspect = False
        """Whether an answer was empty although the partition has more offsets: it may have been
        left out because the answer was full, or the offsets may be empty."""

    @property
    def read_position(self) -> int:
        """The offset at which the next read begins."""
        return self.batches[-1].next_offset if self.batches else self.unpacked_end

    @property
    def is_done(self) -> bool:
        return self.wanted.end_offset is not None and self.position >= self.wanted.end_offset

    @property
    def wants_more(self) -> bool:
        """Whether all batches read so far are unpacked, and more may follow."""
        end_offset = self.wanted.end_offset
        is_over = end_offset is not None and self.unpacked_end >= end_offset
        return not (self.batches or self.failure or is_over)

    def _pass_to(self, offset: int) -> None:
        """Mark all offsets below one as unpacked; move there when no unpacked record is left."""
        self.unpacked_end = offset
        if not self.records:
            end_offset = self.wanted.end_offset
            self.position = offset if end_offset is None else min(offset, end_offset)

    def take_answer(self, answer: PartitionBatches | KgwError, *, is_alone: bool) -> None:
        """Take the answer of a read; `is_alone` if only this partition was read."""
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
                    # The end of the batch is unknown. The batches before it are delivered first:
                    # the next read begins here.
                    if not self.batches:
                        self.failure = DamagedRangeError(self.partition, position, None, str(error))
                    return
                start += batch.size_bytes
                if batch.next_offset > position:
                    self.batches.append(batch)
                    position = batch.next_offset
        self.is_suspect = not self.batches and position < self.latest
        if self.is_suspect and is_alone:
            # These offsets were assigned but have no records: a gap at the end of the log.
            self._pass_to(self.latest)

    def keep(self, batch: RecordBatch, records: list[ReadRecord]) -> None:
        """Add the records of the first batch, which has been unpacked."""
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
        """Return the records of a batch that pass the filter. Raises DamagedRangeError."""
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
                # A read in the middle of a batch returns the whole batch.
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
