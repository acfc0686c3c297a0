"""Other defaults and settings reach every topic and partition, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.memory import MemoryBackend, MemoryPartitionLog
from kgw.config import Config
from kgw.partitions.catalog import TopicCatalog
from kgw.partitions.configuring import TOPIC_COST, configure_topic, configure_topics
from kgw.partitions.topic_config import TopicConfig
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from tests.handlers.support import LoopTurns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import LogSettings, PartitionLog
    from kgw.partitions.topic import Topic
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


async def opened(backend: MemoryBackend | None = None) -> TopicCatalog:
    """Return an empty catalogue."""
    backend = MemoryBackend() if backend is None else backend
    await backend.open()
    catalog = TopicCatalog(backend, Config(), ManualClock())
    await catalog.open()
    return catalog


def check(topic: Topic, config: Config) -> None:
    """Assert that a topic and all of its partitions and logs have their settings from here."""
    assert config.topic_values(topic.config.own) == topic.config.values
    for partition in topic.partitions.values():
        assert partition._config is topic.config
        assert isinstance(partition.log, MemoryPartitionLog)
        assert topic.config.log_settings == partition.log._settings


async def test_defaults_reach_topics_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Working the settings of many topics out does not hold the loop."""
    monkeypatch.setattr("kgw.partitions.configuring.PARTITIONS_PER_TURN", 2 * TOPIC_COST)
    catalog = await opened()
    for number in range(10):
        await catalog.create(f"topic-{number}", 2, {"max.message.bytes": "9"} if number else {})
    async with LoopTurns() as turns:
        await catalog.reconfigure(OTHER)
    assert 5 <= turns.count <= 10
    for topic in catalog.topics.values():
        check(topic, OTHER)


async def test_partitions_of_one_topic_are_told_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether its own settings change or the defaults do."""
    monkeypatch.setattr("kgw.partitions.configuring.PARTITIONS_PER_TURN", 20)
    catalog = await opened()
    topic = await catalog.create("orders", 100, {})
    async with LoopTurns() as turns:
        await catalog.reconfigure(OTHER)
    assert turns.count >= 5
    async with LoopTurns() as turns:
        await catalog.configure(topic, lambda _: {"segment.bytes": "2048"})
    assert turns.count >= 5
    assert 2048 == topic.config.log_settings.segment_bytes
    check(topic, OTHER)


async def test_topics_change_while_defaults_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Created, altered, grown or deleted meanwhile: what is left has the new defaults."""
    monkeypatch.setattr("kgw.partitions.configuring.PARTITIONS_PER_TURN", 1)
    catalog = await opened()
    topics = [await catalog.create(f"topic-{number}", 2, {}) for number in range(8)]
    changing = asyncio.ensure_future(catalog.reconfigure(OTHER))
    while topics[1].config.max_message_bytes != 77:  # noqa: ASYNC110 - it needs turns of the loop
        await asyncio.sleep(0)
    for topic in (topics[0], topics[7]):
        await catalog.configure(topic, lambda _: {"segment.bytes": "2048"})
    await catalog.add_partitions(topics[2], 3)
    await catalog.delete(topics[3])
    created = await catalog.create("created", 2, {})
    await changing
    assert {2048} == {topics[number].config.log_settings.segment_bytes for number in (0, 7)}
    assert 3 == len(topics[2].partitions)
    assert created in catalog.topics.values()
    for topic in catalog.topics.values():
        check(topic, OTHER)


