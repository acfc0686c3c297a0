from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.errors import StorageError
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests.clocks import WrongClock
from tests.handlers.support import (
    START_MS,
    batch,
    create_topic,
    fetch,
    fetch_request,
    offsets_in,
    produce,
)
from tests.handlers.transactions import Transactions
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.partitions.topics.topic import Topic

HOUR_MS = 3_600_000


async def filled(gateway: InProcessGateway, name: str = "orders", **configs: str) -> Topic:
    """Return a topic of two partitions with five records each."""
    topic = await create_topic(gateway, name, partitions=2, **configs)
    for index in range(2):
        for _ in range(5):
            await produce(gateway, batch(), name=name, index=index)
    return topic


def starts(topic: Topic) -> list[int]:
    """Return where its partitions begin."""
    return [partition.log.log_start_offset for partition in topic.partitions.values()]


async def test_runs_on_a_schedule() -> None:
    """First a while after the start, then at every interval."""
    async with InProcessGateway() as gateway:
        topic = await filled(gateway, **{"kgw.retention.offset": "9"})
        gateway.manual_clock.advance(29)
        await turns(50)
        assert [0, 0] == starts(topic)
        gateway.manual_clock.advance(1)
        await turns(50)
        assert [5, 5] == starts(topic)
        await produce(gateway, batch())
        gateway.manual_clock.advance(299)
        await turns(50)
        assert [5, 5] == starts(topic)
        gateway.manual_clock.advance(1)
        await turns(50)
        assert [6, 5] == starts(topic)
        assert {"offset": 11} == gateway.metrics.removed_records


async def test_what_an_open_transaction_holds_back_is_kept() -> None:
    """Its records have not been read by those who wait for it; they go when it has ended."""
    async with InProcessGateway() as gateway:
        topic = await create_topic(gateway, kgw_retention_offset="9")
        await produce(gateway, batch())
        transactions = Transactions(gateway)
        await transactions.write(7, b"open")
        await produce(gateway, batch())
        log_manager = gateway.log_manager
        await log_manager.retain()
        assert [1] == starts(topic)
        await transactions.end(7, is_commit=False)
        await log_manager.retain()
        assert [4] == starts(topic)


async def test_a_partition_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged and counted, and tried again at the next run."""
    async with InProcessGateway() as gateway:
        topic = await filled(gateway, **{"kgw.retention.offset": "3"})
        drop_before = MemoryPartitionLog.drop_before
        with monkeypatch.context() as patch:

            async def fail(self: MemoryPartitionLog, offset: int) -> None:
                if self.key.partition == 0:
                    raise StorageError("the disk is gone")
                await drop_before(self, offset)

            patch.setattr(MemoryPartitionLog, "drop_before", fail)
            await gateway.log_manager.retain()
        assert [0, 3] == starts(topic)
        assert 1 == gateway.metrics.retention_failures
        assert "retention failed" in caplog.text
        await gateway.log_manager.retain()
        assert [3, 3] == starts(topic)


async def test_a_bug_in_one_partition_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is reported as one, and the next partitions have their turn in every run."""
    async with InProcessGateway() as gateway:
        topic = await filled(gateway, **{"kgw.retention.offset": "3"})

        async def fail(self: MemoryPartitionLog, offset: int) -> None:
            if self.key.partition == 0:
                raise RuntimeError("unexpected")
            await drop_before(self, offset)

        drop_before = MemoryPartitionLog.drop_before
        monkeypatch.setattr(MemoryPartitionLog, "drop_before", fail)
        await gateway.log_manager.retain()
        assert [0, 3] == starts(topic)
        assert 1 == gateway.metrics.retention_failures
        assert {"log manager": 1} == gateway.internal_errors


async def test_a_bug_outside_of_partitions_does_not_stop_the_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is reported as one, and the next run does what there is to be done."""
    async with InProcessGateway() as gateway:
        topic = await filled(gateway, **{"kgw.retention.offset": "3"})
        with monkeypatch.context() as patch:
            patch.setattr(MemoryStateStore, "apply", None)
            gateway.manual_clock.advance(30)
            await turns(50)
        assert ([0, 0], {"log manager": 1}) == (starts(topic), gateway.internal_errors)
        gateway.manual_clock.advance(300)
        await turns(50)
        assert ([3, 3], {"log manager": 1}) == (starts(topic), gateway.internal_errors)


async def test_a_jump_of_the_clock_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A warning and a gauge while the clock is held, a line when it is gone by again."""
    caplog.set_level(logging.INFO)
    clock = WrongClock()
    async with InProcessGateway(clock=clock) as gateway:
        log_manager = gateway.log_manager
        start_ms = await log_manager.now_ms()
        clock.wrong_by_ms = 10 * 365 * 24 * HOUR_MS
        for _ in range(3):
            assert start_ms == await log_manager.now_ms()
        assert 1 == caplog.text.count("has jumped")
        assert 1 == gateway.metrics.clock_held
        clock.advance(HOUR_MS / 1000 + 1)
        assert clock.wall_ms() == await log_manager.now_ms()
        assert clock.wall_ms() == await log_manager.now_ms()
        assert 1 == caplog.text.count("is gone by again")
        assert 0 == gateway.metrics.clock_held


