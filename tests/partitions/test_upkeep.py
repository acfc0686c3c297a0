from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.errors import StorageError
from kgw.testing.clock import ManualClock
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import batch, create_topic, produce

if TYPE_CHECKING:
    import pytest

    from kgw.partitions.topic import Topic

HOUR_MS = 3_600_000


class WrongClock(ManualClock):
    """A clock whose wall time can be set wrong."""

    wrong_by_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wrong_by_ms


async def settle() -> None:
    """Let tasks that are due run until they wait again."""
    for _ in range(50):
        await asyncio.sleep(0)


async def filled(gateway: InProcessGateway, name: str = "orders", **configs: str) -> Topic:
    """Return a topic of two partitions with five records each."""
    topic = await create_topic(gateway, name, partitions=2, **configs)
    for index in range(2):
        for _ in range(5):
            await produce(gateway, batch(), name=name, index=index)
    return topic


def starts(topic: Topic) -> list[int]:
    """Return where its partitions begin."""
    return [partition.log.log_start_offset for partition in topic.partitions]


async def test_runs_on_a_schedule() -> None:
    """First a while after the start, then at every interval."""
    async with InProcessGateway() as gateway:
        topic = await filled(gateway, **{"kgw.retention.offset": "3"})
        gateway.manual_clock.advance(29)
        await settle()
        assert [0, 0] == starts(topic)
        gateway.manual_clock.advance(1)
        await settle()
        assert [3, 3] == starts(topic)
        await produce(gateway, batch())
        await gateway.gateway.catalog.configure(topic, lambda _: {"kgw.retention.offset": "9"})
        gateway.manual_clock.advance(299)
        await settle()
        assert [3, 3] == starts(topic)
        gateway.manual_clock.advance(1)
        await settle()
        assert [6, 5] == starts(topic)
        assert {"offset": 11} == gateway.gateway.metrics.removed_records


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
            await gateway.gateway.upkeep.retain()
        assert [0, 3] == starts(topic)
        assert 1 == gateway.gateway.metrics.retention_failures
        assert "retention failed" in caplog.text
        await gateway.gateway.upkeep.retain()
        assert [3, 3] == starts(topic)


async def test_a_jump_of_the_clock_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """A warning and a gauge while the clock is held, a line when it is gone by again."""
    caplog.set_level(logging.INFO)
    clock = WrongClock()
    async with InProcessGateway(clock=clock) as gateway:
        upkeep = gateway.gateway.upkeep
        start_ms = await upkeep.now_ms()
        clock.wrong_by_ms = 10 * 365 * 24 * HOUR_MS
        for _ in range(3):
            assert start_ms == await upkeep.now_ms()
        assert 1 == caplog.text.count("has jumped")
        assert 1 == gateway.gateway.metrics.clock_held
        clock.advance(HOUR_MS / 1000 + 1)
        assert clock.wall_ms() == await upkeep.now_ms()
        assert "is gone by again" in caplog.text
        assert 0 == gateway.gateway.metrics.clock_held


async def test_the_time_outlives_a_restart() -> None:
    """A clock that was moved while the server was down is held too."""
    backend = MemoryBackend()
    async with InProcessGateway(backend=backend) as gateway:
        await gateway.gateway.upkeep.retain()
        stopped_ms = gateway.clock.wall_ms()
    clock = ManualClock(wall_ms=stopped_ms + 30 * 24 * HOUR_MS)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        assert stopped_ms == await gateway.gateway.upkeep.now_ms()
    clock = ManualClock(wall_ms=stopped_ms + HOUR_MS)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        assert clock.wall_ms() == await gateway.gateway.upkeep.now_ms()
