from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.config import Config
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.partitions.topics.manager import TopicManager
from kgw.testing.clock import ManualClock
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.backend.base import LogSettings, PartitionLog
    from kgw.types import PartitionKey, TopicName

WAIT_S = 1.0
PARTITIONS = 100


class SlowBackend(MemoryBackend):
    """Opens a partition when it is let, in the order in which it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.is_let = asyncio.Event()
        self.broken: set[int] = set()

    async def open_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        self.asked.append(key.partition)
        await self.is_let.wait()
        if key.partition in self.broken:
            raise StorageError("its active file is gone")
        return await super().open_partition(key, topic, settings)


async def _restarted(
    backend: SlowBackend, clock: ManualClock
) -> tuple[TopicManager, asyncio.Task[None]]:
    """Return a manager with one topic that is being opened again."""
    await backend.open()
    before = TopicManager(backend, Config(), clock)
    await before.open()
    await before.create("orders", PARTITIONS, {})
    manager = TopicManager(backend, Config(), clock)
    opening = asyncio.ensure_future(manager.open(wait_s=WAIT_S))
    await turns(5)
    return manager, opening


async def test_a_start_waits_no_longer_than_it_is_told() -> None:
    """What is not open by then is opened while the rest is served."""
    backend, clock = SlowBackend(), ManualClock()
    manager, opening = await _restarted(backend, clock)
    assert not opening.done()
    clock.advance(WAIT_S)
    await opening
    assert ["100 of 100 partitions are not open yet"] == list(manager.partitions.problems)
    assert (None, ErrorCode.NOT_LEADER_OR_FOLLOWER) == manager.catalog.find("orders", 7)
    backend.is_let.set()
    await manager.partitions.opened()
    assert [] == list(manager.partitions.problems)
    topic = manager.catalog.topics["orders"]
    assert list(range(PARTITIONS)) == list(topic.partitions)
    await manager.aclose()


async def test_a_start_that_is_quick_has_everything_open() -> None:
    """Nobody is told to come again when all partitions open in time."""
    backend, clock = SlowBackend(), ManualClock()
    manager, opening = await _restarted(backend, clock)
    backend.is_let.set()
    await opening
    assert PARTITIONS == len(manager.catalog.topics["orders"].partitions)
    await manager.aclose()


async def test_a_partition_that_is_asked_for_comes_first() -> None:
    """A client waits for the partitions under way, not for all of them."""
    backend, clock = SlowBackend(), ManualClock()
    manager, opening = await _restarted(backend, clock)
    clock.advance(WAIT_S)
    await opening
    under_way = list(backend.asked)
    assert under_way == sorted(under_way)
    assert 99 not in under_way
    manager.catalog.find("orders", 99)
    backend.is_let.set()
    await manager.partitions.opened()
    assert 99 == backend.asked[len(under_way)]
    await manager.aclose()


async def test_a_partition_that_cannot_be_opened_holds_up_no_other() -> None:
    """It is named among the problems, and tried again until it can be opened."""
    backend, clock = SlowBackend(), ManualClock()
    backend.broken = {3}
    manager, opening = await _restarted(backend, clock)
    backend.is_let.set()
    await opening
    topic = manager.catalog.topics["orders"]
    assert PARTITIONS - 1 == len(topic.partitions)
    (problem,) = manager.partitions.problems
    assert "its active file is gone" in problem
    backend.broken.clear()
    await turns(5)
    clock.advance(10.0)
    await turns(10)
    assert [] == list(manager.partitions.problems)
    assert list(range(PARTITIONS)) == list(topic.partitions)
    await manager.aclose()


@pytest.mark.parametrize("is_being_opened", [False, True])
async def test_a_partition_that_was_given_up_is_not_tried_again(*, is_being_opened: bool) -> None:
    """Neither after an attempt that has failed, nor after one that fails while it is given up."""
    backend, clock = SlowBackend(), ManualClock()
    backend.broken = {3, 4}
    manager, opening = await _restarted(backend, clock)
    if is_being_opened:
        clock.advance(WAIT_S)
        await opening
        assert 3 in backend.asked
        closing = asyncio.ensure_future(manager.partitions.close(lambda key: key.partition == 3))
        await turns(5)
        backend.is_let.set()
        await closing
        await manager.partitions.opened()
    else:
        backend.is_let.set()
        await opening
        await manager.partitions.close(lambda key: key.partition == 3)
    (problem,) = manager.partitions.problems
    assert "-4 cannot be opened" in problem
    backend.asked.clear()
    backend.broken.clear()
    await turns(5)
    clock.advance(10.0)
    await turns(10)
    assert [4] == backend.asked
    assert [] == list(manager.partitions.problems)
    assert 3 not in manager.catalog.topics["orders"].partitions
    await manager.aclose()


async def test_a_topic_is_deleted_once_its_partitions_are_open() -> None:
    """A partition that is being opened would be made anew behind its removal."""
    backend, clock = SlowBackend(), ManualClock()
    manager, opening = await _restarted(backend, clock)
    clock.advance(WAIT_S)
    await opening
    deletion = asyncio.ensure_future(manager.delete(manager.catalog.topics["orders"]))
    await turns(10)
    assert "orders" in manager.catalog.topics
    backend.is_let.set()
    await deletion
    assert ({}, []) == (dict(manager.catalog.topics), backend.partition_keys)
    await manager.aclose()


async def test_original_offsets_wait_until_all_is_open() -> None:
    """Whether a partition is empty is not known before, nor of one that cannot be opened."""
    backend, clock = SlowBackend(), ManualClock()
    backend.broken = {3}
    manager, opening = await _restarted(backend, clock)
    clock.advance(WAIT_S)
    await opening
    topic = manager.catalog.topics["orders"]
    loading = {"kgw.loading": "job-", "kgw.loading.offsets": "original"}
    change = asyncio.ensure_future(manager.configure(topic, lambda _: loading))
    await turns(10)
    assert not change.done()
    backend.is_let.set()
    with pytest.raises(KafkaError, match="partition 3 of orders is not open"):
        await change
    assert topic.config.loading is None
    await manager.aclose()


async def test_a_catalogue_that_is_closed_opens_no_more() -> None:
    """A stop waits for nothing that nobody will use."""
    backend, clock = SlowBackend(), ManualClock()
    manager, opening = await _restarted(backend, clock)
    clock.advance(WAIT_S)
    await opening
    asked = len(backend.asked)
    await manager.aclose()
    backend.is_let.set()
    await turns(10)
    assert asked == len(backend.asked)
    await manager.partitions.opened()
