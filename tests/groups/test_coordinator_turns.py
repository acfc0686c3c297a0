"""What the coordinator does to all groups: in turns, between which they go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.groups import coordinator
from kgw.groups.writes import OffsetsWrite, TopicsDrop
from kgw.types import TopicId
from tests.groups.driver import TOPIC, GroupDriver, turn

if TYPE_CHECKING:
    from kgw.groups.group import Group
    from kgw.groups.writer import GroupWriter
    from kgw.offsets.committed import OffsetChanges

OTHER_TOPIC = TopicId(b"other" + bytes(11))
NAMES = ("a", "b", "c", "d")


@pytest.fixture
async def driver(monkeypatch: pytest.MonkeyPatch) -> GroupDriver:
    """Four groups whose offsets expire in a second, and turns of two groups."""
    driver = await GroupDriver().start()
    for driver.group in NAMES:
        await driver.commit(1)
    driver.advance(3599.0)
    await turn()
    monkeypatch.setattr(coordinator, "_SWEPT_PER_TURN", 2)
    monkeypatch.setattr(coordinator, "_FORGOTTEN_PER_TURN", 2)
    return driver


def left(driver: GroupDriver) -> list[str]:
    """Return the groups that nothing has been decided of."""
    groups = driver.groups._groups
    return [name for name in NAMES if name in groups and not groups[name].is_being_deleted]


async def test_offsets_expire_in_turns(driver: GroupDriver) -> None:
    """Two groups, then the loop turns, then the others."""
    driver.advance(1.0)
    assert ["c", "d"] == left(driver)
    await turn()
    assert [] == driver.groups.ids()
    assert 4 == driver.metrics.offsets_expired
    assert driver.groups._sweeping is None


async def test_groups_of_many_offsets_take_turns_of_their_own(driver: GroupDriver) -> None:
    """What a group has counts, not the group alone."""
    driver.group = "a"
    for partition in range(1, 40):
        await driver.commit(1, partition=partition)
    driver.advance(1.0)
    assert [*NAMES] == left(driver)
    await turn()
    assert ["a"] == left(driver)


@pytest.mark.parametrize("change", ["commit", "join", "delete", "replace", "nothing"])
async def test_a_group_is_judged_by_what_it_is_in_its_turn(
    driver: GroupDriver, change: str
) -> None:
    """Who commits or joins after the sweep began is not let go for what was before."""
    driver.advance(1.0)
    assert ["c", "d"] == left(driver)
    driver.group = "d"
    driver.store.gate = asyncio.get_running_loop().create_future()
    if change == "commit":
        driver.ask_to_commit(2)
    elif change == "join":
        driver.ask_to_join()
    elif change == "delete":
        driver.groups.delete("d")
    elif change == "replace":
        del driver.groups._groups["d"]
        driver.ask_to_commit(3)
    await turn()
    driver.store.gate.set_result(None)
    driver.store.gate = None
    await turn()
    await turn()
    stays = {"commit": 2, "join": 1, "replace": 3}
    assert (["d"] if change in stays else []) == driver.groups.ids()
    assert stays.get(change) == driver.committed()
    assert [] == driver.bugs
    await driver.crash()
    assert stays.get(change) == driver.committed()


async def test_a_sweep_that_takes_longer_than_the_interval_is_the_only_one(
    driver: GroupDriver,
) -> None:
    """The next one begins when it has ended."""
    driver.advance(1.0)
    sweeping = driver.groups._sweeping
    assert sweeping is not None
    driver.advance(600.0)
    assert sweeping is driver.groups._sweeping
    assert ["c", "d"] == left(driver)
    await turn()
    assert [] == driver.groups.ids()


async def test_a_stop_ends_a_sweep(driver: GroupDriver) -> None:
    """What it did not come to is looked at after the next start."""
    driver.advance(1.0)
    await driver.groups.aclose()
    assert driver.groups._sweeping is None
    assert ["c", "d"] == left(driver) == driver.groups.ids()


async def test_a_bug_in_a_sweep_is_reported(
    driver: GroupDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next sweep begins all the same."""
    driver.advance(1.0)
    with monkeypatch.context() as broken:
        broken.setattr(type(driver.groups), "_expire_offsets_of", None)
        await turn()
    assert [TypeError] == [type(bug) for bug in driver.bugs]
    driver.advance(600.0)
    assert [] == left(driver)


def forget_between(driver: GroupDriver, was_between: list[bool]) -> None:
    """Let a topic go when the task that forgets another has ended, and nobody has heard of it."""
    task = driver.groups._forgetting
    if task is not None and not task.done():
        asyncio.get_running_loop().call_soon(forget_between, driver, was_between)
        return
    was_between.append(task is not None)
    driver.groups.forget_topic(OTHER_TOPIC)


@pytest.mark.parametrize("stops", [False, True])
async def test_a_topic_that_goes_behind_the_last_look_is_forgotten(
    driver: GroupDriver, monkeypatch: pytest.MonkeyPatch, *, stops: bool
) -> None:
    """The groups are gone through once more, and a stop waits for that."""
    for driver.group in NAMES:
        await driver.commit(1, topic_id=OTHER_TOPIC)
    was_between: list[bool] = []
    driver.groups.forget_topic(TOPIC)
    forget_between(driver, was_between)
    if stops:
        real = type(driver.groups._writer).aclose

        async def aclose(writer: GroupWriter) -> None:
            assert driver.groups._forgetting is None
            await real(writer)

        monkeypatch.setattr(type(driver.groups._writer), "aclose", aclose)
        await driver.groups.aclose()
    for _ in range(4):
        await turn()
    assert [True] == was_between
    assert [] == driver.groups.ids()
    assert {} == await driver.store.load("group-offsets")


async def test_a_topic_that_goes_is_nothing_to_groups_without_offsets_of_it(
    driver: GroupDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many thousand groups few have read it: the others have nothing to write."""
    driver.group = "b"
    await driver.commit(1, topic_id=OTHER_TOPIC)
    told: list[str] = []

    def drop(group: Group, topic_ids: frozenset[TopicId]) -> TopicsDrop:
        told.append(group.group_id)
        return TopicsDrop(group, topic_ids)

    monkeypatch.setattr(coordinator, "TopicsDrop", drop)
    driver.groups.forget_topic(OTHER_TOPIC)
    for _ in range(4):
        await turn()
    assert ["b"] == told
    assert driver.committed(topic_id=OTHER_TOPIC) is None
    assert 1 == driver.committed()


async def test_a_sweep_that_finds_nothing_old_writes_nothing(
    driver: GroupDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many thousand groups hardly one has an offset to let go."""
    for driver.group in NAMES:
        await driver.commit(2)
    written: list[str] = []

    def write(group: Group, offsets: OffsetChanges) -> OffsetsWrite:
        written.append(group.group_id)
        return OffsetsWrite(group, offsets)

    monkeypatch.setattr(coordinator, "OffsetsWrite", write)
    driver.advance(600.0)
    for _ in range(4):
        await turn()
    assert [] == written
    assert [*NAMES] == driver.groups.ids()
