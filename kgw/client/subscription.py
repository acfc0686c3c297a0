"""OffsetSubscription: delivers the records of some partitions, in offset order per partition.

Records are read only during calls, without a background task: after a cancelled call nothing keeps
running, and the next call delivers its records. Batches are unpacked as late as possible, one per
partition at a time, because a small batch may decompress to a very large one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.client.cursor import Cursor, CursorError, RecordFilter
from kgw.client.subscribed import SubscribedPartition
from kgw.errors import KgwError
from kgw.offsets.ranges import DamagedRangeError
from kgw.offsets.seeker import OffsetSeeker, Seek, SeekKind
from kgw.records.batch import COMPRESSION_MASK
from kgw.records.limits import DEFAULT_LIMITS, DecompressionLimits
from kgw.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping

    from kgw.clock import Clock
    from kgw.offsets.reader import ReadRecord, RecordReader
    from kgw.offsets.seeker import GroupPositions

EVERYTHING: Final = RecordFilter()
_UNPACK_IN_LOOP_BYTES: Final = 16_384
"""Larger batches, and compressed ones, are unpacked in a thread: 1,000 records take about 2 ms."""
_RECORD_OVERHEAD_BYTES: Final = 100
"""The bytes that each unacknowledged record counts, besides its key, value and headers."""
_ITERATED_RECORDS: Final = 500


class SubscriptionClosedError(KgwError):
    """The subscription was closed, perhaps during a call."""


class Delivery(NamedTuple):
    """Limits on reads and on unacknowledged records.

    Once unacknowledged records reach a limit, no more are delivered; if there are none, one record
    is delivered whatever its size.
    """

    max_in_flight_records: float = inf
    max_in_flight_bytes: float = inf
    read_bytes: int = 4 << 20
    """The bytes of stored batches in one read of all partitions."""
    unpack_in_threads: bool = True
    """Whether to unpack large batches in threads; useless if nothing else uses the event loop."""
    limits: DecompressionLimits = DEFAULT_LIMITS


class OffsetSubscriber:
    """Makes subscriptions to partitions of one topic."""

    def __init__(
        self,
        reader: RecordReader,
        clock: Clock,
        positions: GroupPositions | None = None,
        delivery: Delivery | None = None,
    ) -> None:
        """With `positions`, subscriptions can start at a group's committed offsets."""
        self._reader = reader
        self._clock = clock
        self._seeker = OffsetSeeker(reader, positions)
        self._delivery = delivery or Delivery()

    async def subscribe(
        self,
        seeks: Mapping[int, Seek],
        wanted: Mapping[int, RecordFilter] | RecordFilter = EVERYTHING,
    ) -> OffsetSubscription:
        """Return a subscription that starts in each partition at the offset that its seek finds.

        Raises the errors of seeks, e.g. SeekOutOfRangeError.
        """
        found = await self._seeker.seek_all(seeks)
        places = [
            SubscribedPartition(
                partition,
                one.offset,
                one.bounds.latest,
                wanted if isinstance(wanted, RecordFilter) else wanted.get(partition, EVERYTHING),
            )
            for partition, one in found.items()
        ]
        return OffsetSubscription(self._reader, self._clock, self._seeker, self._delivery, places)

    async def resume(self, cursor: Cursor) -> OffsetSubscription:
        """Return a subscription that continues at the positions of a cursor.

        Raises CursorError if the cursor is of another topic, or of a deleted one with this name;
        SeekOutOfRangeError if its records were removed.
        """
        reader = self._reader
        if cursor.topic != reader.topic:
            raise CursorError(f"the cursor is of topic {cursor.topic}, not of {reader.topic}")
        if ZERO_TOPIC_ID not in {cursor.topic_id, reader.topic_id} and (
            cursor.topic_id != reader.topic_id
        ):
            raise CursorError(
                f"topic {reader.topic} has been deleted and created again since the cursor was made"
            )
        return await self.subscribe(
            {
                partition: Seek(SeekKind.EXACT_OFFSET, offset)
                for partition, (offset, _) in cursor.partitions.items()
            },
            {partition: wanted for partition, (_, wanted) in cursor.partitions.items()},
        )


