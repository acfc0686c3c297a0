"""The shell: what it stores, what it loads, when it answers, and what it counts."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kgw.coordinator.machine import Answer, Asked
from kgw.errors import ErrorCode, KafkaError
from kgw.groups.positions import CommittedPositions
from kgw.groups.requests import JoinResult, LeaveRequest, LeavingMember, SyncRequest
from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset
from kgw.state.base import Change, DamagedRowsError, Row
from kgw.state.kinds import CLASSIC_GROUP, GROUP_OFFSETS, OFFSET_BLOCK
from kgw.types import TopicId
from tests.groups.driver import TOPIC, GroupDriver, answer, turn
from tests.groups.life import FlakyStore, at_once
from tests.offsets.blocks import block_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.coordinator.entry import Reply
    from kgw.offsets.topic_offsets import OffsetChanges, TopicChange

NONE = ErrorCode.NONE
OTHER_TOPIC, BLOCK_TOPIC = TopicId(b"other" + bytes(11)), TopicId(b"block" + bytes(11))


def offset_at(offset: int) -> CommittedOffset:
    """Return what is committed there."""
    return CommittedOffset(offset, -1, "", 0, NO_EXPIRY_MS, 0.0)


def offsets_at(offset: int) -> OffsetChanges:
    """Return a commit of one partition."""
    return {TOPIC: {0: offset_at(offset)}}


@pytest.fixture
async def driver() -> GroupDriver:
    """A coordinator without groups."""
    return await GroupDriver().start()


async def test_members_go_on_after_a_crash(driver: GroupDriver) -> None:
    """Generation, members and assignments are there; heartbeats and commits go on."""
    leader, follower = await driver.stable(2)
    await driver.crash()
    assert "Stable" == driver.state
    assert [NONE, NONE] == [driver.heartbeat(one) for one in (leader, follower)]
    assert NONE is await driver.commit(3, follower)
    part = f"part of {follower.member_id}".encode()
    assert part == (await driver.sync(follower)).assignment


@pytest.mark.parametrize("leaves", [True, False])
async def test_who_is_gone_before_a_crash_holds_up_others_for_a_session(
    driver: GroupDriver, leaves: bool
) -> None:
    """Whether it was killed, or has left while the other had yet to join; as with Kafka.

    Never longer, however long a round may take.
    """
    ask_to_join = partial(driver.ask_to_join, session_s=45.0, rebalance_s=300.0)
    keeper, gone = await driver.stable(2, session_s=45.0, rebalance_s=300.0)
    if leaves:
        assert [NONE] == await driver.leave(LeavingMember(gone.member_id))
    driver.advance(20.0)
    await driver.crash()
    driver.advance(2.0)
    newcomer = ask_to_join()
    assert ErrorCode.REBALANCE_IN_PROGRESS is driver.heartbeat(keeper)
    waiting = ask_to_join(keeper.member_id)
    driver.advance(42.9)
    await turn()
    assert [False, False] == [newcomer.is_done, waiting.is_done]
    driver.advance(0.1)
    assert [NONE, NONE] == [(await answer(one)).error for one in (newcomer, waiting)]
    assert gone.member_id not in {one.member_id for one in driver.machine.members.all}


async def test_crash_between_generation_and_assignment(driver: GroupDriver) -> None:
    """The leader may still bring its assignment; the number is never given out again.

    Until then nobody may say how far it has read: it has not heard its part.
    """
    leader = await driver.join()
    await driver.crash()
    assert "CompletingRebalance" == driver.state
    assert ErrorCode.REBALANCE_IN_PROGRESS is await driver.commit(9, leader)
    assert b"a" == (await driver.sync(leader, {leader.member_id: b"a"})).assignment
    again = await driver.join(leader.member_id)
    assert 2 == again.generation


async def test_a_leader_that_brings_no_assignment_after_a_crash_is_put_out(
    driver: GroupDriver,
) -> None:
    """Though its heartbeats keep it alive: the others would wait for it as long as it lives."""
    (leader,) = await driver.stable(1)
    newcomer = driver.ask_to_join()
    leader = await driver.join(leader.member_id)
    follower = await answer(newcomer)
    await driver.crash()
    assert "CompletingRebalance" == driver.state
    waiting = driver.ask_to_sync(follower)
    for _ in range(4):
        driver.advance(7.5)
        await turn()
        driver.heartbeat(leader)
    await turn()
    assert ErrorCode.REBALANCE_IN_PROGRESS is (await answer(waiting)).error
    assert ErrorCode.UNKNOWN_MEMBER_ID is driver.heartbeat(leader)
    again = await driver.join(follower.member_id)
    assert (NONE, follower.member_id, 3) == (again.error, again.leader_id, again.generation)


async def test_answers_wait_for_the_disk(driver: GroupDriver) -> None:
    """Nobody hears of a generation that is not stored; heartbeats are answered meanwhile."""
    (member,) = await driver.stable(1)
    driver.store.hold()
    joining = driver.ask_to_join(member.member_id)
    await turn()
    assert not joining.is_done
    assert ErrorCode.ILLEGAL_GENERATION is driver.heartbeat(member)
    driver.store.release()
    assert 2 == (await answer(joining)).generation


async def test_leave_that_cannot_be_stored_is_refused(driver: GroupDriver) -> None:
    """The member is one still, and can leave when the store works again."""
    (member,) = await driver.stable(1)
    driver.store.outcome = "refused"
    refused = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert refused == await driver.leave(LeavingMember(member.member_id))
    assert NONE is driver.heartbeat(member)
    assert [NONE] == await driver.leave(LeavingMember(member.member_id))
    await driver.crash()
    assert "Empty" == driver.state


async def test_many_groups_share_a_flush(driver: GroupDriver) -> None:
    """What waits while something is being stored is stored together, whichever group's it is."""
    calls = 0
    apply = driver.store.apply

    async def counted(changes: Sequence[Change]) -> None:
        nonlocal calls
        calls += 1
        await apply(changes)

    driver.store.apply = counted  # type: ignore[method-assign]
    driver.store.hold()
    asked = []
    for number in range(100):
        driver.group = f"group-{number}"
        asked.append(driver.ask_to_commit(number))
        await asyncio.sleep(0)
    driver.store.release()
    for one in asked:
        assert NONE is await answer(one)
    assert 2 == calls


