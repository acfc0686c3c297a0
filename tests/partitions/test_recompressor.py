from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.config import Config
from kgw.errors import CorruptionError, DiskFullError
from kgw.protocol.messages.fetch import FetchResponse
from kgw.records.batch import Compression, split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import (
    START_MS,
    create_topic,
    fetch,
    fetch_many,
    fetch_request,
    produce,
)

if TYPE_CHECKING:
    from kgw.backend.base import RecompressionJob, RecompressionReport
    from kgw.partitions.topics.topic import Topic

AFTER_MS = 60_000


def line(number: int) -> bytes:
    """Return the value of a record that compresses well."""
    return b"%d: a line of a log, " % number * 20


async def cold_topic(gateway: InProcessGateway, **configs: str) -> Topic:
    """Create a topic whose segments take two batches and are cold after a minute."""
    settings = {
        "segment_bytes": "1100",
        "kgw_cold_compression": "zstd",
        "kgw_cold_compression_after_ms": str(AFTER_MS),
    }
    return await create_topic(gateway, partitions=1, **(settings | configs))


async def fill(gateway: InProcessGateway, count: int = 10, timestamp_ms: int = START_MS) -> None:
    """Produce so many batches of one record."""
    for number in range(count):
        builder = BatchBuilder()
        builder.add(key=b"k%d" % (number % 3), value=line(number), timestamp_ms=timestamp_ms)
        answer = await produce(gateway, builder.build())
        assert 0 == answer.error_code, answer.error_message


def log_of(topic: Topic) -> MemoryPartitionLog:
    """Return the log of its only partition."""
    log = topic.partitions[0].log
    assert isinstance(log, MemoryPartitionLog)
    return log


async def read(gateway: InProcessGateway, version: int = 12) -> list[tuple[Compression, bytes]]:
    """Return codec and value of each record that a client of this version is given."""
    found: list[tuple[Compression, bytes]] = []
    offset = 0
    while True:
        data = await fetch(gateway, fetch_request(offset, partition_max_bytes=1_000), version)
        assert 0 == data.error_code
        assert isinstance(data.records, bytes | bytearray | memoryview)
        batches = split_batches(data.records)
        if not batches:
            return found
        for batch in batches:
            assert batch.crc_matches()
            assert offset == batch.base_offset
            offset = batch.next_offset
            found += [(batch.compression, one.value or b"") for one in read_records(batch)]


async def test_old_closed_segments_are_recompressed() -> None:
    """Once they are old enough, each once; what it saved can be read."""
    async with InProcessGateway() as gateway:
        topic = await cold_topic(gateway)
        await fill(gateway)
        log_manager, metrics = gateway.log_manager, gateway.metrics
        await log_manager.recompress()
        assert 0 == log_of(topic).recompressed.end_offset
        size_bytes = log_of(topic).size_bytes
        gateway.manual_clock.advance(AFTER_MS / 1000 + 1)
        await log_manager.recompress()
        assert 8 == log_of(topic).recompressed.end_offset
        assert {"recompressed": 4, "failed": 0, "kept": 0} == metrics.cold_segments
        saved = metrics.cold_bytes["before"] - metrics.cold_bytes["after"]
        assert size_bytes - log_of(topic).size_bytes == saved > 0
        await log_manager.recompress()
        assert 4 == metrics.cold_segments["recompressed"]
        expected = [
            (Compression.ZSTD if number < 8 else Compression.NONE, line(number))
            for number in range(10)
        ]
        assert expected == await read(gateway)


@pytest.mark.parametrize(
    ("config", "configs"),
    [
        ({}, {"kgw_cold_compression": "none"}),
        ({"log_cleaner_enable": False}, {}),
    ],
)
async def test_what_is_not_wanted_is_left_alone(
    config: dict[str, Any], configs: dict[str, str]
) -> None:
    """Without the setting, which is the default, and while log.cleaner.enable is off."""
    async with InProcessGateway(Config.of(**config)) as gateway:
        topic = await cold_topic(gateway, **configs)
        await fill(gateway)
        gateway.manual_clock.advance(AFTER_MS / 1000 + 1)
        await gateway.log_manager.recompress()
        assert 0 == log_of(topic).recompressed.end_offset


