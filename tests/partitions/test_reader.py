from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import ReadResult
from kgw.client.subscription import OffsetSubscriber
from kgw.completion import Completion
from kgw.errors import CorruptionError, ErrorCode, KafkaError
from kgw.offsets.ranges import DamagedRangeError, OffsetBounds, SeekOutOfRangeError
from kgw.offsets.reader import FoundRecord, PartitionBatches
from kgw.offsets.seeker import Seek, SeekKind
from kgw.partitions.append.transactions import TransactionMarker
from kgw.partitions.read.reader import PartitionReader
from kgw.partitions.view import Isolation
from kgw.partitions.waits import STORAGE_S
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import START_MS, batch, create_topic, produce
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.partitions.topics.topic import Topic
    from kgw.records.batch import RecordBatch

EARLIEST = Seek(SeekKind.RESET_TO_EARLIEST)
NS = 1_000_000


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway without topics."""
    async with InProcessGateway() as running:
        yield running


def read_topic(gateway: InProcessGateway, topic: Topic) -> PartitionReader:
    """Return a reader of a topic of the gateway."""
    services = gateway.gateway
    return PartitionReader(topic, services.fetch_deadlines, services.cold_reads)


async def waited_for(topic: Topic) -> None:
    """Return when somebody waits for records of the topic."""
    while not topic.partitions[0].listeners:  # noqa: ASYNC110 - waits announce nothing
        await asyncio.sleep(0)


async def test_bounds_times_and_batches(gateway: InProcessGateway) -> None:
    """What a seek and a subscription need, and an error for a partition that there is not."""
    topic = await create_topic(gateway, partitions=2)
    await produce(gateway, batch(b"a", b"b", timestamps_ms=[START_MS, START_MS + 9]))
    reader = read_topic(gateway, topic)
    bounds = await reader.bounds([0, 1, 2])
    assert (OffsetBounds(0, 2), OffsetBounds(0, 0)) == (bounds[0], bounds[1])
    assert isinstance(bounds[2], KafkaError)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION is bounds[2].code
    times = await reader.find_by_time({0: (START_MS + 1) * NS, 1: 0, 2: 0})
    assert (FoundRecord(1, START_MS + 9, 0), None) == (times[0], times[1])
    assert isinstance(times[2], KafkaError)
    assert {0: FoundRecord(1, START_MS + 9, 0), 1: None} == await reader.find_newest([0, 1])
    read = await reader.read({0: 1, 1: 0, 2: 0}, max_bytes=1 << 20, max_wait_ms=0)
    assert isinstance(read[0], PartitionBatches)
    assert 1 == len(read[0].buffers)
    assert PartitionBatches([], OffsetBounds(0, 0)) == read[1]
    assert isinstance(read[2], KafkaError)


async def test_a_subscription_is_woken_by_appends(gateway: InProcessGateway) -> None:
    """It waits as a long poll does: until a record comes, or its time is up."""
    topic = await create_topic(gateway, partitions=2)
    subscriber = OffsetSubscriber(read_topic(gateway, topic), gateway.clock)
    subscription = await subscriber.subscribe({0: EARLIEST, 1: EARLIEST})
    waiting = asyncio.ensure_future(subscription.next_page(10, max_wait_ms=5000))
    await waited_for(topic)
    await produce(gateway, batch(b"a"))
    assert [(0, 0)] == [(one.partition, one.offset) for one in await waiting]
    waiting = asyncio.ensure_future(subscription.next_page(10, max_wait_ms=5000))
    await waited_for(topic)
    gateway.manual_clock.advance(6)
    assert [] == await waiting
    assert not topic.partitions[0].listeners


async def test_a_cancelled_read_leaves_no_wait_behind(gateway: InProcessGateway) -> None:
    """Nobody is woken for it any more."""
    topic = await create_topic(gateway)
    reader = read_topic(gateway, topic)
    waiting = asyncio.ensure_future(reader.read({0: 0}, max_bytes=100, max_wait_ms=5000))
    await asyncio.sleep(0)
    assert 1 == len(topic.partitions[0].listeners)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not topic.partitions[0].listeners


async def test_out_of_range_and_damage_carry_their_ranges(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As errors in the partition's place."""
    topic = await create_topic(gateway)
    for value in (b"a", b"b", b"c"):
        await produce(gateway, batch(value))
    log = topic.partitions[0].log
    await log.drop_before(1)
    reader = read_topic(gateway, topic)
    wrong = (await reader.read({0: 0}, max_bytes=100, max_wait_ms=0))[0]
    assert isinstance(wrong, SeekOutOfRangeError)
    assert (0, 1, 3) == (wrong.asked, wrong.earliest, wrong.latest)

    async def spoilt(*_: object, **__: object) -> ReadResult:
        raise CorruptionError("spoilt", 2)

    monkeypatch.setattr(log, "read_hot", lambda *_: None)
    monkeypatch.setattr(log, "read", spoilt)
    damage = (await reader.read({0: 1}, max_bytes=100, max_wait_ms=0))[0]
    assert isinstance(damage, DamagedRangeError)
    assert (1, 2) == (damage.start_offset, damage.end_offset)