async def test_failed_commit_is_not_seen(driver: GroupDriver) -> None:
    """COORDINATOR_NOT_AVAILABLE, and a simple group that never had an offset is none."""
    driver.store.outcome = "refused"
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is await driver.commit(1)
    assert "Dead" == driver.state
    assert NONE is await driver.commit(2)
    assert 2 == driver.committed()


@pytest.mark.parametrize("outcome", ["refused", "in doubt"])
async def test_rows_that_a_failure_left_in_doubt_are_stored_again_as_they_are(
    driver: GroupDriver, outcome: str
) -> None:
    """With the next write: an offset that was not answered is not there after a start either."""
    assert NONE is await driver.commit(1)
    driver.store.outcome = outcome
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is await driver.commit(2)
    driver.store.outcome = outcome
    driver.group = "dropped"
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is await driver.commit(3)
    driver.group = "other"
    assert NONE is await driver.commit(4)
    written = len(driver.store.written)
    assert NONE is await driver.commit(4)
    assert written + 1 == len(driver.store.written)
    await driver.crash()
    assert 4 == driver.committed()
    driver.group = "group"
    assert 1 == driver.committed()
    assert ["group", "other"] == sorted(driver.groups.ids())


async def test_bug_of_the_store_is_reported_and_answered(driver: GroupDriver) -> None:
    """Something else than a storage error is ours: counted, and nobody is left waiting."""

    async def broken(changes: object) -> None:
        raise RuntimeError("a bug")

    driver.store.apply = broken  # type: ignore[method-assign]
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is await driver.commit(1)
    assert [RuntimeError] == [type(one) for one in driver.bugs]


async def test_initial_delay_waits_for_more() -> None:
    """KIP-134: the first round waits, longer when more come, and all of them are in it."""
    driver = await GroupDriver(delay_s=3.0).start()
    first = driver.ask_to_join()
    driver.advance(2.0)
    second = driver.ask_to_join()
    driver.advance(2.0)
    await turn()
    assert not first.is_done
    third = driver.ask_to_join()
    driver.advance(2.0)
    assert not first.is_done
    driver.advance(3.0)
    joined = [await answer(one) for one in (first, second, third)]
    assert [1, 1, 1] == [one.generation for one in joined]
    assert 3 == len(joined[0].members)


