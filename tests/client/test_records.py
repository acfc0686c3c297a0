from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import AdminClient, AsyncClient, GroupClient, GroupPosition, WireReader
from kgw.client.cursor import RecordFilter
from kgw.client.records import whole_batches
from kgw.client.subscription import OffsetSubscriber
from kgw.client.values import FetchedPartition, TopicDescription
from kgw.clock import SystemClock
from kgw.errors import CorruptionError, ErrorCode, KafkaError
from kgw.offsets.ranges import DamagedRangeError, OffsetBounds, SeekOutOfRangeError
from kgw.offsets.reader import FoundRecord, PartitionBatches
from kgw.offsets.seeker import OffsetSeeker, Seek, SeekKind
from kgw.records.batch import HEADER_BYTES, PREFIX_BYTES
from kgw.records.builder import BatchBuilder
from kgw.types import ZERO_TOPIC_ID, TopicName
from tests.client.serving import ServedGateway, served_client

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kgw.backend.base import ReadResult

EVENTS = TopicDescription(TopicName("events"), ZERO_TOPIC_ID, False, ())


def batch(base_offset: int, *values: bytes) -> bytearray:
    """Return a batch of these values, one millisecond apart from 1000 on."""
    builder = BatchBuilder(base_offset=base_offset)
    for number, value in enumerate(values):
        builder.add(value=value, timestamp_ms=1000 + number)
    return builder.build()


class CuttingServer:
    """Stands in for a client of an old server, which cuts answers where the limit falls."""

    def __init__(self, stored: bytes | bytearray) -> None:
        self.stored = stored
        self.limits: list[int] = []

    async def bounds(
        self, _: str, partitions: Collection[int], **__: Any
    ) -> dict[int, OffsetBounds]:
        return dict.fromkeys(partitions, OffsetBounds(0, 10))

    async def fetch(
        self, topic: str, offsets: Mapping[int, int], *, partition_max_bytes: int, **_: Any
    ) -> list[FetchedPartition]:
        self.limits.append(partition_max_bytes)
        return [FetchedPartition(0, 10, 0, memoryview(self.stored)[:partition_max_bytes])]


async def read(server: CuttingServer, reader: WireReader | None = None) -> list[int]:
    """Return the sizes of what one read gives."""
    reader = reader or WireReader(server, EVENTS)  # type: ignore[arg-type]
    answer = (await reader.read({0: 0}, max_bytes=1 << 20, max_wait_ms=0)).get(0)
    if answer is None:
        return []
    assert isinstance(answer, PartitionBatches)
    return [len(one) for one in answer.buffers]


async def test_a_batch_that_is_cut_off_is_left_for_the_next_read() -> None:
    """Only whole batches are given."""
    whole, cut = batch(0, b"a"), batch(1, b"b")
    for kept in (20, 65):
        assert [len(whole)] == await read(CuttingServer(whole + cut[:kept]))


async def test_a_batch_larger_than_the_limit_is_asked_for_again() -> None:
    """When not even one batch comes whole, the next read allows twice as much."""
    stored = batch(0, b"x" * (3 << 20))
    server = CuttingServer(stored)
    reader = WireReader(server, EVENTS)  # type: ignore[arg-type]
    assert [[], [], [len(stored)]] == [await read(server, reader) for _ in range(3)]
    assert [1 << 20, 2 << 20, 4 << 20] == server.limits


async def test_a_batch_that_is_cut_off_is_no_hole() -> None:
    """A subscription does not take the first part of a batch for offsets that hold nothing."""
    reader = WireReader(CuttingServer(batch(0, b"x" * (3 << 20))), EVENTS)  # type: ignore[arg-type]
    subscription = await OffsetSubscriber(reader, SystemClock()).subscribe(
        {0: Seek(SeekKind.RESET_TO_EARLIEST)}
    )
    assert [0] == [one.offset for one in await subscription.next_page(1)]


@pytest.mark.parametrize("length", [HEADER_BYTES - PREFIX_BYTES - 1, 0, -PREFIX_BYTES, -1])
async def test_a_length_below_that_of_a_header_is_damage(length: int) -> None:
    """No batch is that short: what is whole before it is given, and then the damage is told."""
    whole, damaged = batch(0, b"a"), batch(1, b"b")
    damaged[8:PREFIX_BYTES] = length.to_bytes(4, "big", signed=True)
    assert [len(whole)] == await read(CuttingServer(whole + damaged))
    reader = WireReader(CuttingServer(damaged), EVENTS)  # type: ignore[arg-type]
    answer = (await reader.read({0: 1}, max_bytes=1 << 20, max_wait_ms=0))[0]
    assert isinstance(answer, DamagedRangeError)
    assert (0, 1, None) == (answer.partition, answer.start_offset, answer.end_offset)