async def test_the_server_may_say_it_for_all_topics() -> None:
    """As of every setting that a topic has."""
    config = Config.of(cold_compression="zstd", cold_compression_after_ms=AFTER_MS)
    async with InProcessGateway(config) as gateway:
        topic = await create_topic(gateway, segment_bytes="1100")
        await fill(gateway)
        gateway.manual_clock.advance(AFTER_MS / 1000 + 1)
        await gateway.log_manager.recompress()
        assert 8 == log_of(topic).recompressed.end_offset


class JumpingClock(ManualClock):
    """A manual clock whose wall time can be set."""

    set_forward_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.set_forward_ms


async def test_a_clock_that_jumps_makes_nothing_cold() -> None:
    """Until it has run steadily for kgw.clock.hold.ms, as for retention."""
    clock = JumpingClock()
    async with InProcessGateway(clock=clock) as gateway:
        topic = await cold_topic(gateway)
        await fill(gateway, timestamp_ms=clock.wall_ms())
        log_manager = gateway.log_manager
        await log_manager.now_ms()
        clock.set_forward_ms = 10 * AFTER_MS
        await log_manager.recompress()
        assert 0 == log_of(topic).recompressed.end_offset
        clock.advance(AFTER_MS / 1000 + 1)
        await log_manager.recompress()
        assert 8 == log_of(topic).recompressed.end_offset


@pytest.mark.parametrize("version", [4, 6, 9])
async def test_clients_without_zstd_get_it_without_compression(version: int) -> None:
    """They could read it before: below Fetch 10, and no more at once than they asked for."""
    async with InProcessGateway() as gateway:
        await cold_topic(gateway)
        await fill(gateway)
        gateway.manual_clock.advance(AFTER_MS / 1000 + 1)
        await gateway.log_manager.recompress()
        expected = [(Compression.NONE, line(number)) for number in range(10)]
        assert expected == await read(gateway, version)
        request = fetch_request(0, partition_max_bytes=1_000)
        data = await fetch(gateway, request, version)
        assert isinstance(data.records, bytes | bytearray | memoryview)
        assert 2 == len(split_batches(data.records))


async def test_a_session_from_before_gets_it_so_too() -> None:
    """Below Fetch 10 a fetch session keeps its views, and what is cold may change under them."""
    async with InProcessGateway() as gateway:
        await cold_topic(gateway)
        await fill(gateway)
        request = fetch_many([0], offset=10, session_epoch=0)
        session = await gateway.ask(request, 9, FetchResponse)
        assert session.session_id
        gateway.manual_clock.advance(AFTER_MS / 1000 + 1)
        await gateway.log_manager.recompress()
        request = fetch_many([0], offset=0, session_epoch=1)
        request.session_id = session.session_id
        response = await gateway.ask(request, 9, FetchResponse)
        records = response.responses[0].partitions[0].records
        assert isinstance(records, bytes | bytearray | memoryview)
        found = split_batches(records)
        assert 10 == len(found)
        assert {Compression.NONE} == {batch.compression for batch in found}


async def test_what_producers_sent_in_zstd_is_given_as_it_is() -> None:
    """To old clients, too, as in Kafka: where nothing has been recompressed yet."""
    async with InProcessGateway() as gateway:
        await cold_topic(gateway)
        builder = BatchBuilder(compression=Compression.ZSTD)
        builder.add(value=line(1), timestamp_ms=START_MS)
        await produce(gateway, builder.build())
        assert [(Compression.ZSTD, line(1))] == await read(gateway, 9)


