"""A partition that SMQ's broker leads: what is read of its log files, and what is shown of them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kgw.backend.base import Snapshot
from kgw.backend.seaweedmq.filer import FilerEntry
from kgw.backend.seaweedmq.native.partition_log import FollowOptions, NativePartitionLog
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.shell import Shell
from kgw.errors import CorruptionError, ErrorCode, StorageError
from kgw.problems import DAMAGE
from kgw.records.batch import split_batches
from kgw.testing.batches import make_batch, read_stored
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, FilerStore, MemoryFiler
from kgw.types import PartitionKey
from tests.backend.seaweedmq.native.scripted import (
    NS,
    SECOND,
    BrokerLog,
    ScriptedBroker,
    Stored,
    make_topic,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.records.batch import RecordBatch

MANY = 1 << 30


class Setup:
    """A broker's log in a filer in memory, and kgw's on it."""

    def __init__(self, *, cache_bytes: int = 1 << 20) -> None:
        self.store = FilerStore()
        self.filer = MemoryFiler(self.store)
        self.clock = ManualClock()
        self.shell = Shell(self.filer, self.clock, SeaweedMqOptions(cache_bytes=cache_bytes))
        self.topic = make_topic()
        self.broker = BrokerLog(self.filer, self.topic)

    @asynccontextmanager
    async def opened(
        self, memory: ScriptedBroker | None = None
    ) -> AsyncIterator[NativePartitionLog]:
        """Open the log; let go of it in the end."""
        key = PartitionKey(self.topic.topic_id, 0)
        log = NativePartitionLog(key, self.topic, self.shell, FollowOptions(), memory=memory)
        await log.open()
        try:
            yield log
        finally:
            await log.aclose()

    @property
    def problems(self) -> list[str]:
        """What an operator is told."""
        return list(self.shell.problems)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    """Return one with a cache."""
    made = Setup()
    await made.filer.open()
    yield made
    await made.shell.aclose()


@pytest.fixture
async def cold() -> AsyncIterator[Setup]:
    """Return one in which every read comes from the filer."""
    made = Setup(cache_bytes=0)
    await made.filer.open()
    yield made
    await made.shell.aclose()


async def read_all(log: NativePartitionLog, offset: int = 0) -> list[tuple[int, bytes]]:
    """Return offsets and values from an offset on, as a reader gets them."""
    found: list[tuple[int, bytes]] = []
    while offset < log.high_watermark:
        result = log.read_hot(offset, 100, log.high_watermark)
        if result is None:
            result = await log.read(offset, 100, log.high_watermark)
        assert result.next_offset > offset
        found += [
            (record.offset, record.value)
            for record in read_stored(result.buffers)
            if record.offset >= offset
        ]
        offset = result.next_offset
    return found


async def test_an_empty_partition(setup: Setup) -> None:
    """Nobody has published yet: there is not even a directory."""
    async with setup.opened() as log:
        assert (0, 0, 0, 0) == (
            log.log_start_offset,
            log.high_watermark,
            log.end_offset,
            log.size_bytes,
        )
        assert [] == (await log.read(0, MANY, 0)).buffers
        assert log.epoch_end(0) == (0, 0)


async def test_records_are_what_the_broker_has(setup: Setup) -> None:
    """Keys, values, times and offsets come from the entries; an empty key is null."""
    setup.broker.publish(b"cold", b"", key=b"kitchen")
    setup.broker.publish(b"warm")
    await setup.broker.flush()
    async with setup.opened() as log:
        result = await log.read(0, MANY, log.high_watermark)
        records = read_stored(result.buffers)
    assert [
        (0, SECOND * 1000 + 1, b"cold", b"kitchen"),
        (1, SECOND * 1000 + 2, b"", b"kitchen"),
        (2, SECOND * 1000 + 3, b"warm", None),
    ] == [tuple(record) for record in records]


async def test_records_that_follow_each_other_share_a_batch(cold: Setup) -> None:
    """Up to a hole: a reader is not sent a header with each record."""
    cold.broker.publish(b"a", b"b", b"c")
    cold.broker.next_offset += 1
    cold.broker.publish(b"e", b"f")
    await cold.broker.flush()
    async with cold.opened() as log:
        result = await log.read(0, MANY, log.high_watermark)
        assert [(0, b"a"), (1, b"b"), (2, b"c"), (4, b"e"), (5, b"f")] == await read_all(log)
    batches = [batch for buffer in result.buffers for batch in split_batches(buffer)]
    assert [(0, 3), (4, 2)] == [(batch.base_offset, batch.record_count) for batch in batches]


async def test_what_is_flushed_is_followed(setup: Setup) -> None:
    """What comes into the files is shown with the next look, and whoever waits is told."""
    setup.broker.publish(b"a")
    await setup.broker.flush()
    async with setup.opened() as log:
        told: list[tuple[int, bool]] = []
        log.on_advance = lambda end, size: told.append((end, size > 0))
        setup.broker.publish(b"b", b"c")
        await log.look()
        assert 1 == log.high_watermark
        await setup.broker.flush()
        await log.look()
        assert [(0, b"a"), (1, b"b"), (2, b"c")] == await read_all(log)
        await log.look()
        assert [(3, True)] == told


async def test_a_file_grows_within_its_second(setup: Setup) -> None:
    """Two windows of one second are in one file."""
    setup.broker.publish(b"a")
    await setup.broker.flush()
    setup.broker.now_ns -= NS
    async with setup.opened() as log:
        setup.broker.publish(b"b")
        await setup.broker.flush()
        await log.look()
        assert [(0, b"a"), (1, b"b")] == await read_all(log)
    assert 1 == sum(1 for name in setup.store.directories[setup.broker.directory] if name)


async def test_many_files_are_read_from_any_offset(cold: Setup) -> None:
    """Whatever attributes say, which may be one too high, each offset is found."""
    for number in range(12):
        cold.broker.publish(*(b"%d" % n for n in range(number * 3, number * 3 + 3)))
        await cold.broker.flush()
    directory = cold.broker.directory
    entries = cold.store.directories[directory]
    for name, entry in list(entries.items())[1:]:
        first = int.from_bytes(entry.extended["offset_min"], "big")
        extended = {**entry.extended, "offset_min": (first + 1).to_bytes(8, "big")}
        entries[name] = entry._replace(extended=extended)
    async with cold.opened() as log:
        for offset in range(36):
            expected = [(n, b"%d" % n) for n in range(offset, 36)]
            assert expected == await read_all(log, offset)
        assert 0 == log.log_start_offset


async def test_gaps_are_gaps(cold: Setup) -> None:
    """Offsets that a crash has left out are left out; readers go on behind them."""
    cold.broker.publish(b"a", b"b")
    await cold.broker.flush()
    cold.broker.crash(5_000)
    cold.broker.publish(b"c")
    await cold.broker.flush()
    async with cold.opened() as log:
        assert [(0, b"a"), (1, b"b"), (5_000, b"c")] == await read_all(log)
        assert [(5_000, b"c")] == await read_all(log, 17)
        assert 5_001 == log.high_watermark


async def test_a_gap_is_waited_at(setup: Setup) -> None:
    """What two publishers at a time wrote out of order is waited for, and shown in order."""
    setup.broker.publish(b"a")
    await setup.broker.flush()
    async with setup.opened() as log:
        ts_ns = setup.broker.now_ns
        await setup.broker.write([Stored(2, ts_ns + 1, b"", b"c")])
        await log.look()
        assert 1 == log.high_watermark
        await setup.broker.write([Stored(1, ts_ns + 2, b"", b"b")], second=ts_ns // NS + 1)
        await log.look()
        assert [(0, b"a"), (1, b"b"), (2, b"c")] == await read_all(log)
        await setup.broker.write([Stored(4, ts_ns + 3, b"", b"e")], second=ts_ns // NS + 2)
        await log.look()
        assert 3 == log.high_watermark
        setup.clock.advance(11)
        await log.look()
        assert [(2, b"c"), (4, b"e")] == await read_all(log, 2)
    assert [] == setup.problems


async def test_nothing_is_read_from_behind_a_gap_that_is_waited_at(cold: Setup) -> None:
    """Wherever the caller stops: what fills the gap would come behind the reader."""
    cold.broker.publish(b"a")
    await cold.broker.flush()
    async with cold.opened() as log:
        cold.broker.next_offset += 1
        cold.broker.publish(b"c")
        await cold.broker.flush()
        await log.look()
        result = await log.read(0, MANY, 3)
        assert (1, 1, [(0, b"a")]) == (
            log.high_watermark,
            result.next_offset,
            [(one.offset, one.value) for one in read_stored(result.buffers)],
        )
        cold.clock.advance(11)
        await log.look()
        assert 3 == (await log.read(0, MANY, 3)).next_offset
        assert 1 == (await log.read(0, MANY, 1)).next_offset


async def test_a_window_that_comes_twice_is_dropped(cold: Setup) -> None:
    """An upload that was repeated puts the same entries into the files twice."""
    cold.broker.publish(b"a", b"b")
    await cold.broker.flush()
    async with cold.opened() as log:
        cold.broker.publish(b"c")
        await cold.broker.flush()
        again = [Stored(2, cold.broker.now_ns - NS, b"", b"c")]
        await cold.broker.write(again)
        cold.broker.publish(b"d")
        await cold.broker.flush()
        await log.look()
        expected = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
        assert expected == await read_all(log)
    async with cold.opened() as log:
        assert expected == await read_all(log)
    assert [] == cold.problems


async def test_a_window_that_comes_again_after_a_start_is_known(cold: Setup) -> None:
    """Of the newest file all records are known by their times, not the first one alone."""
    cold.broker.publish(b"a", b"b", b"c")
    entries = list(cold.broker.memory)
    await cold.broker.flush()
    async with cold.opened() as log:
        await cold.broker.write(entries)
        await log.look()
        cold.broker.publish(b"d")
        await cold.broker.flush()
        await log.look()
        assert [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")] == await read_all(log)
        assert log.stopped is None
    assert not any("again" in problem for problem in cold.problems)


async def test_an_offset_that_repeats_stops_the_partition(setup: Setup) -> None:
    """What was shown stays; nothing more is; the problem says what to do, also after a restart."""
    setup.broker.publish(b"a", b"b", b"c")
    await setup.broker.flush()
    setup.broker.publish(b"d", b"e", b"f")
    await setup.broker.flush()
    before = [(n, value) for n, value in enumerate((b"a", b"b", b"c", b"d", b"e", b"f"))]
    async with setup.opened() as log:
        setup.broker.crash(4)
        setup.broker.publish(b"other e", b"other f", b"g")
        await setup.broker.flush()
        await log.look()
        assert before == await read_all(log)
        assert (True, 1) == (log.has_failed, log.anomalies)
        append = log.append([make_batch([b"x"])])
        assert isinstance(append.error, StorageError)
        (problem,) = list(setup.shell.found)
        assert DAMAGE is problem.reason
        assert "sensors.heat-0 has stopped" in problem.text
        assert "offset 4 out again" in problem.text
        assert "Publish to a new topic" in problem.text
    assert not setup.shell.found
    async with setup.opened() as log:
        assert [problem] == list(setup.shell.found)
        assert log.has_failed
        assert before == await read_all(log)
        setup.broker.publish(b"h")
        await setup.broker.flush()
        await log.look()
        assert 6 == log.high_watermark


async def test_a_missing_chunk_is_named(cold: Setup) -> None:
    """A reader is told which file has lost it, and which offset comes behind it."""
    for value in (b"a", b"b", b"c"):
        cold.broker.publish(value)
        await cold.broker.flush()
    async with cold.opened() as log:
        files = list(cold.store.directories[cold.broker.directory].values())
        del cold.store.chunks[files[1].chunks[0].file_id]
        assert [(0, b"a")] == [
            (one.offset, one.value) for one in read_stored((await log.read(0, MANY, 3)).buffers)
        ]
        with pytest.raises(CorruptionError, match=files[1].name) as raised:
            await log.read(1, MANY, 3)
        assert 2 == raised.value.end_offset
        assert [(2, b"c")] == await read_all(log, 2)
        (problem,) = list(cold.shell.found)
        assert DAMAGE is problem.reason
        assert files[1].name in problem.text
        for file in files[:2]:
            await cold.filer.delete(cold.broker.directory, file.name)
        await log.look_at_all()
        assert 2 == log.log_start_offset
        assert () == cold.shell.found


async def test_damage_is_named(cold: Setup) -> None:
    """Bytes that are no entries are damage, and what comes before and behind them is served."""
    for value in (b"a", b"b", b"c"):
        cold.broker.publish(value, value + value)
        await cold.broker.flush()
    files = list(cold.store.directories[cold.broker.directory].values())
    chunk = files[1].chunks[0]
    cold.store.chunks[chunk.file_id] = cold.store.chunks[chunk.file_id][:-3]
    cold.store.directories[cold.broker.directory][files[1].name] = files[1]._replace(
        chunks=(chunk._replace(size_bytes=chunk.size_bytes - 3),)
    )
    async with cold.opened() as log:
        assert [(0, b"a"), (1, b"aa"), (2, b"b")] == [
            (one.offset, one.value) for one in read_stored((await log.read(0, MANY, 6)).buffers)
        ]
        with pytest.raises(CorruptionError, match="behind offset 2") as raised:
            await log.read(3, MANY, 6)
        assert 4 == raised.value.end_offset
        assert [(4, b"c"), (5, b"cc")] == await read_all(log, 4)


async def test_files_that_are_removed_move_the_beginning(setup: Setup) -> None:
    """Others remove old files: the log begins behind them."""
    for value in (b"a", b"b", b"c"):
        setup.broker.publish(value)
        await setup.broker.flush()
    async with setup.opened() as log:
        names = list(setup.store.directories[setup.broker.directory])
        await setup.filer.delete(setup.broker.directory, names[0])
        await log.look_at_all()
        assert 1 == log.log_start_offset
        for name in names[1:]:
            await setup.filer.delete(setup.broker.directory, name)
        await log.look_at_all()
        assert (3, 3) == (log.log_start_offset, log.high_watermark)
        setup.broker.publish(b"d")
        await setup.broker.flush()
        await log.look()
        assert [(3, b"d")] == await read_all(log, 3)


async def test_a_file_that_goes_before_it_is_read_is_no_damage(cold: Setup) -> None:
    """The reader gets nothing, and finds that the log begins behind it: nobody is alarmed."""
    for value in (b"a", b"b", b"c"):
        cold.broker.publish(value)
        await cold.broker.flush()
    async with cold.opened() as log:
        for name in sorted(cold.store.directories[cold.broker.directory])[:2]:
            await cold.filer.delete(cold.broker.directory, name)
        result = await log.read(1, MANY, 3)
        assert ([], 1, 2) == (result.buffers, result.next_offset, log.log_start_offset)
        assert [(2, b"c")] == await read_all(log, 2)
    assert [] == cold.problems


async def test_a_file_is_looked_up_once_for_all_of_its_reads(cold: Setup) -> None:
    """Its list of chunks is kept."""
    cold.broker.publish(b"a")
    await cold.broker.flush()
    async with cold.opened() as log:
        await log.read(0, MANY, 1)
        cold.filer.calls.clear()
        for _ in range(3):
            assert 1 == (await log.read(0, MANY, 1)).next_offset
        assert 0 == cold.filer.count(CallKind.LIST, CallKind.LOOK_UP)


async def test_archives_and_positions_are_no_log_files(setup: Setup) -> None:
    """What else is in the directory is left alone."""
    setup.broker.publish(b"a")
    await setup.broker.flush()
    directory = setup.broker.directory
    for name in (
        "2023-11-14-22-13-20.parquet",
        "checkpoint.offset",
        "notes",
        "2023-99-99-99-99-99",
    ):
        await setup.filer.put(directory, FilerEntry(name, content=b"x"))
    await setup.filer.put(f"{directory}/consumers", FilerEntry("g.offset", content=b"x"))
    async with setup.opened() as log:
        assert [(0, b"a")] == await read_all(log)


def first_at(time_ms: int, batch: RecordBatch) -> int | None:
    """Return the offset of a batch's first record that reaches a time."""
    records = read_stored([batch.buffer])
    return next((one.offset for one in records if one.timestamp_ms >= time_ms), None)