async def test_bounds_and_times_over_the_wire() -> None:
    """What the seeker needs, for several partitions in one call."""
    async with served_client() as client:
        await AdminClient(client).create_topic("events", partitions=2)
        await client.produce("events", 0, batch(0, b"a", b"b", b"c"))
        reader = WireReader(client, await client.topic("events"))
        assert {0: OffsetBounds(0, 3), 1: OffsetBounds(0, 0)} == await reader.bounds([0, 1])
        ns = 1_000_000
        times_ns = {0: 1000 * ns + 1, 1: -5}
        assert {0: FoundRecord(1, 1001, 0), 1: None} == await reader.find_by_time(times_ns)
        assert {0: FoundRecord(2, 1002, 0), 1: None} == await reader.find_newest([0, 1])
        seeker = OffsetSeeker(reader, GroupPosition(client, "readers", "events"))
        await GroupClient(client).commit("readers", {("events", 0): 2})
        resume = dict.fromkeys([0, 1], Seek(SeekKind.RESUME_OR_LATEST))
        found = await seeker.seek_all(resume)
        assert [(2, True), (0, False)] == [(one.offset, one.is_resumed) for one in found.values()]


async def test_what_is_wrong_with_one_partition_is_told_of_it() -> None:
    """Out of range with the range; the others are read."""
    async with served_client() as client:
        await AdminClient(client).create_topic("events", partitions=2)
        for partition in (0, 1):
            await client.produce("events", partition, batch(0, b"a"))
        reader = WireReader(client, await client.topic("events"))
        answers = await reader.read({0: 7, 1: 0}, max_bytes=1 << 20, max_wait_ms=0)
        wrong, right = answers[0], answers[1]
        assert isinstance(wrong, SeekOutOfRangeError)
        assert (0, 7, 0, 1) == (wrong.partition, wrong.asked, wrong.earliest, wrong.latest)
        assert isinstance(right, PartitionBatches)
        assert 1 == len(right.buffers)


async def test_damage_is_told_with_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's answer does not say where damage ends; the reader finds out, and one can go on."""
    async with ServedGateway() as served, AsyncClient([(served.host, served.port)]) as client:
        await client.topic("events", auto_create=True)
        for values in ((b"a", b"b"), (b"c", b"d", b"e"), (b"f",)):
            await client.produce("events", 0, batch(0, *values))
        topic = served.gateway.catalog.get("events")
        assert topic is not None
        log = topic.partitions[0].log
        intact = log.read_hot

        def spoilt(offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
            if 2 <= offset < 5:
                raise CorruptionError("spoilt", 5)
            return intact(offset, max_bytes, 2 if offset < 2 else upper_bound)

        monkeypatch.setattr(log, "read_hot", spoilt)
        reader = WireReader(client, await client.topic("events"))
        subscription = await OffsetSubscriber(reader, SystemClock()).subscribe(
            {0: Seek(SeekKind.RESET_TO_EARLIEST)}
        )
        assert [0, 1] == [one.offset for one in await subscription.next_page(10)]
        with pytest.raises(DamagedRangeError, match="records 2 to 4 are damaged"):
            await subscription.next_page(10)
        await subscription.seek({0: Seek(SeekKind.EXACT_OFFSET, 5)})
        assert [5] == [one.offset for one in await subscription.next_page(10)]


async def test_the_end_of_damage_is_looked_for_among_so_many_offsets() -> None:
    """The damaged one among them; behind more than that, where damage ends is not known."""

    class DamagedServer:
        """Stands in for a client whose server cannot read a few offsets from 7 on."""

        def __init__(self, damaged: int) -> None:
            self.damaged = damaged

        async def fetch(
            self, topic: str, offsets: Mapping[int, int], **_: Any
        ) -> list[FetchedPartition]:
            is_damaged = 7 <= offsets[0] < 7 + self.damaged
            error = ErrorCode.CORRUPT_MESSAGE if is_damaged else ErrorCode.NONE
            return [FetchedPartition(0, 10, 0, memoryview(b""), error)]

    async def end_of(damaged: int) -> int | None:
        reader = WireReader(DamagedServer(damaged), EVENTS, probes=3)  # type: ignore[arg-type]
        answer = (await reader.read({0: 7}, max_bytes=1, max_wait_ms=0))[0]
        assert isinstance(answer, DamagedRangeError)
        return answer.end_offset

    assert [8, 9, None, None] == [await end_of(damaged) for damaged in (1, 2, 3, 4)]


async def test_a_damaged_position_is_not_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored of the group cannot be read: an error, and no other position."""
    from kgw.client import GroupOffset

    async def offsets(*_: object) -> dict[tuple[str, int], GroupOffset]:
        return {("events", 0): GroupOffset(-1, -1, "", is_damaged=True)}

    monkeypatch.setattr(GroupClient, "offsets", offsets)
    client = AsyncClient([("127.0.0.1", 1)])
    answer = (await GroupPosition(client, "readers", "events").committed([0]))[0]
    assert isinstance(answer, KafkaError)
    assert ErrorCode.CORRUPT_MESSAGE is answer.code


async def test_records_carry_the_columns_of_sql() -> None:
    """Offset, time in nanoseconds and key of each record come with it, over any server's wire."""
    async with served_client() as client:
        await AdminClient(client).create_topic("rows", partitions=1)
        builder = BatchBuilder()
        builder.add(key=b"k", value=b"one", timestamp_ms=1_000)
        builder.add(key=None, value=b"two", timestamp_ms=2_000)
        await client.produce("rows", 0, builder.build())
        reader = WireReader(client, await client.topic("rows"))
        subscription = await OffsetSubscriber(reader, SystemClock()).subscribe(
            {0: Seek(SeekKind.RESET_TO_EARLIEST)}
        )
        rows = [(one.offset, one.ts_ns, one.record.key) for one in await subscription.next_page(2)]
    assert [(0, 1_000_000_000, b"k"), (1, 2_000_000_000, None)] == rows


def produced_by(producer_id: int, base_offset: int, *, is_control: bool = False) -> bytearray:
    """Return a batch of two records in a transaction, or the marker that ends one."""
    builder = BatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=-1 if is_control else 0,
        is_transactional=True,
        is_control=is_control,
    )
    for number in range(1 if is_control else 2):
        builder.add(key=b"\0\0\0\0", value=b"%d" % (base_offset + number), timestamp_ms=1000)
    return builder.build()