async def test_old_clients_are_served_when_the_setting_is_gone() -> None:
    """What is in zstd stays so, over restarts."""
    backend = MemoryBackend()
    config = Config.of(cold_compression="zstd", cold_compression_after_ms=AFTER_MS)
    async with InProcessGateway(config, backend=backend) as gateway:
        await create_topic(gateway, segment_bytes="1100")
        await fill(gateway)
        gateway.manual_clock.advance(AFTER_MS / 1000 + 1)
        await gateway.log_manager.recompress()
    async with InProcessGateway(Config.of(cold_compression="none"), backend=backend) as gateway:
        assert {Compression.NONE} == {codec for codec, _ in await read(gateway, 9)}


async def test_a_partition_that_fails_is_put_aside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a problem that can be read, and is tried again ten minutes later."""
    recompress = MemoryPartitionLog.recompress
    failures: list[Exception] = [DiskFullError("no room")]

    async def fail(log: MemoryPartitionLog, job: RecompressionJob) -> RecompressionReport:
        if failures:
            raise failures.pop()
        return await recompress(log, job)

    monkeypatch.setattr(MemoryPartitionLog, "recompress", fail)
    async with InProcessGateway() as gateway:
        topic = await cold_topic(gateway)
        await fill(gateway)
        gateway.manual_clock.advance(AFTER_MS / 1000 + 1)
        log_manager, metrics = gateway.log_manager, gateway.metrics
        await log_manager.recompress()
        assert ["orders-0 keeps its cold segments as they are: no room"] == list(
            log_manager.problems
        )
        assert ({"disk_full": 1}, 1) == (metrics.cold_failures, metrics.cold_put_aside)
        gateway.manual_clock.advance(599)
        await log_manager.recompress()
        assert 0 == log_of(topic).recompressed.end_offset
        gateway.manual_clock.advance(2)
        await log_manager.recompress()
        assert 8 == log_of(topic).recompressed.end_offset
        assert ([], 0) == (list(log_manager.problems), metrics.cold_put_aside)
        assert 1 == caplog.text.count("cannot be recompressed")


async def test_a_segment_that_fails_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays as it is, and is counted."""
    recompress = MemoryPartitionLog.recompress

    async def fail_one(log: MemoryPartitionLog, job: RecompressionJob) -> RecompressionReport:
        report = await recompress(log, job)
        return report._replace(
            segments_exchanged=report.segments_exchanged - 1,
            failures=(str(CorruptionError("the batch at offset 3 is damaged")),),
        )

    monkeypatch.setattr(MemoryPartitionLog, "recompress", fail_one)
    async with InProcessGateway() as gateway:
        await cold_topic(gateway)
        await fill(gateway)
        gateway.manual_clock.advance(AFTER_MS / 1000 + 1)
        log_manager, metrics = gateway.log_manager, gateway.metrics
        await log_manager.recompress()
        await log_manager.recompress()
        assert {"recompressed": 3, "failed": 1, "kept": 0} == metrics.cold_segments
        assert {"damage": 1} == metrics.cold_failures
        assert 1 == caplog.text.count("the batch at offset 3 is damaged")


async def test_a_compacted_topic_is_compacted_first() -> None:
    """Then what is left is recompressed, and further compaction leaves it in zstd."""
    clock = ManualClock()
    async with InProcessGateway(backend=MemoryBackend(clock), clock=clock) as gateway:
        topic = await cold_topic(gateway, cleanup_policy="compact")
        await fill(gateway, timestamp_ms=clock.wall_ms())
        clock.advance(AFTER_MS / 1000 + 1)
        log_manager = gateway.log_manager
        await log_manager.recompress()
        # Nothing was compacted before the first run found that there was nothing for it.
        assert 0 == log_of(topic).recompressed.end_offset
        await log_manager.compact()
        await log_manager.recompress()
        assert 8 == log_of(topic).recompressed.end_offset
        expected = [(Compression.ZSTD, line(number)) for number in (5, 6, 7)]
        assert expected == (await read(gateway))[:3]
        await fill(gateway, 2, timestamp_ms=clock.wall_ms())
        await log_manager.compact()
        assert (Compression.ZSTD, line(7)) == (await read(gateway))[0]
