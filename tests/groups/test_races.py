"""G7: races that were bugs in other systems, each with its number and where it was one.

Two of the 22 concern what is not served yet, and are tested where it will be:

- 15: a fenced member of the consumer protocol (KIP-848) that joins anew is refused;
- 16: the consumer protocol's commits with an older epoch, of a partition kept or given away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode
from kgw.groups.classic import ClassicGroup
from kgw.groups.requests import DeleteRequest, LeavingMember
from kgw.protocol.api_keys import ApiKey
from kgw.testing.gateway import InProcessGateway
from tests.groups.driver import TOPIC, GroupDriver, answer, turn
from tests.groups.life import at_once
from tests.groups.planted import BUGS
from tests.handlers.support import call, request_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.groups.requests import JoinResult

NONE = ErrorCode.NONE


@pytest.fixture
async def driver() -> GroupDriver:
    """A coordinator without groups."""
    return await GroupDriver().start()


async def second_joins(driver: GroupDriver, first: JoinResult) -> tuple[JoinResult, JoinResult]:
    """Bring a second member in, up to the forming of the generation."""
    newcomer = driver.ask_to_join()
    again = driver.ask_to_join(first.member_id)
    return await answer(again), await answer(newcomer)


async def test_race_1_member_heartbeats_and_never_syncs(driver: GroupDriver) -> None:
    """KAFKA-12890: heartbeats alone do not keep a group waiting for an assignment."""
    (leader,) = await driver.stable(1)
    leader, silent = await second_joins(driver, leader)
    await driver.sync(leader, {leader.member_id: b"all"})
    for _ in range(7):
        driver.advance(4.0)
        assert NONE is driver.heartbeat(leader)
        assert NONE is driver.heartbeat(silent)
    driver.advance(4.0)
    assert ErrorCode.UNKNOWN_MEMBER_ID is driver.heartbeat(silent)
    assert ErrorCode.REBALANCE_IN_PROGRESS is driver.heartbeat(leader)


async def test_race_1_leader_heartbeats_and_never_syncs(driver: GroupDriver) -> None:
    """KAFKA-12890: nor does a leader that never brings the assignment; who waits is told."""
    (first,) = await driver.stable(1)
    leader, follower = await second_joins(driver, first)
    waiting = driver.ask_to_sync(follower)
    for _ in range(7):
        driver.advance(4.0)
        assert NONE is driver.heartbeat(leader)
    assert not waiting.is_done
    driver.advance(4.0)
    assert ErrorCode.REBALANCE_IN_PROGRESS is (await answer(waiting)).error
    assert ErrorCode.UNKNOWN_MEMBER_ID is driver.heartbeat(leader)


async def test_race_2_joiner_between_snapshot_and_assignment(driver: GroupDriver) -> None:
    """SeaweedFS 9162: who comes after the leader's list was made begins another round."""
    leader = await driver.join()
    late = driver.ask_to_join()
    refused = await driver.sync(leader, {leader.member_id: b"everything"})
    assert ErrorCode.REBALANCE_IN_PROGRESS is refused.error
    again = await driver.join(leader.member_id)
    joined = await answer(late)
    assert {leader.member_id, joined.member_id} == {one.member_id for one in again.members}
    synced = driver.ask_to_sync(joined)
    await driver.sync(again, {leader.member_id: b"a", joined.member_id: b"b"})
    assert b"b" == (await answer(synced)).assignment


async def test_race_3_same_client_id_is_not_the_same_member(driver: GroupDriver) -> None:
    """SeaweedFS 9143: client ids tell nobody apart."""
    joined = await driver.stable(3, client_id="app")
    assert 3 == len({one.member_id for one in joined})
    assert 3 == len(driver.machine.members.all)


async def test_race_4_rejoin_does_not_wipe_or_revive_assignments(driver: GroupDriver) -> None:
    """SeaweedFS 9143, 9162: a follower's rejoin keeps its part; a new round serves no old one."""
    leader, follower = await driver.stable(2)
    again = await driver.join(follower.member_id)
    assert follower.generation == again.generation
    assert f"part of {follower.member_id}".encode() == (await driver.sync(again)).assignment
    asked = [driver.ask_to_join(one.member_id) for one in (leader, follower)]
    leader, follower = [await answer(one) for one in asked]
    assert [b"", b""] == [one.assignment for one in driver.machine.members.all]
    waiting = driver.ask_to_sync(follower)
    await turn()
    assert not waiting.is_done
    await driver.sync(leader, {leader.member_id: b"new"})
    assert b"" == (await answer(waiting)).assignment