class CommittedServer:
    """Stands in for a client that reads committed records, from one log in one answer."""

    def __init__(self, stored: bytes, *aborted: tuple[int, int], stable: int, end: int) -> None:
        self.answer = FetchedPartition(
            0, end, 0, memoryview(stored), last_stable_offset=stable, aborted=aborted
        )

    async def bounds(
        self, _: str, partitions: Collection[int], *, read_committed: bool
    ) -> dict[int, OffsetBounds]:
        end = self.answer.last_stable_offset if read_committed else self.answer.high_watermark
        return dict.fromkeys(partitions, OffsetBounds(0, end))

    async def fetch(
        self, topic: str, offsets: Mapping[int, int], *, read_committed: bool, **_: Any
    ) -> list[FetchedPartition]:
        assert read_committed
        return [self.answer]


async def test_committed_records_are_those_outside_of_aborted_transactions() -> None:
    """Of one producer's two transactions, the aborted one is left out; what is open is not read."""
    stored = b"".join(
        (
            produced_by(7, 0),  # aborted
            produced_by(8, 2),  # committed
            batch(4, b"4"),
            produced_by(7, 5),  # aborted, too
            produced_by(7, 7, is_control=True),
            produced_by(8, 8, is_control=True),
            produced_by(7, 9),  # committed
            produced_by(9, 11),  # aborted, at the end
            produced_by(7, 13, is_control=True),
            produced_by(9, 14, is_control=True),
        )
    )
    server = CommittedServer(stored, (9, 11), (7, 0), stable=15, end=20)
    reader = WireReader(server, EVENTS, read_committed=True)  # type: ignore[arg-type]
    subscription = await OffsetSubscriber(reader, SystemClock()).subscribe(
        {0: Seek(SeekKind.RESET_TO_EARLIEST)}, RecordFilter(15)
    )
    page = await subscription.next_page(100)
    assert [2, 3, 4, 9, 10] == [one.record.offset for one in page]
    assert [] == await subscription.next_page(1)
    assert subscription.is_done


def test_batches_from_an_offset_on_are_left_out() -> None:
    """What begins before it counts whole; what is cut off counts nowhere."""
    first, second = batch(5, b"a", b"b"), batch(7, b"c")
    both = memoryview(bytes(first + second))
    assert (len(both), 8) == whole_batches(both)
    assert (len(both), 8) == whole_batches(both, end_offset=8)
    assert (len(first), 7) == whole_batches(both[:-1])
    assert (len(first), 7) == whole_batches(both, end_offset=7)
    assert (len(first), 7) == whole_batches(both, end_offset=6)
    assert (0, -1) == whole_batches(both, end_offset=5)