async def test_the_last_of_several_changes_reaches_every_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where one that has begun before it goes on behind it."""
    monkeypatch.setattr("kgw.partitions.configuring.PARTITIONS_PER_TURN", TOPIC_COST + 10)
    catalog = await opened()
    first, second = [await catalog.create(name, 100, {}) for name in ("first", "second")]
    earlier = configure_topics([first, second], lambda: OTHER)
    while second.config.max_message_bytes != 77:
        next(earlier)
    config = TopicConfig({"max.message.bytes": 88}, OTHER)
    for _ in configure_topic(second, config):
        pass
    assert [] != list(earlier)
    assert config is second.config
    for topic in (first, second):
        check(topic, OTHER)


async def test_what_is_deleted_meanwhile_is_passed_over() -> None:
    """Nobody will ask for its settings again."""
    catalog = await opened()
    topic = await catalog.create("orders", 1, {})
    config = topic.config
    changing = configure_topics([topic], lambda: OTHER)
    await catalog.delete(topic)
    assert [] == list(changing)
    assert config is topic.config


async def test_defaults_change_again_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is still at it goes on with the newest, even behind who has brought them."""
    monkeypatch.setattr("kgw.partitions.configuring.PARTITIONS_PER_TURN", 1)
    catalog = await opened()
    wide = await catalog.create("wide", 300, {})
    last = await catalog.create("last", 1, {})
    earlier = asyncio.ensure_future(catalog.reconfigure(OTHER))
    while wide.config.max_message_bytes != 77:  # noqa: ASYNC110 - it needs turns of the loop
        await asyncio.sleep(0)
    await catalog.delete(wide)
    newest = Config.of(message_max_bytes=99)
    await catalog.reconfigure(newest)
    assert not earlier.done()
    await earlier
    check(last, newest)


async def test_a_change_of_defaults_is_completed_when_its_caller_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No topic keeps defaults that nobody is told of any more."""
    monkeypatch.setattr("kgw.partitions.configuring.PARTITIONS_PER_TURN", 1)
    catalog = await opened()
    topics = [await catalog.create(f"topic-{number}", 1, {}) for number in range(5)]
    changing = asyncio.ensure_future(catalog.reconfigure(OTHER))
    await asyncio.sleep(0)
    changing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await changing
    await catalog.aclose()
    for topic in topics:
        check(topic, OTHER)


@pytest.mark.parametrize("closed_at", range(1, 5))
async def test_defaults_change_while_a_topic_is_created(closed_at: int) -> None:
    """Before its logs, between them, or before its row: it is served with the new ones."""
    gate = Gate()
    catalog = await opened(GatedBackend(gate))
    gate.close_at(closed_at)
    creating = asyncio.ensure_future(catalog.create("orders", 2, {"max.message.bytes": "9"}))
    await gate.reached.wait()
    await catalog.reconfigure(OTHER)
    assert catalog.get("orders") is None
    gate.open()
    topic = await creating
    assert 9 == topic.config.max_message_bytes
    check(topic, OTHER)


@pytest.mark.parametrize("closed_at", range(1, 4))
async def test_defaults_change_while_a_topic_grows(closed_at: int) -> None:
    """Its new partitions join it with what the others have."""
    gate = Gate()
    catalog = await opened(GatedBackend(gate))
    topic = await catalog.create("orders", 1, {})
    gate.close_at(closed_at)
    growing = asyncio.ensure_future(catalog.add_partitions(topic, 3))
    await gate.reached.wait()
    await catalog.reconfigure(OTHER)
    gate.open()
    await growing
    assert 3 == len(topic.partitions)
    check(topic, OTHER)


@pytest.mark.parametrize("grows", [False, True])
async def test_defaults_change_again_while_new_partitions_are_told(
    grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are served once nothing has changed while they were told."""
    monkeypatch.setattr("kgw.partitions.configuring.PARTITIONS_PER_TURN", 1)
    gate = Gate()
    catalog = await opened(GatedBackend(gate))
    making: asyncio.Task[object]
    if grows:
        grown = await catalog.create("orders", 1, {})
        gate.close_at(5)
        making = asyncio.create_task(catalog.add_partitions(grown, 5))
    else:
        gate.close_at(7)
        making = asyncio.create_task(catalog.create("orders", 5, {}))
    await gate.reached.wait()
    await catalog.reconfigure(OTHER)
    gate.open()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not making.done()
    newest = Config.of(message_max_bytes=99)
    await catalog.reconfigure(newest)
    await making
    topic = catalog.get("orders")
    assert topic is not None
    assert 5 == len(topic.partitions)
    check(topic, newest)
