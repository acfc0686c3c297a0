"""What the coordinator does to all groups: in turns, between which they go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.coordinator.machine import Asked
from kgw.groups.classic import ClassicGroup
from kgw.groups.requests import DeleteRequest
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.types import TopicId
from tests.groups.driver import TOPIC, GroupDriver, turn

if TYPE_CHECKING:
    from kgw.coordinator.machine import Event
    from kgw.groups.machine import Effect

OTHER_TOPIC = TopicId(b"other" + bytes(11))
GROUPS = 600
"""Of which 400 are looked at in a turn, or 500."""
LAST = f"group-{GROUPS - 1}"


@pytest.fixture
async def driver() -> GroupDriver:
    """Many groups whose offsets expire in a second."""
    driver = await GroupDriver().start()
    await commit_everywhere(driver)
    driver.advance(3599.0)
    await turn()
    driver.group = LAST
    return driver


async def commit_everywhere(driver: GroupDriver, topic_id: TopicId = TOPIC) -> None:
    """Let every group commit one offset."""
    for number in range(GROUPS):
        driver.group = f"group-{number}"
        asked = driver.ask_to_commit(1, topic_id=topic_id)
    await asked


async def turns() -> None:
    """Let everything come to an end."""
    for _ in range(6):
        await turn()


def left(driver: GroupDriver) -> int:
    """Return of how many groups nothing has been decided."""
    return sum(one.state != "Dead" for one in driver.groups.listed())


async def test_offsets_expire_in_turns(driver: GroupDriver) -> None:
    """Some groups, then the loop turns, then others."""
    driver.advance(1.0)
    assert GROUPS - 400 == left(driver)
    await turns()
    assert [] == driver.groups.ids()
    assert GROUPS == driver.metrics.offsets_expired


async def test_groups_of_many_offsets_take_turns_of_their_own(driver: GroupDriver) -> None:
    """What a group has counts, not the group alone."""
    driver.group = "group-0"
    now = CommittedOffset(1, -1, "", 0, NO_EXPIRY_MS, driver.clock.monotonic_s())
    await driver.ask_to_commit_all({TOPIC: dict.fromkeys(range(1, 1600), now)})
    driver.advance(1.0)
    # It stays, and takes the place of a hundred.
    assert GROUPS - 400 + 100 + 1 == left(driver)
    await turns()
    assert ["group-0"] == driver.groups.ids()


@pytest.mark.parametrize("change", ["commit", "join", "delete", "nothing"])
async def test_a_group_is_judged_by_what_it_is_in_its_turn(
    driver: GroupDriver, change: str
) -> None:
    """Who commits or joins after the sweep began is not let go for what was before."""
    driver.advance(1.0)
    driver.store.hold()
    if change == "commit":
        driver.ask_to_commit(2)
    elif change == "join":
        driver.ask_to_join()
    elif change == "delete":
        driver.groups.ask(LAST, DeleteRequest())
    await turn()
    driver.store.release()
    await turns()
    stays = {"commit": 2, "join": 1}
    assert ([LAST] if change in stays else []) == driver.groups.ids()
    assert stays.get(change) == driver.committed()
    assert [] == driver.bugs
    await driver.crash()
    assert stays.get(change) == driver.committed()


async def test_a_sweep_that_takes_longer_than_the_interval_is_the_only_one(
    driver: GroupDriver,
) -> None:
    """The next one begins when it has ended."""
    driver.advance(1.0)
    driver.advance(600.0)
    assert GROUPS - 400 == left(driver)
    await turns()
    assert [] == driver.groups.ids()


async def test_a_stop_ends_a_sweep(driver: GroupDriver) -> None:
    """What it did not come to is looked at after the next start."""
    driver.advance(1.0)
    await driver.groups.aclose()
    assert GROUPS - 400 == left(driver) == len(driver.groups.ids())


async def test_a_bug_in_a_sweep_is_reported(
    driver: GroupDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next sweep begins all the same."""
    right = ClassicGroup.handle

    def broken(group: ClassicGroup, event: Event, now_s: float) -> list[Effect]:
        if isinstance(event, Asked) and isinstance(event.request, DeleteRequest):
            raise ZeroDivisionError
        return right(group, event, now_s)

    driver.advance(1.0)
    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "handle", broken)
        await turns()
    assert [ZeroDivisionError] == [type(bug) for bug in driver.bugs]
    driver.advance(600.0)
    await turns()
    assert 0 == left(driver)


@pytest.mark.parametrize("turns_between", range(4))
@pytest.mark.parametrize("stops", [False, True])
async def test_a_topic_that_goes_behind_the_last_look_is_forgotten(
    driver: GroupDriver, turns_between: int, *, stops: bool
) -> None:
    """The groups are gone through once more, and a stop waits for that."""
    await commit_everywhere(driver, OTHER_TOPIC)
    driver.groups.forget_topic(TOPIC)
    for _ in range(turns_between):
        await asyncio.sleep(0)
    driver.groups.forget_topic(OTHER_TOPIC)
    if stops:
        await driver.groups.aclose()
    await turns()
    assert [] == driver.groups.ids()
    assert {} == await driver.store.load("group-offsets")


async def test_a_topic_that_goes_is_nothing_to_groups_without_offsets_of_it(
    driver: GroupDriver,
) -> None:
    """Of many thousand groups few have read it: the others have nothing to write."""
    await driver.commit(1, topic_id=OTHER_TOPIC)
    driver.store.written.clear()
    driver.groups.forget_topic(OTHER_TOPIC)
    await turns()
    assert [f"/0/{LAST}"] == [one.key[-len(f"/0/{LAST}") :] for one in driver.store.written]
    assert driver.committed(topic_id=OTHER_TOPIC) is None
    assert 1 == driver.committed()


async def test_a_sweep_that_finds_nothing_old_writes_nothing(driver: GroupDriver) -> None:
    """Of many thousand groups hardly one has an offset to let go."""
    await commit_everywhere(driver)
    driver.store.written.clear()
    driver.advance(600.0)
    await turns()
    assert [] == driver.store.written
    assert GROUPS == len(driver.groups.ids())