@pytest.mark.parametrize("age_s", [0.0, 1.0])
async def test_id_that_is_not_used_holds_up_a_round_for_a_moment(
    driver: GroupDriver, age_s: float
) -> None:
    """A client that died after it was given an id delays nobody by a session."""
    (member,) = await driver.stable(1)
    await driver.join(id_first=True)
    driver.advance(age_s)
    waiting = driver.ask_to_join(member.member_id)
    driver.advance(2.9 - age_s)
    await turn()
    assert not waiting.is_done
    driver.advance(0.1)
    assert 2 == (await answer(waiting)).generation
    assert 1 == len(driver.machine.members.pending)
    driver.heartbeat(await answer(waiting))
    driver.advance(7.0)
    assert 0 == len(driver.machine.members.pending)


async def test_protocol_is_elected(driver: GroupDriver) -> None:
    """Of those that all know, the one that most like best; nothing in common is refused."""
    likes_a = {"a": b"", "b": b"", "x": b""}
    likes_b = {"b": b"", "a": b""}
    first = await driver.join(protocols=likes_a)
    second, third = driver.ask_to_join(protocols=likes_b), driver.ask_to_join(protocols=likes_b)
    again = await driver.join(first.member_id, protocols=likes_a)
    assert "b" == again.protocol_name
    assert ["b", "b"] == [(await answer(one)).protocol_name for one in (second, third)]
    refused = await driver.join(protocols={"x": b""})
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL is refused.error


async def test_sync_checks_the_protocol(driver: GroupDriver) -> None:
    """KIP-559: who thinks of another protocol is in the wrong group."""
    member = await driver.join()
    request = SyncRequest(member.member_id, None, 1, (), "consumer", "sticky")
    result = await answer(driver.groups.ask(driver.group, request))
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL is result.error


async def test_damaged_group_row_lets_members_join_anew() -> None:
    """The group cannot be read: its members are unknown, the others are served."""

    class DamagedStore(FlakyStore):
        is_damaged = False

        async def load(self, kind: str) -> dict[str, Row]:
            rows = await super().load(kind)
            if kind == CLASSIC_GROUP and self.is_damaged:
                rows.pop("group")
                raise DamagedRowsError(kind, rows, ["group"])
            return rows

    store = DamagedStore()
    driver = await GroupDriver(store=store).start()
    (member,) = await driver.stable(1)
    driver.group = "other"
    (other,) = await driver.stable(1)
    await driver.store.apply([Change(CLASSIC_GROUP, "third", b"rubbish")])
    store.is_damaged = True
    await driver.crash()
    assert NONE is driver.heartbeat(other)
    driver.group = "group"
    assert ErrorCode.UNKNOWN_MEMBER_ID is driver.heartbeat(member)
    assert ["other"] == [one.group_id for one in driver.groups.listed()]


async def test_limit_of_groups() -> None:
    """More groups than allowed are refused, to members, to others and in transactions."""
    driver = GroupDriver()
    driver.settings = driver.settings._replace(groups_max=1)
    await driver.start()
    await driver.stable(1)
    driver.group = "second"
    assert ErrorCode.GROUP_MAX_SIZE_REACHED is (await driver.join()).error
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is await driver.commit(1)
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is await driver.commit_in_transaction(1)


async def test_what_is_counted(driver: GroupDriver) -> None:
    """States, members, causes, coordinator time, commits."""
    leader, follower = await driver.stable(2)
    await driver.commit(1, leader)
    metrics = driver.metrics
    assert (1, 2, 1) == (metrics.groups["Stable"], metrics.group_members, metrics.offset_commits)
    assert {"member_joined": 2} == metrics.group_rebalances
    assert 1 == metrics.group_coordinator_time.cumulative()[-1]
    await driver.leave(*(LeavingMember(one.member_id) for one in (leader, follower)))
    assert (0, 1, 0) == (metrics.groups["Stable"], metrics.groups["Empty"], metrics.group_members)


