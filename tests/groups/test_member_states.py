"""How far members are, from the id that is given to them to the round that ends without them."""

from __future__ import annotations

import pytest

from kgw.errors import ErrorCode
from kgw.groups.requests import LeavingMember
from tests.groups.driver import GroupDriver, answer, turn


@pytest.fixture
async def driver() -> GroupDriver:
    """A coordinator without groups."""
    return await GroupDriver().start()


def states(driver: GroupDriver) -> dict[str, str]:
    """Return each member's state by its id."""
    return {one["member_id"]: one["state"] for one in driver.groups.members(driver.group) or ()}


def state_of(driver: GroupDriver, member_id: str) -> str:
    """Return one member's state."""
    found = driver.groups.members(driver.group, member_id)
    assert found is not None
    (one,) = found
    assert member_id == one["member_id"]
    state: str = one["state"]
    return state


def listed(driver: GroupDriver) -> list[str]:
    """Return whom DescribeGroups lists."""
    described = driver.groups.describe(driver.group)
    assert described is not None
    return [one.member_id for one in described.members]


async def test_from_an_id_to_an_assignment(driver: GroupDriver) -> None:
    """Pending with an id, joining until it has fetched its part, then stable; unknown once gone."""
    assert None is driver.groups.members(driver.group)
    refused = await driver.join(id_first=True)
    assert ErrorCode.MEMBER_ID_REQUIRED is refused.error
    member_id = refused.member_id
    assert {member_id: "pending"} == states(driver)
    assert "pending" == state_of(driver, member_id)
    assert [] == listed(driver)
    joined = await driver.join(member_id)
    assert "CompletingRebalance" == driver.state
    assert {member_id: "joining"} == states(driver)
    await driver.sync(joined, {member_id: b"part"})
    assert {member_id: "stable"} == states(driver)
    assert "unknown" == state_of(driver, "nobody")
    assert [member_id] == listed(driver)
    await driver.leave(LeavingMember(member_id))
    assert {} == states(driver)
    assert "unknown" == state_of(driver, member_id)


async def test_an_id_that_is_never_used(driver: GroupDriver) -> None:
    """It is pending for as long as a session lasts, and unknown afterwards."""
    await driver.stable(1)
    member_id = (await driver.join(id_first=True)).member_id
    assert "pending" == state_of(driver, member_id)
    driver.advance(11)
    await turn()
    assert "unknown" == state_of(driver, member_id)


async def test_a_rebalance(driver: GroupDriver) -> None:
    """Who has joined is joining, and who has yet to is leaving: it may be on its way, or dead."""
    first, second = await driver.stable(2)
    newcomer = driver.ask_to_join()
    await turn()
    assert "PreparingRebalance" == driver.state
    (third,) = states(driver).keys() - {first.member_id, second.member_id}
    expected = {first.member_id: "leaving", second.member_id: "leaving", third: "joining"}
    assert expected == states(driver)
    again = driver.ask_to_join(first.member_id)
    await turn()
    assert expected | {first.member_id: "joining"} == states(driver)
    for _ in range(31):
        driver.advance(1)
        driver.heartbeat(second)  # it lives, and does not come
        await turn()
    assert {first.member_id: "joining", third: "joining"} == states(driver)
    assert "unknown" == state_of(driver, second.member_id)
    joined = [await answer(one) for one in (again, newcomer)]
    assert "CompletingRebalance" == driver.state
    leader = next(one for one in joined if one.members)
    (other,) = (one for one in joined if not one.members)
    await driver.sync(leader, {one.member_id: b"part" for one in joined})
    assert {leader.member_id: "stable", other.member_id: "joining"} == states(driver)
    await driver.sync(other)
    assert {"stable"} == set(states(driver).values())


async def test_a_static_member_that_is_away(driver: GroupDriver) -> None:
    """It keeps its place in a generation without taking part: it is leaving until it comes back."""
    first = await driver.join(instance="one", session_s=60)
    await driver.sync(first, {first.member_id: b"part"}, instance="one")
    newcomer = driver.ask_to_join(session_s=60)
    await turn()
    driver.advance(31)
    await turn()
    second = await answer(newcomer)
    await driver.sync(second, {second.member_id: b"part"})
    assert "Stable" == driver.state
    expected = {first.member_id: "leaving", second.member_id: "stable"}
    assert expected == states(driver)
    await driver.crash()
    assert expected == states(driver)


async def test_after_a_restart(driver: GroupDriver) -> None:
    """A stable member is stable after a restart: it need not ask for its part again."""
    (member,) = await driver.stable(1)
    await driver.crash()
    assert {member.member_id: "stable"} == states(driver)