async def test_look_ups_by_time(cold: Setup) -> None:
    """Times are those of the entries, in milliseconds."""
    for number in range(6):
        cold.broker.publish(b"%d" % number, b"%d again" % number)
        await cold.broker.flush()
    async with cold.opened() as log:
        times = [one.timestamp_ms for one in read_stored((await log.read(0, MANY, 12)).buffers)]
        for offset, time_ms in enumerate(times):
            assert offset == await log.find_by_time(time_ms, 0, 12, partial(first_at, time_ms))
        assert None is await log.find_by_time(times[-1] + 1, 0, 12, lambda batch: batch)
        newest = await log.find_max_timestamp(0, 12)
        assert newest is not None
        assert 12 == newest.next_offset
        older = await log.find_max_timestamp(0, 8)
        assert older is not None
        assert 8 == older.next_offset


async def test_the_filer_may_be_away(setup: Setup) -> None:
    """It is followed again when the filer is back."""
    setup.broker.publish(b"a")
    await setup.broker.flush()
    async with setup.opened() as log:
        setup.broker.publish(b"b")
        await setup.broker.flush()
        setup.filer.fail_next(CallKind.LIST)
        with pytest.raises(StorageError):
            await log.look()
        await log.look()
        assert [(0, b"a"), (1, b"b")] == await read_all(log)