async def test_explain_tells_who_and_why(driver: GroupDriver) -> None:
    """The reason that a client gives is kept, with what it caused and how long that took."""
    leader, follower = await driver.stable(2)
    await driver.leave(LeavingMember(follower.member_id, None, "the consumer is being closed"))
    driver.advance(2.0)
    await driver.join(leader.member_id)
    explained = driver.groups.explain(driver.group)
    assert explained is not None
    last = explained["rounds"][-1]
    assert ("member_left", follower.member_id, "the consumer is being closed", 3, 2000.0) == (
        last["cause"],
        last["member_id"],
        last["reason"],
        last["generation"],
        last["joining_took_ms"],
    )
    assert "generation formed" in [one["what"] for one in explained["decisions"]]
    assert driver.groups.explain("missing") is None


async def test_explain_names_the_members_that_a_rebalance_went_without(
    driver: GroupDriver,
) -> None:
    """The last rebalance lists the member that did not join in time, and nobody else."""
    leader, silent = await driver.stable(2, session_s=60.0, rebalance_s=5.0)
    driver.ask_to_join(leader.member_id, session_s=60.0, rebalance_s=5.0)
    driver.advance(5.0)
    await turn()
    explained = driver.groups.explain(driver.group)
    assert explained is not None
    assert [[], [silent.member_id]] == [one["missing"] for one in explained["rounds"][-2:]]


async def test_offsets_of_clients_that_ask_for_less_time(driver: GroupDriver) -> None:
    """The retention time of OffsetCommit 2 to 4 is kept to; the others stay."""
    now_s, wall_ms = driver.clock.monotonic_s(), driver.clock.wall_ms()
    short = CommittedOffset(1, -1, "", wall_ms, 1000, now_s)
    await answer(driver.ask_to_commit_all({TOPIC: {1: short}}))
    await driver.commit(2)
    driver.advance(601.0)
    await turn()
    assert (2, None) == (driver.committed(0), driver.committed(1))


@pytest.mark.parametrize("form", [block_of, dict])
async def test_restart_does_not_prolong_offsets_of_a_group_without_members(
    driver: GroupDriver, form: Callable[[dict[int, CommittedOffset]], TopicChange]
) -> None:
    """Who commits from outside has an hour from the commit here, however often we start."""
    now_s, wall_ms = driver.clock.monotonic_s(), driver.clock.wall_ms()
    offsets = form({0: CommittedOffset(1, -1, "", wall_ms, NO_EXPIRY_MS, now_s)})
    assert NONE is await answer(driver.ask_to_commit_all({TOPIC: offsets}))
    driver.advance(3000.0)
    await driver.crash()
    assert 1 == driver.committed()
    driver.advance(601.0)
    await turn()
    assert driver.committed() is None


@pytest.mark.parametrize("instance", [None, "one"])
@pytest.mark.parametrize("has_been_member", [False, True])
async def test_commit_without_generation_names_who_it_likes(
    driver: GroupDriver, instance: str | None, has_been_member: bool
) -> None:
    """Commits of assign() carry an instance id in librdkafka; Kafka takes any name."""
    member_id = ""
    if has_been_member:
        (member,) = await driver.stable(1, instance=instance)
        member_id = member.member_id
        inside = driver.ask_to_commit_all(offsets_at(1), member_id, instance)
        assert ErrorCode.ILLEGAL_GENERATION is at_once(inside)
        await driver.leave(LeavingMember(member_id, instance))
    assert NONE is await answer(driver.ask_to_commit_all(offsets_at(2), member_id, instance))
    assert 2 == driver.committed()
    await driver.stable(1)
    refused = driver.ask_to_commit_all(offsets_at(3), member_id, instance)
    assert ErrorCode.UNKNOWN_MEMBER_ID is at_once(refused)


async def test_many_ids_cost_few_looks(driver: GroupDriver) -> None:
    """A timer for each id would look through all of them for each: 5,000 took four seconds."""
    for _ in range(100):
        await driver.join(id_first=True, session_s=6.0)
        driver.advance(0.03)
    assert 100 == len(driver.machine.members.pending)
    driver.events.clear()
    driver.advance(7.0)
    assert "Dead" == driver.state
    assert len(driver.events) <= 5