@pytest.mark.parametrize(("days", "said"), [(30, "ahead"), (-30, "behind")])
async def test_how_far_the_clock_has_jumped_is_said(
    caplog: pytest.LogCaptureFixture, days: int, said: str
) -> None:
    """Also of a clock that was set back, which is never less than the time to go by."""
    clock = WrongClock()
    async with InProcessGateway(clock=clock) as gateway:
        await gateway.log_manager.now_ms()
        clock.wrong_by_ms = days * 24 * HOUR_MS
        await gateway.log_manager.now_ms()
    assert f"{30 * 24 * HOUR_MS} ms {said} of where it should be" in caplog.text


async def test_the_time_outlives_a_restart() -> None:
    """A clock that was moved while the server was down is held too."""
    backend = MemoryBackend()
    async with InProcessGateway(backend=backend) as gateway:
        await gateway.log_manager.retain()
        stopped_ms = gateway.clock.wall_ms()
    clock = ManualClock(wall_ms=stopped_ms + 30 * 24 * HOUR_MS)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        assert stopped_ms == await gateway.log_manager.now_ms()
    clock = ManualClock(wall_ms=stopped_ms + HOUR_MS)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        assert clock.wall_ms() == await gateway.log_manager.now_ms()


async def segmented(gateway: InProcessGateway, **configs: str) -> Topic:
    """Return a topic of one partition with some segments of ten records or so."""
    topic = await create_topic(gateway, partitions=1, segment_bytes="1024", **configs)
    for number in range(60):
        await produce(gateway, batch(b"v" * 10, timestamps_ms=(START_MS + number * 1000,)))
    return topic


async def bases(topic: Topic) -> list[int]:
    """Return where the segments of its first partition begin."""
    return [one.base_offset for one in await topic.partitions[0].log.segments()]  # type: ignore[attr-defined]


async def test_old_segments_are_removed_and_the_rest_is_served() -> None:
    """By time, then by size; what is left can be read from the new log start."""
    clock = ManualClock()
    async with InProcessGateway(backend=MemoryBackend(clock), clock=clock) as gateway:
        topic = await segmented(gateway, retention_ms="30000")
        before = await bases(topic)
        assert len(before) > 4
        clock.advance(60)
        await gateway.log_manager.retain()
        after = await bases(topic)
        # Records from second 30 on are not older than 30 s: they and their segments stay.
        assert [base for base in before if base >= after[0]] == after
        assert after[0] <= 30 < after[1]
        assert [after[0]] == starts(topic)
        metrics = gateway.metrics
        assert {"time": after[0]} == metrics.removed_records
        assert {"time": len(before) - len(after)} == metrics.removed_segments
        size_bytes = topic.partitions[0].log.size_bytes
        await gateway.topic_manager.configure(topic, lambda _: {"retention.bytes": "1000"})
        await gateway.log_manager.retain()
        left = await bases(topic)
        assert after[0] < left[0]
        assert metrics.removed_bytes["size"] == size_bytes - topic.partitions[0].log.size_bytes
        assert topic.partitions[0].log.size_bytes >= 1000
        data = await fetch(gateway, fetch_request(left[0]))
        assert left[0] == offsets_in(data)[0][0]


async def test_an_expired_topic_is_emptied_and_goes_on_where_it_was() -> None:
    """The active segment is closed and removed as well; the next offset is as if nothing was."""
    clock = ManualClock()
    async with InProcessGateway(backend=MemoryBackend(clock), clock=clock) as gateway:
        topic = await segmented(gateway, retention_ms="1000")
        clock.advance(3600)
        await gateway.log_manager.retain()
        assert [60] == starts(topic)
        assert 0 == topic.partitions[0].log.size_bytes
        assert 1 == gateway.metrics.segments_closed
        assert 60 == (await produce(gateway, batch())).base_offset


async def test_a_jump_of_the_clock_removes_nothing() -> None:
    """Ten years ahead, between two wrong times, and back: retention waits for time to pass."""
    clock = WrongClock()
    async with InProcessGateway(backend=MemoryBackend(clock), clock=clock) as gateway:
        topic = await segmented(gateway, retention_ms=str(24 * HOUR_MS))
        log_manager = gateway.log_manager
        await log_manager.retain()
        for wrong_by_ms in (10 * 365 * 24 * HOUR_MS, 25 * HOUR_MS, 0, -HOUR_MS, 25 * HOUR_MS) * 4:
            clock.wrong_by_ms = wrong_by_ms
            clock.advance(300)
            await log_manager.retain()
        assert [0] == starts(topic)
        # It stays there: believed in the end.
        clock.advance(3601)
        await log_manager.retain()
        assert [60] == starts(topic)


async def test_compacted_topics_are_not_removed_from() -> None:
    """Retention is for topics whose policy has delete; both policies do both."""
    clock = ManualClock()
    async with InProcessGateway(backend=MemoryBackend(clock), clock=clock) as gateway:
        limits = {"retention.ms": "1", "retention.bytes": "0", "kgw.retention.offset": "9"}
        topic = await segmented(gateway)
        policy = {"cleanup.policy": "compact"}
        await gateway.topic_manager.configure(topic, lambda _: policy | limits)
        clock.advance(3600)
        await gateway.log_manager.retain()
        assert [0] == starts(topic)
        policy = {"cleanup.policy": "compact,delete"}
        await gateway.topic_manager.configure(topic, lambda _: policy | limits)
        await gateway.log_manager.retain()
        assert [60] == starts(topic)