async def test_records_that_go_while_they_are_read_are_no_hole(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeleteRecords during a read from disk: out of range is told, and nothing is passed."""
    topic = await create_topic(gateway)
    for value in (b"a", b"b", b"c"):
        await produce(gateway, batch(value))
    log = topic.partitions[0].log

    async def overtaken(offset: int, *_: object, **__: object) -> ReadResult:
        await log.drop_before(1)
        return ReadResult([], 0, offset)

    monkeypatch.setattr(log, "read_hot", lambda *_: None)
    monkeypatch.setattr(log, "read", overtaken)
    subscriber = OffsetSubscriber(read_topic(gateway, topic), gateway.clock)
    subscription = await subscriber.subscribe({0: EARLIEST})
    with pytest.raises(SeekOutOfRangeError, match="it goes from 1 to 3"):
        await subscription.next_page(10, max_wait_ms=0)
    assert {0: 0} == subscription.positions


async def test_readers_of_what_is_committed_skip_the_rest(gateway: InProcessGateway) -> None:
    """No record of an aborted transaction is delivered, and none of one that goes on."""
    topic = await create_topic(gateway)
    partition = topic.partitions[0]

    def said_yes(_: RecordBatch) -> Completion[ErrorCode]:
        verified: Completion[ErrorCode] = Completion()
        verified.set_result(ErrorCode.NONE)
        return verified

    for producer_id, value, is_commit in ((7, b"gone", False), (8, b"kept", True), (9, b"", None)):
        records = batch(value, producer_id=producer_id, base_sequence=0, is_transactional=True)
        partition.admission.append(records, verify=said_yes)
        if is_commit is not None:
            partition.admission.append_marker(TransactionMarker(producer_id, 0, 0, is_commit, 1))
    reader = PartitionReader(
        topic,
        gateway.gateway.fetch_deadlines,
        gateway.cold_reads,
        isolation=Isolation.READ_COMMITTED,
    )
    subscription = await OffsetSubscriber(reader, gateway.clock).subscribe({0: EARLIEST})
    page = await subscription.next_page(10, max_wait_ms=0)
    assert [b"kept"] == [one.record.value for one in page]
    assert {0: 4} == subscription.positions


async def test_a_deleted_topic_ends_its_readers(gateway: InProcessGateway) -> None:
    """The wait is over, and what is said is that the topic is gone."""
    topic = await create_topic(gateway)
    reader = read_topic(gateway, topic)
    waiting = asyncio.ensure_future(reader.read({0: 0}, max_bytes=100, max_wait_ms=5000))
    await asyncio.sleep(0)
    await gateway.topic_manager.delete(topic)
    answer = (await waiting)[0]
    assert isinstance(answer, KafkaError)
    assert "has been deleted" in str(answer)
    assert isinstance((await reader.bounds([0]))[0], KafkaError)


async def test_where_damage_ends_is_not_waited_for_long(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk hangs when it is asked: nobody can tell."""
    topic = await create_topic(gateway)
    await produce(gateway, batch(b"a"))
    asked = 0

    async def damaged(*_: object, **__: object) -> ReadResult:
        nonlocal asked
        asked += 1
        if asked > 1:
            await asyncio.Event().wait()
        raise CorruptionError("flipped")

    log = topic.partitions[0].log
    monkeypatch.setattr(log, "read_hot", lambda *_: None)
    monkeypatch.setattr(log, "read", damaged)
    reading = asyncio.ensure_future(
        read_topic(gateway, topic).read({0: 0}, max_bytes=100, max_wait_ms=0)
    )
    await turns(50)
    is_early = reading.done()
    gateway.manual_clock.advance(STORAGE_S)
    await turns(50)
    assert (False, True) == (is_early, reading.done())
    answer = reading.result()[0]
    assert isinstance(answer, DamagedRangeError)
    assert (2, None) == (asked, answer.end_offset)