async def test_what_the_broker_has_in_memory(setup: Setup) -> None:
    """With acks=broker it is shown as soon as its offsets are certain, and not shown twice."""
    broker = ScriptedBroker(setup.broker)
    setup.broker.publish(b"a")
    await setup.broker.flush()
    async with setup.opened(broker) as log:
        setup.broker.publish(b"b")
        await log.look()
        assert 1 == log.high_watermark
        setup.broker.publish(b"c")
        await log.look()
        assert [(0, b"a"), (1, b"b"), (2, b"c")] == await read_all(log)
        await setup.broker.flush()
        await log.look()
        assert [(0, b"a"), (1, b"b"), (2, b"c")] == await read_all(log)
    assert [] == setup.problems


async def test_what_was_shown_and_lost_is_named(setup: Setup) -> None:
    """With acks=broker a broker that ends takes records with it that were shown."""
    broker = ScriptedBroker(setup.broker)
    async with setup.opened(broker) as log:
        setup.broker.publish(b"a", b"b")
        await log.look()
        assert 2 == log.high_watermark
        setup.broker.crash(7)
        setup.broker.publish(b"c")
        await setup.broker.flush()
        await log.look()
        assert 1 == log.anomalies
        (problem,) = list(setup.shell.found)
        assert DAMAGE is problem.reason
        assert "lost offsets 0 to 1" in problem.text


async def test_an_offset_that_was_shown_and_repeats(setup: Setup) -> None:
    """The broker gives what was shown from its memory to another record."""
    broker = ScriptedBroker(setup.broker)
    async with setup.opened(broker) as log:
        setup.broker.publish(b"a", b"b")
        await log.look()
        setup.broker.crash(1)
        setup.broker.publish(b"other b")
        await setup.broker.flush()
        await log.look()
        assert log.has_failed
        assert 2 == log.high_watermark


async def test_nothing_of_it_is_changed(setup: Setup) -> None:
    """Appends and removals are refused by name; there is no state to keep."""
    setup.broker.publish(b"a")
    await setup.broker.flush()
    async with setup.opened() as log:
        append = log.append([make_batch([b"x"])])
        assert isinstance(append.error, StorageError)
        assert ErrorCode.POLICY_VIOLATION is append.error.code
        with pytest.raises(StorageError, match="by SeaweedMQ alone"):
            await log.drop_before(1)
        await log.save_snapshot(Snapshot(1, b"x"))
        assert None is await log.load_snapshot()
        assert [] == [batch async for batch in log.replay(0)]
    assert 1 == len(setup.store.directories[setup.broker.directory])