async def test_used_id_does_not_hold_up_a_round(driver: GroupDriver) -> None:
    """When the last id given out is used, the round waits as long as those before it let it."""
    (member,) = await driver.stable(1)
    await driver.join(id_first=True)
    driver.advance(1.0)
    second = await driver.join(id_first=True)
    driver.advance(1.0)
    waiting = [driver.ask_to_join(one) for one in (member.member_id, second.member_id)]
    driver.advance(0.9)
    await turn()
    assert [False, False] == [one.is_done for one in waiting]
    driver.advance(0.1)
    assert [2, 2] == [(await answer(one)).generation for one in waiting]


async def test_refused_leave_does_not_complete_a_round(driver: GroupDriver) -> None:
    """Not even one whose time is up, when the timer is late; who does leave completes it."""
    (member,) = await driver.stable(1)
    unused = (await driver.join(id_first=True)).member_id
    waiting = driver.ask_to_join(member.member_id)
    machine = driver.machine
    late_s = machine.next_deadline_s + 0.1
    nobody = LeavingMember("nobody")
    refused = [Answer("nobody", [ErrorCode.UNKNOWN_MEMBER_ID], at_once=True)]
    assert refused == machine.handle(Asked(LeaveRequest((nobody,)), "nobody"), late_s)
    assert "PreparingRebalance" == driver.state
    left = LeaveRequest((nobody, LeavingMember(unused)))
    effects = machine.handle(Asked(left, "left"), late_s)
    answers = {one.waiter: one.result for one in effects if isinstance(one, Answer)}
    assert [ErrorCode.UNKNOWN_MEMBER_ID, NONE] == answers["left"]
    assert waiting in answers
    assert "CompletingRebalance" == driver.state


async def test_group_is_no_larger_than_can_be_written(driver: GroupDriver) -> None:
    """Metadata and assignments are limited for all members together, and are given back."""
    driver.settings = driver.settings._replace(
        limits=driver.settings.limits._replace(max_bytes=1000)
    )
    await driver.start()
    (leader,) = await driver.stable(1, protocols={"v": b"x" * 500})
    refused = await driver.join(protocols={"v": b"x" * 500})
    assert ErrorCode.GROUP_MAX_SIZE_REACHED is refused.error
    grown = await driver.join(leader.member_id, protocols={"v": b"x" * 900})
    assert NONE is grown.error
    refused_too = await driver.sync(grown, {grown.member_id: b"x" * 1001})
    assert ErrorCode.INVALID_REQUEST is refused_too.error
    assert "CompletingRebalance" == driver.state
    assert NONE is (await driver.sync(grown, {grown.member_id: b"x" * 1000})).error
    await driver.crash()
    assert 900 + len("v") + len("client") == driver.machine.members.size_bytes
    await driver.leave(LeavingMember(leader.member_id))
    assert 0 == driver.machine.members.size_bytes
    assert NONE is (await driver.join(protocols={"v": b"x" * 500})).error


async def test_those_who_join_without_id_do_not_pile_up(driver: GroupDriver) -> None:
    """Kafka's testNewMemberJoinExpiration: in a long round who is new and silent goes in time."""
    options: dict[str, Any] = {"session_s": 60.0, "rebalance_s": 3600.0}
    (member,) = await driver.stable(1, **options)
    given_up, again = driver.ask_to_join(**options), driver.ask_to_join(**options)
    for _ in range(10):
        driver.advance(30.0)
        driver.heartbeat(member)
    codes = [(await answer(one)).error for one in (given_up, again)]
    assert [ErrorCode.UNKNOWN_MEMBER_ID] * 2 == codes
    assert "PreparingRebalance" == driver.state
    last = driver.ask_to_join(**options)
    assert NONE is (await driver.join(member.member_id, **options)).error
    assert NONE is (await answer(last)).error
    assert 2 == len(driver.machine.members.all)


