"""Reads the bounds and records of partitions from the server to which groups are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.client.ack_journal import content_crc
from kgw.client.cursor import RecordFilter
from kgw.client.subscription import Delivery, OffsetSubscriber
from kgw.clock import SystemClock
from kgw.errors import KgwError
from kgw.offsets.seeker import Seek, SeekKind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kgw.client import WireReader
    from kgw.offsets.ranges import OffsetBounds
    from kgw.records.record import Record

# Nothing else uses the event loop.
_DELIVERY = Delivery(unpack_in_threads=False)


class Fingerprint(NamedTuple):
    """The fields that identify a record."""

    offset: int
    timestamp_ms: int
    size_bytes: int
    crc: int

    def in_digest(self) -> bytes:
        """Return the bytes by which the record enters its partition's digest."""
        return b"%d,%d,%d,%d;" % self


async def ends(reader: WireReader, partition: int) -> OffsetBounds:
    """Return the first offset and the end offset of a partition. Raises KgwError."""
    bounds = (await reader.bounds([partition]))[partition]
    if isinstance(bounds, KgwError):
        raise bounds
    return bounds


async def read_records(
    reader: WireReader, partition: int, start: int, stop: int
) -> AsyncGenerator[Record]:
    """Yield the existing records of a range of offsets. Raises KgwError."""
    subscriber = OffsetSubscriber(reader, SystemClock(), delivery=_DELIVERY)
    subscription = await subscriber.subscribe(
        {partition: Seek(SeekKind.RESET_TO_OFFSET, start)}, RecordFilter(stop)
    )
    async for one in subscription.records():
        yield one.record


async def read_fingerprints(
    reader: WireReader, partition: int, start: int, stop: int
) -> AsyncGenerator[Fingerprint]:
    """Yield the fingerprints of the records that `read_records` yields."""
    async for record in read_records(reader, partition, start, stop):
        crc = content_crc(record.key, record.value)
        yield Fingerprint(record.offset, record.timestamp_ms, len(record.value or b""), crc)
