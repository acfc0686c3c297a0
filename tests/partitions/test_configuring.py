"""Other defaults and settings reach every topic and partition, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.config import Config
from kgw.partitions.topics.manager import TOPIC_COST, TopicManager
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from tests.handlers.support import LoopTurns
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import LogSettings, PartitionLog
    from kgw.partitions.topics.topic import Topic
    from kgw.state.base import Change
    from kgw.types import PartitionKey, TopicName

OTHER = Config.of(log_segment_bytes=4096, message_max_bytes=77)


class Gate:
    """Lets operations pass, but for one that waits until it is opened."""

    def __init__(self) -> None:
        self.closed_at = 0
        self.reached = asyncio.Event()
        self._opened = asyncio.Event()
        self._count = 0

    def close_at(self, number: int) -> None:
        """Hold up one of the operations to come."""
        self.closed_at = self._count + number

    def open(self) -> None:
        self._opened.set()

    async def passed(self) -> None:
        self._count += 1
        if self._count == self.closed_at:
            self.reached.set()
            await self._opened.wait()


class GatedState(MemoryStateStore):
    """A state store whose writes pass a gate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    async def apply(self, changes: Sequence[Change]) -> None:
        await self._gate.passed()
        await super().apply(changes)


class GatedBackend(MemoryBackend):
    """A memory backend whose writes and new logs pass a gate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.state = GatedState(gate)
        self._gate = gate

    async def create_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        log = await super().create_partition(key, topic, settings)
        await self._gate.passed()
        return log


async def opened(
    backend: MemoryBackend | None = None, *, configured_per_turn: int = 1_000
) -> TopicManager:
    """Return a manager without topics."""
    backend = MemoryBackend() if backend is None else backend
    await backend.open()
    manager = TopicManager(
        backend, Config(), ManualClock(), configured_per_turn=configured_per_turn
    )
    await manager.open()
    return manager


def check(topic: Topic, config: Config) -> None:
    """Assert that a topic and all of its partitions and logs have their settings from here."""
    assert config.topic_values(topic.config.own) == topic.config.values
    for partition in topic.partitions.values():
        assert isinstance(partition.log, MemoryPartitionLog)
        assert topic.config.log_settings == partition.log.settings


async def test_defaults_reach_topics_some_at_a_time() -> None:
    """Working the settings of many topics out does not hold the loop."""
    manager = await opened(configured_per_turn=2 * TOPIC_COST)
    for number in range(10):
        await manager.create(f"topic-{number}", 2, {"max.message.bytes": "9"} if number else {})
    async with LoopTurns() as turns:
        await manager.reconfigure(OTHER)
    assert 5 <= turns.count <= 10
    for topic in manager.catalog.topics.values():
        check(topic, OTHER)


async def test_partitions_of_one_topic_are_told_some_at_a_time() -> None:
    """Whether its own settings change or the defaults do."""
    manager = await opened(configured_per_turn=20)
    topic = await manager.create("orders", 100, {})
    async with LoopTurns() as turns:
        await manager.reconfigure(OTHER)
    assert turns.count >= 5
    async with LoopTurns() as turns:
        await manager.configure(topic, lambda _: {"segment.bytes": "2048"})
    assert turns.count >= 5
    assert 2048 == topic.config.log_settings.segment_bytes
    check(topic, OTHER)


async def test_topics_change_while_defaults_do() -> None:
    """Created, altered, grown or deleted meanwhile: what is left has the new defaults."""
    manager = await opened(configured_per_turn=1)
    topics = [await manager.create(f"topic-{number}", 2, {}) for number in range(8)]
    changing = asyncio.ensure_future(manager.reconfigure(OTHER))
    while topics[1].config.batches.max_message_bytes != 77:  # noqa: ASYNC110 - it needs turns of the loop
        await asyncio.sleep(0)
    for topic in (topics[0], topics[7]):
        await manager.configure(topic, lambda _: {"segment.bytes": "2048"})
    await manager.add_partitions(topics[2], 3)
    await manager.delete(topics[3])
    created = await manager.create("created", 2, {})
    await changing
    assert {2048} == {topics[number].config.log_settings.segment_bytes for number in (0, 7)}
    assert 3 == len(topics[2].partitions)
    assert created in manager.catalog.topics.values()
    for topic in manager.catalog.topics.values():
        check(topic, OTHER)


async def test_the_last_of_several_changes_reaches_every_partition() -> None:
    """Also where one that has begun before it goes on behind it."""
    manager = await opened(configured_per_turn=10)
    topic = await manager.create("orders", 100, {})
    earlier = asyncio.ensure_future(manager.reconfigure(OTHER))
    while topic.config.batches.max_message_bytes != 77:  # noqa: ASYNC110 - it needs turns of the loop
        await asyncio.sleep(0)
    later = manager.configure(topic, lambda _: {"segment.bytes": "2048"})
    await asyncio.gather(earlier, later)
    assert 2048 == topic.config.log_settings.segment_bytes
    check(topic, OTHER)


async def test_defaults_change_again_meanwhile() -> None:
    """Whoever is still at it goes on with the newest, even behind who has brought them."""
    manager = await opened(configured_per_turn=1)
    wide = await manager.create("wide", 300, {})
    last = await manager.create("last", 1, {})
    earlier = asyncio.ensure_future(manager.reconfigure(OTHER))
    while wide.config.batches.max_message_bytes != 77:  # noqa: ASYNC110 - it needs turns of the loop
        await asyncio.sleep(0)
    await manager.delete(wide)
    newest = Config.of(message_max_bytes=99)
    await manager.reconfigure(newest)
    assert not earlier.done()
    await earlier
    check(last, newest)


async def test_a_change_of_defaults_is_completed_when_its_caller_is_cancelled() -> None:
    """No topic keeps defaults that nobody is told of any more."""
    manager = await opened(configured_per_turn=1)
    topics = [await manager.create(f"topic-{number}", 1, {}) for number in range(5)]
    changing = asyncio.ensure_future(manager.reconfigure(OTHER))
    await asyncio.sleep(0)
    changing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await changing
    await manager.aclose()
    for topic in topics:
        check(topic, OTHER)


@pytest.mark.parametrize("closed_at", range(1, 5))
async def test_defaults_change_while_a_topic_is_created(closed_at: int) -> None:
    """Before its logs, between them, or before its row: it is served with the new ones."""
    gate = Gate()
    manager = await opened(GatedBackend(gate))
    gate.close_at(closed_at)
    creating = asyncio.ensure_future(manager.create("orders", 2, {"max.message.bytes": "9"}))
    await gate.reached.wait()
    await manager.reconfigure(OTHER)
    assert manager.catalog.get("orders") is None
    gate.open()
    topic = await creating
    assert 9 == topic.config.batches.max_message_bytes
    check(topic, OTHER)


@pytest.mark.parametrize("closed_at", range(1, 4))
async def test_defaults_change_while_a_topic_grows(closed_at: int) -> None:
    """Its new partitions join it with what the others have."""
    gate = Gate()
    manager = await opened(GatedBackend(gate))
    topic = await manager.create("orders", 1, {})
    gate.close_at(closed_at)
    growing = asyncio.ensure_future(manager.add_partitions(topic, 3))
    await gate.reached.wait()
    await manager.reconfigure(OTHER)
    gate.open()
    await growing
    assert 3 == len(topic.partitions)
    check(topic, OTHER)


@pytest.mark.parametrize("grows", [False, True])
async def test_defaults_change_again_while_new_partitions_are_told(
    grows: bool,
) -> None:
    """They are served once nothing has changed while they were told."""
    gate = Gate()
    manager = await opened(GatedBackend(gate), configured_per_turn=1)
    making: asyncio.Task[object]
    if grows:
        grown = await manager.create("orders", 1, {})
        gate.close_at(5)
        making = asyncio.create_task(manager.add_partitions(grown, 5))
    else:
        gate.close_at(7)
        making = asyncio.create_task(manager.create("orders", 5, {}))
    await gate.reached.wait()
    await manager.reconfigure(OTHER)
    gate.open()
    await turns(3)
    assert not making.done()
    newest = Config.of(message_max_bytes=99)
    await manager.reconfigure(newest)
    await making
    topic = manager.catalog.topics["orders"]
    assert 5 == len(topic.partitions)
    check(topic, newest)