async def test_slow_disk_ends_no_session(driver: GroupDriver) -> None:
    """Whoever waits for the disk cannot send heartbeats; its session begins with the answer."""

    async def stored_in_12_s(*asked: Reply[Any]) -> list[Any]:
        driver.advance(12.0)
        await turn()
        assert {False} == {one.is_done for one in asked}
        driver.store.release()
        results = [await answer(one) for one in asked]
        driver.advance(9.9)
        return results

    leader, follower = await driver.stable(2)
    driver.store.hold()
    asked = [driver.ask_to_join(one.member_id) for one in (leader, follower)]
    leader, follower = await stored_in_12_s(*asked)
    assert [NONE] * 2 == [driver.heartbeat(one) for one in (leader, follower)]
    waiting = driver.ask_to_sync(follower)
    driver.store.hold()
    synced = await stored_in_12_s(driver.ask_to_sync(leader, {}), waiting)
    assert [NONE] * 2 == [one.error for one in synced]
    assert [NONE] * 2 == [driver.heartbeat(one) for one in (leader, follower)]
    driver.advance(10.0)
    unknown = [driver.heartbeat(one) for one in (leader, follower)]
    assert [ErrorCode.UNKNOWN_MEMBER_ID] * 2 == unknown


async def test_who_commits_a_block_that_goes_back_is_told_of(driver: GroupDriver) -> None:
    """Each partition that goes back is named, whatever the earlier commit looked like."""
    (member,) = await driver.stable(1)
    told: list[tuple[int, int, int]] = []
    driver.groups.when_committed_back.append(
        lambda _group, place, offset, before: told.append((place[1], offset, before))
    )

    async def commit(**offsets: int) -> None:
        now = CommittedOffset(0, -1, "", driver.clock.wall_ms(), NO_EXPIRY_MS, 0.0)
        block = block_of({int(one[1:]): now._replace(offset=offsets[one]) for one in offsets})
        asked = driver.ask_to_commit_all({TOPIC: block}, member.member_id, None, member.generation)
        assert ErrorCode.NONE is await answer(asked)

    await commit(p0=5, p1=5, p2=5)
    await commit(p0=5, p1=6, p2=5)
    assert [] == told
    await commit(p0=5, p1=4, p2=6)
    await commit(p1=3, p2=6)

    assert [(1, 4, 6), (1, 3, 4)] == told
    assert (5, 3, 6) == tuple(driver.committed(partition) for partition in range(3))
    assert 11 == driver.metrics.offset_commits


async def test_who_takes_a_position_away_does_not_go_back(driver: GroupDriver) -> None:
    """A negative offset is none: nothing is told of it, nor of the first one after it."""
    (member,) = await driver.stable(1)
    told: list[object] = []
    driver.groups.when_committed_back.append(lambda *what: told.append(what))
    for offset in (5, -1, -2, 3):
        now = CommittedOffset(offset, -1, "", driver.clock.wall_ms(), NO_EXPIRY_MS, 0.0)
        asked = driver.ask_to_commit_all(
            {TOPIC: {0: now}}, member.member_id, None, member.generation
        )
        assert ErrorCode.NONE is await answer(asked)
    assert [] == told


async def test_a_round_ends_with_its_time_however_long_sessions_are(driver: GroupDriver) -> None:
    """Who does not join within the rebalance timeout is out, and the others need not wait on."""
    options: dict[str, Any] = {"session_s": 60.0, "rebalance_s": 5.0}
    leader, silent = await driver.stable(2, **options)
    driver.advance(6.0)
    waiting = driver.ask_to_join(leader.member_id, **options)
    driver.advance(4.9)
    await turn()
    assert not waiting.is_done
    driver.advance(0.1)
    assert NONE is (await answer(waiting)).error
    assert ErrorCode.UNKNOWN_MEMBER_ID is driver.heartbeat(silent)


async def test_a_round_that_only_static_members_are_missing_from_waits_on(
    driver: GroupDriver,
) -> None:
    """They keep their places for a session when its time is up and nobody has joined."""
    options: dict[str, Any] = {"session_s": 60.0, "rebalance_s": 5.0}
    (static,) = await driver.stable(1, instance="one", **options)
    newcomer = await driver.join(id_first=True, **options)
    driver.ask_to_join(newcomer.member_id, **options)
    await driver.leave(LeavingMember(newcomer.member_id))
    for _ in range(6):
        driver.advance(5.0)
        await turn()
        assert ErrorCode.REBALANCE_IN_PROGRESS is driver.heartbeat(static, "one")
    again = await driver.join(static.member_id, instance="one", **options)
    assert (NONE, static.generation + 1) == (again.error, again.generation)


