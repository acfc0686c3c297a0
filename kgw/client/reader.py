"""TopicReader: the records of some partitions of a topic, from given offsets on."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kgw.client.errors import ClientError
from kgw.records.batch import HEADER_BYTES, PREFIX_BYTES, RecordBatch, read_batch
from kgw.records.reader import read_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kgw.client.client import AsyncClient
    from kgw.client.values import FetchedPartition
    from kgw.records.record import Record

_FIRST_PARTITION_MAX_BYTES = 1 << 20
_LENGTH = slice(8, 12)


class DamagedRecordsError(ClientError):
    """Record bytes that came with a CRC that they do not have."""


class ReadRecord(NamedTuple):
    """A record and where it came from."""

    partition: int
    record: Record
    has_log_append_time: bool


class TopicReader:
    """Reads partitions side by side; each one's records come in order.

    `positions` is where each partition will be read next. It moves past control batches and
    compacted gaps, so it may go on where no record is returned.
    """

    def __init__(self, client: AsyncClient, topic: str, positions: Mapping[int, int]) -> None:
        """Begin at an offset for each partition."""
        self._client = client
        self._topic = topic
        self.positions = dict(positions)
        self.high_watermarks: dict[int, int] = {}
        """The end of each partition as last heard."""
        self._partition_max_bytes = _FIRST_PARTITION_MAX_BYTES

    async def read(
        self, partitions: list[int] | None = None, *, max_wait_ms: int = 500
    ) -> Iterator[ReadRecord]:
        """Return what is there in some partitions, all by default; wait for the first record.

        Batches are unpacked as the iterator goes on: a small answer can hold very much. Where it is
        not used up, the rest is read again. Raises ClientError; while iterating also
        DamagedRecordsError when a batch fails its CRC, RecordError when its records cannot be read.
        """
        chosen = self.positions if partitions is None else partitions
        fetched = await self._client.fetch(
            self._topic,
            {partition: self.positions[partition] for partition in chosen},
            max_wait_ms=max_wait_ms,
            partition_max_bytes=self._partition_max_bytes,
        )
        for one in fetched:
            self.high_watermarks[one.partition] = one.high_watermark
        return chain.from_iterable(map(self._read_partition, fetched))

    def _read_partition(self, fetched: FetchedPartition) -> Iterator[ReadRecord]:
        for batch in _whole_batches(fetched.records):
            if not batch.crc_matches():
                raise DamagedRecordsError(
                    f"{self._topic} partition {fetched.partition}: the batch at offset "
                    f"{batch.base_offset} fails its CRC"
                )
            begin = self.positions[fetched.partition]
            if not batch.is_control:
                for record in read_records(batch):
                    # A fetch in the middle of a batch answers with all of it.
                    if record.offset >= begin:
                        yield ReadRecord(fetched.partition, record, batch.uses_log_append_time)
            self.positions[fetched.partition] = max(begin, batch.next_offset)
        if fetched.records and self._is_cut_short(fetched.records):
            self._partition_max_bytes *= 2

    @staticmethod
    def _is_cut_short(records: memoryview) -> bool:
        """Whether not even the first batch came whole: old servers cut where the limit falls."""
        return next(iter(_whole_batches(records)), None) is None


def _whole_batches(records: memoryview) -> Iterator[RecordBatch]:
    """Yield the batches that are there completely."""
    position = 0
    while len(records) - position >= HEADER_BYTES:
        length = records[position:][_LENGTH]
        end = position + PREFIX_BYTES + int.from_bytes(length, "big", signed=True)
        if end > len(records):
            return
        yield read_batch(records, position)
        position = end
