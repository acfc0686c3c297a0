"""Static members: what becomes of their place, and of the process that had it (KIP-345)."""

from __future__ import annotations

from typing import Any

import pytest

from kgw.errors import ErrorCode
from kgw.groups.requests import LeavingMember
from tests.groups.driver import GroupDriver, answer, subscription

NONE = ErrorCode.NONE


@pytest.fixture
async def driver() -> GroupDriver:
    """A coordinator without groups."""
    return await GroupDriver().start()


async def test_static_member_keeps_its_place_while_away(driver: GroupDriver) -> None:
    """Others may rebalance meanwhile; it is in their generation until its session ends."""
    options: dict[str, Any] = {"session_s": 60.0}
    leader = (await driver.stable(1, instance="one", **options))[0]
    newcomer = driver.ask_to_join(session_s=60.0)
    driver.advance(30.0)
    joined = await answer(newcomer)
    assert {leader.member_id, joined.member_id} == {one.member_id for one in joined.members}
    await driver.sync(joined, {leader.member_id: b"kept", joined.member_id: b"own"})
    back = await driver.join(instance="one", **options)
    assert joined.generation == back.generation
    assert b"kept" == (await driver.sync(back, instance="one")).assignment
    await driver.leave(LeavingMember("", "one"))
    assert ErrorCode.UNKNOWN_MEMBER_ID is driver.heartbeat(back, "one")


async def test_join_that_waits_is_fenced_when_its_member_is_replaced(driver: GroupDriver) -> None:
    """The old process hears FENCED_INSTANCE_ID at once; the new one waits in its place."""
    (other,) = await driver.stable(1)
    old = driver.ask_to_join(instance="one")
    new = driver.ask_to_join(instance="one")
    assert ErrorCode.FENCED_INSTANCE_ID is (await answer(old)).error
    assert not new.is_done
    assert NONE is (await driver.join(other.member_id)).error
    assert NONE is (await answer(new)).error


async def test_sync_that_waits_is_fenced_when_its_member_is_replaced(driver: GroupDriver) -> None:
    """Nor does a SyncGroup that waits for the assignment: the assignment is the new process's."""
    (leader,) = await driver.stable(1)
    newcomer = driver.ask_to_join(instance="one")
    leader = await driver.join(leader.member_id)
    old = driver.ask_to_sync(await answer(newcomer), instance="one")
    new = driver.ask_to_join(instance="one")
    assert ErrorCode.FENCED_INSTANCE_ID is (await answer(old)).error
    leader = await driver.join(leader.member_id)
    joined = await answer(new)
    assert NONE is (await driver.sync(leader, {joined.member_id: b"part"})).error
    assert b"part" == (await driver.sync(joined, instance="one")).assignment


@pytest.mark.parametrize("crashes", [False, True])
async def test_replaced_leader_leads_wherever_it_stands(
    driver: GroupDriver, *, crashes: bool
) -> None:
    """The new process of a leader that came second is told that it leads, and of all members."""
    away, leader, follower = await three(driver)
    assert (leader.member_id, 3) == (leader.leader_id, len(leader.members))
    new = await driver.join(instance="second", can_skip=True, session_s=60.0)
    assert (leader.generation, new.member_id) == (new.generation, new.leader_id)
    assert (True, 3) == (new.skip_assignment, len(new.members))
    if crashes:
        await driver.crash()
    # A leader that joins again asks for another round, and assigns in it.
    again = driver.ask_to_join(new.member_id, instance="second", session_s=60.0)
    assert ErrorCode.REBALANCE_IN_PROGRESS is driver.heartbeat(follower)
    asked = driver.ask_to_join(away.member_id, instance="first", session_s=60.0)
    follower = await driver.join(follower.member_id, session_s=60.0)
    told = [await answer(one) for one in (asked, again)]
    assert [new.member_id] * 3 == [one.leader_id for one in (*told, follower)]
    assert [0, 3, 0] == [len(one.members) for one in (*told, follower)]


async def three(driver: GroupDriver) -> tuple[Any, Any, Any]:
    """Bring three members to Stable of whom the second leads, since the first stayed away."""
    options: dict[str, Any] = {"session_s": 60.0}
    first = await driver.join(instance="first", **options)
    await driver.sync(first, {}, instance="first")
    asked = [driver.ask_to_join(instance="second", **options), driver.ask_to_join(**options)]
    driver.advance(30.0)
    second, third = [await answer(one) for one in asked]
    await driver.sync(second, {}, instance="second")
    await driver.sync(third)
    first = first._replace(generation=second.generation)
    assert NONE is driver.heartbeat(first, "first")
    assert "Stable" == driver.state
    return first, second, third


@pytest.mark.parametrize(
    ("protocol_type", "before", "after"),
    [
        ("consumer", subscription("orders"), subscription("payments")),
        # Bytes that are no subscription are compared as they are.
        ("consumer", b"\0", subscription("orders")),
        ("connect", b"1", b"2"),
    ],
)
async def test_static_member_that_wants_something_else_causes_a_rebalance(
    driver: GroupDriver, protocol_type: str, before: bytes, after: bytes
) -> None:
    """I5 asks for the same interest: who comes back with another one joins another generation."""
    options: dict[str, Any] = {"instance": "one", "protocol_type": protocol_type}
    await driver.stable(1, protocols={"any": before}, **options)
    assert 1 == (await driver.join(protocols={"any": before}, **options)).generation
    assert 2 == (await driver.join(protocols={"any": after}, **options)).generation