class OffsetSubscription:
    """A subscription; OffsetSubscriber makes it."""

    def __init__(
        self,
        reader: RecordReader,
        clock: Clock,
        seeker: OffsetSeeker,
        delivery: Delivery,
        places: Iterable[SubscribedPartition],
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._seeker = seeker
        self._delivery = delivery
        self._places = {place.partition: place for place in places}
        self._turn = deque(self._places.values())
        self._in_flight: dict[tuple[int, int], tuple[ReadRecord, int]] = {}
        self._in_flight_bytes = 0
        self._moved = asyncio.Event()
        """Set when the subscription moves or closes, so that running reads end."""
        self._freed = asyncio.Event()
        """Set when acknowledgements may allow more deliveries."""
        self._is_waited_for = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<OffsetSubscription {self._reader.topic} {self.positions}>"

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to deliver, by partition."""
        return {partition: place.position for partition, place in self._places.items()}

    @property
    def is_done(self) -> bool:
        """Whether all requested records have been delivered."""
        return all(place.is_done for place in self._turn)

    @property
    def in_flight(self) -> int:
        """The number of delivered, unacknowledged records; counted only if a limit is set."""
        return len(self._in_flight)

    async def next_page(self, count: int, *, max_wait_ms: int = 500) -> list[ReadRecord]:
        """Return up to `count` records; wait up to `max_wait_ms` for the first one.

        The page has the records that are available; it is shorter than `count` at the end, at a
        limit of unacknowledged records, and before an error. It is empty if no record arrives in
        time, or all were delivered. The error of a partition (SeekOutOfRangeError,
        DamagedRangeError or another KgwError) is raised after all other records are delivered, and
        again until a seek moves that partition. Raises SubscriptionClosedError.
        """
        if self._is_waited_for:
            raise RuntimeError("a subscription gives one page at a time")
        deadline_s = self._clock.monotonic_s() + max_wait_ms / 1000
        self._is_waited_for = True
        has_looked = False
        try:
            while True:
                self._check_open()
                if not self._has_room():
                    await self._wait_for_room(deadline_s)
                    if not self._has_room() and self._clock.monotonic_s() >= deadline_s:
                        return []
                    continue
                await self._gather(count, deadline_s)
                self._check_open()
                page = self._take(count)
                if page or self.is_done:
                    return page
                self._raise_failure()
                left_ms = max(0, int((deadline_s - self._clock.monotonic_s()) * 1000))
                if has_looked and not left_ms:
                    return []
                has_looked = True
                await self._read([place for place in self._turn if place.wants_more], left_ms)
        finally:
            self._is_waited_for = False

    async def records(self) -> AsyncIterator[ReadRecord]:
        """Yield every record; asking for the next one acknowledges it."""
        while not self.is_done:
            for record in await self.next_page(_ITERATED_RECORDS):
                yield record
                self.acknowledge([record])

    def acknowledge(self, records: Iterable[ReadRecord]) -> None:
        """Count records as acknowledged, in any order.

        Records from before a seek no longer count, so they are ignored.
        """
        for record in records:
            key = (record.partition, record.record.offset)
            known = self._in_flight.get(key)
            if known is not None and known[0] is record:
                del self._in_flight[key]
                self._in_flight_bytes -= known[1]
                self._freed.set()

    async def seek(self, seeks: Mapping[int, Seek]) -> dict[int, int]:
        """Move some partitions to other positions; return these positions.

        Either all partitions move or none; raises the errors of seeks. After it has returned, no
        record from before the move is delivered, even by a waiting `next_page`.
        """
        self._check_open()
        unknown = seeks.keys() - self._places.keys()
        if unknown:
            raise ValueError(f"partition {min(unknown)} is not subscribed to")
        found = await self._seeker.seek_all(seeks)
        self._check_open()
        for partition, one in found.items():
            self._places[partition].move_to(one.offset, one.bounds.latest)
            for key in [key for key in self._in_flight if key[0] == partition]:
                self._in_flight_bytes -= self._in_flight.pop(key)[1]
        self._moved.set()
        self._freed.set()
        return {partition: one.offset for partition, one in found.items()}

    async def lag(self) -> dict[int, int]:
        """Return for each partition how many offsets are not delivered yet, up to its present end.

        Raises KgwError if a partition's end cannot be found.
        """
        lags = {}
        for partition, bounds in (await self._reader.bounds(self._places)).items():
            if isinstance(bounds, KgwError):
                raise bounds
            place = self._places[partition]
            end_offset = bounds.latest
            if place.wanted.end_offset is not None:
                end_offset = min(end_offset, place.wanted.end_offset)
            lags[partition] = max(0, end_offset - place.position)
        return lags

    def cursor(self, *, acknowledged: bool = False) -> Cursor:
        """Return the positions after the delivered records, or of the first unacknowledged ones."""
        positions = self.positions
        if acknowledged:
            for partition, offset in self._in_flight:
                positions[partition] = min(positions[partition], offset)
        return Cursor(
            self._reader.topic,
            self._reader.topic_id,
            {
                partition: (position, self._places[partition].wanted)
                for partition, position in positions.items()
            },
        )

    def close(self) -> None:
        """End the subscription, and any waiting `next_page`."""
        self._is_closed = True
        self._moved.set()
        self._freed.set()

    # --- gathering -------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise SubscriptionClosedError("the subscription is closed")

    def _has_room(self) -> bool:
        delivery = self._delivery
        return (
            len(self._in_flight) < delivery.max_in_flight_records
            and self._in_flight_bytes < delivery.max_in_flight_bytes
        )

    async def _gather(self, count: int, deadline_s: float) -> None:
        """Unpack up to `count` records; read those that exist, but do not wait for new ones.

        If the filter drops nearly all records, this could take very long: it stops at the deadline,
        and the next call continues.
        """
        has_read = False
        while not self._is_closed:
            at_hand = 0
            for place in self._turn:
                await self._unpack(place, count - at_hand)
                at_hand += len(place.records)
                if at_hand >= count:
                    return
            unread = [
                place
                for place in self._turn
                if place.wants_more and place.read_position < place.latest
            ]
            is_late = has_read and not at_hand and self._clock.monotonic_s() > deadline_s
            if is_late or not unread:
                return
            # Read this partition alone: then a response without records means that no records
            # follow.
            suspect = next((place for place in unread if place.is_suspect), None)
            await self._read(unread if suspect is None else [suspect], 0)
            has_read = True

    async def _unpack(self, place: SubscribedPartition, count: int) -> None:
        """Unpack a partition's next batches until `count` records are ready or no batch is left.

        A batch that cannot be unpacked stays in the queue, and fails again in the next call.
        """
        delivery = self._delivery
        while place.batches and len(place.records) < count and place.failure is None:
            batch, seeks = place.batches[0], place.seeks
            try:
                if delivery.unpack_in_threads and (
                    batch.size_bytes > _UNPACK_IN_LOOP_BYTES or batch.attributes & COMPRESSION_MASK
                ):
                    records = await asyncio.to_thread(place.unpack, batch, delivery.limits)
                    if seeks != place.seeks:
                        return
                else:
                    records = place.unpack(batch, delivery.limits)
            except DamagedRangeError as error:
                if seeks == place.seeks:
                    place.failure = error
                return
            place.keep(batch, records)

    def _take(self, count: int) -> list[ReadRecord]:
        """Return unpacked records; another partition comes first each time.

        No other code may run between this and the return of the page.
        """
        page: list[ReadRecord] = []
        delivery = self._delivery
        is_limited = min(delivery.max_in_flight_records, delivery.max_in_flight_bytes) < inf
        for _ in range(len(self._turn)):
            place = self._turn[0]
            while place.records and len(page) < count:
                if is_limited and not self._has_room():
                    return page
                record = place.take()
                page.append(record)
                if is_limited:
                    size_bytes = _size_bytes(record)
                    self._in_flight[record.partition, record.record.offset] = (record, size_bytes)
                    self._in_flight_bytes += size_bytes
            self._turn.rotate(-1)
            if len(page) >= count:
                break
        return page

    def _raise_failure(self) -> None:
        for place in self._turn:
            if place.failure is not None:
                failure, place.failure = place.failure, None
                raise failure

    async def _read(self, places: Collection[SubscribedPartition], max_wait_ms: int) -> None:
        """Read from some partitions; stop early if the subscription moves or closes."""
        if not places or self._is_closed:
            return
        self._moved.clear()
        asked = {place.partition: place.seeks for place in places}
        reading = asyncio.ensure_future(
            self._reader.read(
                {place.partition: place.read_position for place in places},
                max_bytes=self._delivery.read_bytes,
                max_wait_ms=max_wait_ms,
            )
        )
        moving = asyncio.ensure_future(self._moved.wait())
        try:
            await asyncio.wait({reading, moving}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return
            answers = reading.result()
        finally:
            moving.cancel()
            reading.cancel()
            await asyncio.wait({reading, moving})
        for partition, answer in answers.items():
            place = self._places[partition]
            if asked[partition] == place.seeks:
                # A read that waits may leave out partitions whose records are on disk: the next
                # read returns those.
                place.take_answer(answer, is_alone=len(places) == 1 and not max_wait_ms)

    async def _wait_for_room(self, deadline_s: float) -> None:
        """Wait until a record is acknowledged, but only until the deadline."""
        self._freed.clear()
        timer = self._clock.call_at(deadline_s, self._freed.set)
        try:
            await self._freed.wait()
        finally:
            timer.cancel()


def _size_bytes(found: ReadRecord) -> int:
    record = found.record
    size_bytes = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for key, value in record.headers:
        size_bytes += len(key) + len(value or b"")
    return size_bytes