async def test_race_5_follower_syncs_before_the_leader(driver: GroupDriver) -> None:
    """SeaweedFS 9143: it waits for the assignment; it is never given an empty one instead."""
    (first,) = await driver.stable(1)
    leader, follower = await second_joins(driver, first)
    waiting = driver.ask_to_sync(follower)
    await turn()
    assert not waiting.is_done
    await driver.sync(leader, {leader.member_id: b"a", follower.member_id: b"b"})
    assert b"b" == (await answer(waiting)).assignment


@pytest.mark.parametrize("protocol_type", ["sr", "connect", "consumer"])
async def test_race_6_empty_assignment_is_one(driver: GroupDriver, protocol_type: str) -> None:
    """SeaweedFS 9162: a leader may assign nothing to anybody, and the group is stable."""
    leader = await driver.join(protocol_type=protocol_type, protocols={"v0": b"me"})
    assert NONE is (await driver.sync(leader, {})).error
    assert "Stable" == driver.state
    for _ in range(10):
        driver.advance(3.0)
        assert NONE is driver.heartbeat(leader)
    assert 1 == driver.machine.generation


async def test_race_7_dead_members_do_not_hold_up_a_restart(driver: GroupDriver) -> None:
    """SeaweedFS 9243: a session ends when it ends, not when a sweep comes round."""
    await driver.stable(3, session_s=6.0)
    driver.advance(5.9)
    assert 3 == len(driver.machine.members.all)
    newcomer = driver.ask_to_join(session_s=6.0)
    await turn()
    assert not newcomer.is_done
    driver.advance(0.1)
    assert NONE is (await answer(newcomer)).error
    assert 1 == len(driver.machine.members.all)


async def test_race_8_clean_up_while_the_group_is_busy(driver: GroupDriver) -> None:
    """SeaweedFS 8935: members expire while others wait to join, in one step and without a lock."""
    joined = await driver.stable(2, session_s=6.0)
    waiting = driver.ask_to_join(joined[0].member_id, session_s=6.0)
    driver.advance(6.0)
    result = await answer(waiting)
    assert NONE is result.error
    assert [joined[0].member_id] == [one.member_id for one in result.members]


async def test_race_9_retried_requests_are_each_answered_once(driver: GroupDriver) -> None:
    """KAFKA-20938: the first of two is answered as well, for somebody may wait for it for ever."""
    (first,) = await driver.stable(1)
    newcomer = driver.ask_to_join()
    once, twice = driver.ask_to_join(first.member_id), driver.ask_to_join(first.member_id)
    # The first of the leader's two completed the round; the second is answered alike.
    assert NONE is (await answer(once)).error
    assert (await answer(once)) == (await answer(twice))
    joined = await answer(newcomer)
    sync_once, sync_twice = driver.ask_to_sync(joined), driver.ask_to_sync(joined)
    assert ErrorCode.REBALANCE_IN_PROGRESS is (await answer(sync_once)).error
    assert not sync_twice.is_done
    third = driver.ask_to_join()
    assert ErrorCode.REBALANCE_IN_PROGRESS is (await answer(sync_twice)).error
    join_once, join_twice = (
        driver.ask_to_join(joined.member_id),
        driver.ask_to_join(joined.member_id),
    )
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS is (await answer(join_once)).error
    assert not join_twice.is_done
    await driver.join(first.member_id)
    assert [NONE, NONE] == [(await answer(one)).error for one in (join_twice, third)]