async def test_offsets_of_topics_that_went_unseen_are_dropped_at_a_start(
    driver: GroupDriver,
) -> None:
    """A crash may come between a topic's end and that of its offsets, single ones and blocks."""
    assert NONE is await driver.commit(1)
    assert NONE is await driver.commit(2, topic_id=OTHER_TOPIC)
    block = {BLOCK_TOPIC: block_of({5: offset_at(7)})}
    driver.group = "blocks"
    assert NONE is await answer(driver.ask_to_commit_all(block))
    driver.group = "group"
    await driver.groups.aclose()
    await driver.start(lambda topic_id: topic_id == OTHER_TOPIC)
    await turn()
    assert (None, 2) == (driver.committed(), driver.committed(topic_id=OTHER_TOPIC))
    assert [driver.group] == driver.groups.ids()
    assert 1 == len(await driver.store.load(GROUP_OFFSETS))
    assert {} == await driver.store.load(OFFSET_BLOCK)


@pytest.mark.damages_storage("a row is overwritten")
async def test_a_damaged_block_takes_no_offset_that_is_stored_singly(driver: GroupDriver) -> None:
    """Its own partitions are said to be damaged, those with an intact row between them are not."""
    assert NONE is await driver.commit(77, partition=3)
    block = {TOPIC: block_of({4: offset_at(5), 2: offset_at(5)})}
    assert NONE is await answer(driver.ask_to_commit_all(block))
    (key,) = await driver.store.load(OFFSET_BLOCK)
    await driver.store.apply([Change(OFFSET_BLOCK, key, b"rubbish")])
    for _ in range(2):  # the second start reads what the first one wrote
        await driver.crash()
        assert [DAMAGED_OFFSET, 77, DAMAGED_OFFSET, None] == [
            driver.committed(number) for number in (2, 3, 4, 5)
        ]


@pytest.mark.damages_storage("a row is overwritten")
async def test_who_goes_on_from_a_damaged_offset_is_told(driver: GroupDriver) -> None:
    """As `resume` does: it is not begun again as where nothing, or no position, is committed."""
    for partition, offset in {0: 5, 1: -1, 2: -3}.items():
        assert NONE is await driver.commit(offset, partition=partition)
    block = {TOPIC: block_of({4: offset_at(5)})}
    assert NONE is await answer(driver.ask_to_commit_all(block))
    (key,) = await driver.store.load(OFFSET_BLOCK)
    await driver.store.apply([Change(OFFSET_BLOCK, key, b"rubbish")])
    await driver.crash()
    positions = CommittedPositions(driver.groups.offsets, driver.group, TOPIC)
    found = await positions.committed(range(6))
    damaged = found.pop(4)
    assert isinstance(damaged, KafkaError)
    assert ErrorCode.CORRUPT_MESSAGE is damaged.code
    assert {0: 5, 1: None, 2: None, 3: None, 5: None} == found


async def test_a_static_member_whose_process_is_replaced_is_not_new(driver: GroupDriver) -> None:
    """It has been heard of twice: in a long round it waits for as long as that takes."""
    options: dict[str, Any] = {"session_s": 60.0, "rebalance_s": 3600.0}
    (member,) = await driver.stable(1, **options)
    first = driver.ask_to_join(instance="one", **options)
    again = driver.ask_to_join(instance="one", **options)
    assert ErrorCode.FENCED_INSTANCE_ID is (await answer(first)).error
    for _ in range(11):
        driver.advance(30.0)
        driver.heartbeat(member)
    await turn()
    assert not again.is_done
    assert NONE is (await driver.join(member.member_id, **options)).error
    assert NONE is (await answer(again)).error


async def test_who_asks_for_an_assignment_of_no_group_is_unknown(driver: GroupDriver) -> None:
    """As in Kafka; a group without a name is no group at all."""
    member = JoinResult(NONE, "nobody", 1)
    assert ErrorCode.UNKNOWN_MEMBER_ID is (await driver.sync(member)).error
    driver.group = ""
    assert ErrorCode.INVALID_GROUP_ID is (await driver.sync(member)).error
