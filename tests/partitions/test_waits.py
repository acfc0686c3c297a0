from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.config import Config
from kgw.partitions.read.fetch_parts import NamedParts, PartitionRead
from kgw.partitions.topics.manager import TopicManager
from kgw.partitions.waits import TICK_MS, FetchWait, RequestDeadlines
from kgw.testing.clock import ManualClock

if TYPE_CHECKING:
    from kgw.partitions.partition import Partition


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still."""
    return ManualClock()


@pytest.fixture
async def partitions(clock: ManualClock) -> list[Partition]:
    """Two partitions of a topic."""
    backend = MemoryBackend()
    await backend.open()
    topic = await TopicManager(backend, Config(), clock).create("orders", 2, {})
    return list(topic.partitions.values())


def views_of(partitions: list[Partition]) -> NamedParts:
    """Return what a wait listens to that is to hear of all of them."""
    return NamedParts([PartitionRead(partition.view(), 0, 1) for partition in partitions])


def begin(
    partitions: list[Partition], clock: ManualClock, missing_bytes: int, woken: list[str]
) -> FetchWait:
    """Begin a wait of one second that notes when it ends."""
    wait = FetchWait(views_of(partitions), RequestDeadlines(clock), lambda: woken.append("woken"))
    wait.begin(missing_bytes, clock.monotonic_s() + 1)
    return wait


def is_forgotten(partitions: list[Partition], clock: ManualClock) -> bool:
    """Whether no partition remembers a wait, and no timer is left."""
    return clock.pending == 0 and all(not partition.listeners for partition in partitions)


async def test_long_waits_end_together(partitions: list[Partition], clock: ManualClock) -> None:
    """Deadlines within a tick share one timer, none of them comes early, each on its own."""
    deadlines = RequestDeadlines(clock)
    woken: list[int] = []

    def begin_at(offset_ms: int) -> FetchWait:
        wait = FetchWait(views_of(partitions), deadlines, lambda: woken.append(offset_ms))
        wait.begin(1, clock.monotonic_s() + 1 + offset_ms / 1000)
        return wait

    waits = [begin_at(offset_ms) for offset_ms in (1, 2, TICK_MS, TICK_MS + 1)]
    assert 2 == clock.pending
    waits[1].cancel()
    clock.advance(1 + (TICK_MS - 1) / 1000)
    assert [] == woken
    clock.advance(0.001)
    assert [1, TICK_MS] == sorted(woken)
    clock.advance(TICK_MS / 1000)
    assert [1, TICK_MS, TICK_MS + 1] == sorted(woken)
    for wait in waits:
        wait.cancel()
    assert is_forgotten(partitions, clock)


async def test_short_waits_are_not_made_longer(
    partitions: list[Partition], clock: ManualClock
) -> None:
    """A wait of a few milliseconds ends within the next one."""
    woken: list[str] = []
    wait = FetchWait(views_of(partitions), RequestDeadlines(clock), lambda: woken.append("woken"))
    wait.begin(1, clock.monotonic_s() + 0.005)
    clock.advance(0.006)
    assert ["woken"] == woken


async def test_waking_one_may_end_another(partitions: list[Partition], clock: ManualClock) -> None:
    """What is woken at a deadline may give up waits of the same tick."""
    deadlines = RequestDeadlines(clock)
    woken: list[str] = []
    waits: list[FetchWait] = []

    def wake() -> None:
        woken.append("woken")
        for wait in waits:
            wait.cancel()

    waits += [FetchWait(views_of(partitions), deadlines, wake) for _ in range(3)]
    for wait in waits:
        wait.begin(1, clock.monotonic_s() + 1)
    clock.advance(1.1)
    assert ["woken"] == woken
    assert is_forgotten(partitions, clock)