async def test_race_10_internal_failure_leaves_nobody_stuck() -> None:
    """Redpanda 3300: after a failure the group is what is stored, and goes on from there."""
    driver = await GroupDriver().start()
    leader, follower = await driver.stable(2)
    driver.store.outcome = "refused"
    newcomer = driver.ask_to_join()
    asked = [driver.ask_to_join(one.member_id) for one in (leader, follower)]
    codes = [(await answer(one)).error for one in (newcomer, *asked)]
    assert [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3 == codes
    assert "Stable" == driver.state
    assert NONE is driver.heartbeat(leader)
    asked = [driver.ask_to_join(one.member_id) for one in (leader, follower)]
    results = [await answer(one) for one in asked]
    assert [leader.generation + 2] * 2 == [one.generation for one in results]


async def test_race_10_bug_in_a_step_leaves_nobody_stuck(
    driver: GroupDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redpanda 3300: whoever waited is answered, and the group goes on from what is stored."""
    leader, follower = await driver.stable(2)
    newcomer = driver.ask_to_join()
    waiting = driver.ask_to_join(follower.member_id)
    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "_complete", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            driver.ask_to_join(leader.member_id)
    for one in (newcomer, waiting):
        assert ErrorCode.COORDINATOR_NOT_AVAILABLE is (await answer(one)).error
    assert "Stable" == driver.state
    assert [NONE, NONE] == [driver.heartbeat(one) for one in (leader, follower)]
    waiting = driver.ask_to_join(leader.member_id)
    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "_complete", lambda *_: 1 / 0)
        driver.advance(30.0)
    assert {ZeroDivisionError} == {type(one) for one in driver.bugs}
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is (await answer(waiting)).error
    assert "Stable" == driver.state


async def test_race_11_deleted_group_stays_deleted(driver: GroupDriver) -> None:
    """Redpanda 4900: neither the group nor its offsets come back with a restart."""
    (member,) = await driver.stable(1)
    await driver.commit(5, member)
    await driver.leave(LeavingMember(member.member_id))
    late = driver.ask_to_commit(6)
    assert NONE is await answer(driver.groups.ask(driver.group, DeleteRequest()))
    assert NONE is await answer(late)
    await driver.crash()
    assert "Dead" == driver.state
    assert driver.committed() is None
    gone = driver.groups.ask(driver.group, DeleteRequest())
    assert ErrorCode.GROUP_ID_NOT_FOUND is at_once(gone)


async def test_race_12_offsets_do_not_expire_during_a_rebalance(driver: GroupDriver) -> None:
    """KAFKA-13636: only a group without members lets its offsets go, an hour after that here."""
    options: dict[str, Any] = {"session_s": 1800.0, "rebalance_s": 10_000.0}
    leader, follower = await driver.stable(2, **options)
    await driver.commit(7, leader)
    driver.ask_to_join(leader.member_id, **options)
    for _ in range(9):
        driver.advance(1000.0)
        driver.heartbeat(follower)
        await turn()
        assert "PreparingRebalance" == driver.state
        assert 7 == driver.committed()
    await driver.leave(LeavingMember(leader.member_id), LeavingMember(follower.member_id))
    assert "Empty" == driver.state
    driver.advance(3599.0)
    await turn()
    assert 7 == driver.committed()
    driver.advance(700.0)
    await turn()
    assert driver.committed() is None
    assert "Dead" == driver.state


async def test_race_13_size_limit_counts_ids_that_were_given_out() -> None:
    """KAFKA-9885: ids take places; after the limit was lowered the last ones to join again go."""
    driver = await GroupDriver(max_size=3).start()
    ids = [(await driver.join(id_first=True)).member_id for _ in range(3)]
    full = await driver.join(id_first=True)
    assert ErrorCode.GROUP_MAX_SIZE_REACHED is full.error
    asked = [driver.ask_to_join(one) for one in ids]
    joined = [await answer(one) for one in asked]
    assert [NONE] * 3 == [one.error for one in joined]
    driver.settings = driver.settings._replace(limits=driver.settings.limits._replace(max_size=2))
    for one in joined:
        await driver.sync(one, {}) if one.members else None
    await driver.crash()
    assert "PreparingRebalance" == driver.state
    asked = [driver.ask_to_join(one.member_id) for one in reversed(joined)]
    codes = [(await answer(one)).error for one in asked]
    assert [NONE, NONE, ErrorCode.GROUP_MAX_SIZE_REACHED] == codes


async def test_race_14_static_member_replaces_itself_in_a_full_group() -> None:
    """KAFKA-20601: its own place is always free for it."""
    driver = await GroupDriver(max_size=1).start()
    (old,) = await driver.stable(1, instance="one")
    new = await driver.join(instance="one")
    assert (NONE, old.generation) == (new.error, new.generation)
    other = await driver.join(instance="two")
    assert ErrorCode.GROUP_MAX_SIZE_REACHED is other.error


async def test_race_17_committed_offset_is_the_newest_after_a_restart(
    driver: GroupDriver,
) -> None:
    """KoP 1289: loading again never brings an older offset back."""
    (member,) = await driver.stable(1)
    for offset in range(1, 50):
        assert NONE is await driver.commit(offset, member, partition=offset % 20)
    await driver.crash()
    assert [40 + index if index < 10 else 20 + index for index in range(20)] == [
        driver.committed(partition) for partition in range(20)
    ]
    assert NONE is driver.heartbeat(member)


async def test_race_18_a_rebalance_does_not_hold_up_a_transaction(driver: GroupDriver) -> None:
    """Redpanda 5543: offsets and end are stored while members are waited for."""
    first, _ = await driver.stable(2)
    joining = driver.ask_to_join(first.member_id, protocols={"range": b"changed"})
    assert NONE is await driver.commit_in_transaction(5, first)
    assert NONE is await driver.end()
    assert ("PreparingRebalance", 5) == (driver.state, driver.committed())
    assert not joining.is_done


async def test_race_19_chained_groups_do_not_confuse_members(driver: GroupDriver) -> None:
    """Groups that rebalance at the same time know their own members, and no others."""
    members: dict[str, list[JoinResult]] = {}
    for group in ("first", "second", "third"):
        driver.group = group
        members[group] = await driver.stable(2)
    for _ in range(5):
        asked = []
        for group, joined in members.items():
            driver.group = group
            asked.append([driver.ask_to_join(one.member_id) for one in joined])
        for group, futures in zip(members, asked, strict=True):
            driver.group = group
            members[group] = [await answer(one) for one in futures]
            assert {NONE} == {one.error for one in members[group]}
            waiting = driver.ask_to_sync(members[group][1])
            await driver.sync(members[group][0], {})
            assert NONE is (await answer(waiting)).error
    for group, joined in members.items():
        driver.group = group
        assert [NONE, NONE] == [driver.heartbeat(one) for one in joined]
        others = [one for other in members if other != group for one in members[other]]
        assert {ErrorCode.UNKNOWN_MEMBER_ID} == {driver.heartbeat(one) for one in others}


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_race_20_every_member_of_a_leaving_batch_is_handled(version: int) -> None:
    """SeaweedFS 9143: all of them leave, also in the flexible forms, and each has its own code."""
    async with InProcessGateway() as gateway:
        driver = GroupDriver()
        driver.groups = gateway.groups
        joined = await driver.stable(3)
        leaving = (joined[2].member_id, "nobody", joined[1].member_id)
        members = [{"member_id": one} for one in leaving]
        asked = {"group_id": driver.group, "members": members}
        response = await call(gateway, ApiKey.LEAVE_GROUP, version, **asked)
        assert NONE == response.error_code
        assert [NONE, ErrorCode.UNKNOWN_MEMBER_ID, NONE] == [
            one.error_code for one in response.members
        ]
        described = driver.groups.describe(driver.group)
        assert described is not None
        assert [joined[0].member_id] == [one.member_id for one in described.members]


async def test_race_21_overlapping_commits_count_in_their_order(driver: GroupDriver) -> None:
    """An older commit that is stored later must not rewind the group."""
    (member,) = await driver.stable(1)
    driver.store.hold()
    asked = [driver.ask_to_commit(offset, member) for offset in (1, 2, 3)]
    await turn()
    asked += [driver.ask_to_commit(offset, member) for offset in (4, 5)]
    assert driver.committed() is None
    driver.store.release()
    for one in asked:
        assert NONE is await answer(one)
    assert 5 == driver.committed()
    await driver.crash()
    assert 5 == driver.committed()


async def test_race_22_first_answer_carries_its_correlation_id() -> None:
    """SeaweedFS 8762: an answer that is there before `start` returns is the request's own."""
    async with InProcessGateway() as gateway:
        asked = {"group_id": "group", "generation_id": 1, "member_id": "nobody"}
        pending = gateway.start(request_of(ApiKey.HEARTBEAT, **asked), 4)
        assert pending.done
        response: Any = await pending.response()
        assert ErrorCode.UNKNOWN_MEMBER_ID == response.error_code


async def test_deleted_topic_takes_its_offsets_along(driver: GroupDriver) -> None:
    """Beside race 11: a commit that was on its way when the topic went does not stay behind."""
    (member,) = await driver.stable(1)
    await driver.commit(1, member)
    driver.store.hold()
    driver.ask_to_commit(2, member, partition=1)
    driver.groups.forget_topic(TOPIC)
    driver.store.release()
    await turn()
    assert (None, None) == (driver.committed(0), driver.committed(1))
    assert {} == await driver.store.load("group-offsets")


@pytest.mark.parametrize(
    ("bug", "race"),
    [
        ("no-time-to-sync", test_race_1_leader_heartbeats_and_never_syncs),
        ("a-joiner-slips-in", test_race_2_joiner_between_snapshot_and_assignment),
        ("one-part-for-all", test_race_5_follower_syncs_before_the_leader),
        ("dead-members-stay", test_race_7_dead_members_do_not_hold_up_a_restart),
        ("expires-early", test_race_12_offsets_do_not_expire_during_a_rebalance),
    ],
)
async def test_races_are_lost_by_a_coordinator_with_a_bug(
    driver: GroupDriver, bug: str, race: Callable[[GroupDriver], Awaitable[None]]
) -> None:
    """A test of a race fails where the coordinator has a bug of its kind."""
    with BUGS[bug].plant(), pytest.raises(AssertionError):
        await race(driver)
