"""Offsets that transactions commit: when they are seen, and that nothing of them stays behind."""

from __future__ import annotations

from typing import Any

import pytest

from kgw.errors import ErrorCode
from kgw.groups.requests import NO_MEMBER_ID, DeleteRequest, LeavingMember, TxnCommitRequest
from kgw.offsets.committed import DAMAGED_OFFSET
from kgw.offsets.pending import PendingCommit
from kgw.state.base import Change
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK, PENDING_OFFSETS
from kgw.types import TopicId
from tests.groups.driver import TOPIC, GroupDriver, answer, turn
from tests.groups.life import at_once

NONE = ErrorCode.NONE
OTHER_TOPIC = TopicId(b"other" + bytes(11))
RETENTION_S = 3600.0
SWEEP_S = 600.0


@pytest.fixture
async def driver() -> GroupDriver:
    """A coordinator without groups."""
    return await GroupDriver().start()


async def test_offsets_of_a_transaction_are_seen_when_it_is_committed(driver: GroupDriver) -> None:
    """Until then the group stands where it stood, and the place is unstable."""
    assert NONE is await driver.commit(1)
    assert NONE is await driver.commit_in_transaction(5)
    assert NONE is await driver.commit_in_transaction(6, partition=40)
    assert (1, None, {0, 40}) == (driver.committed(), driver.committed(40), driver.unstable())
    assert NONE is await driver.end()
    assert (5, 6, set()) == (driver.committed(), driver.committed(40), driver.unstable())
    assert {} == await driver.store.load(PENDING_OFFSETS)
    assert 3 == driver.metrics.offset_commits


async def test_offsets_of_an_aborted_transaction_are_gone(driver: GroupDriver) -> None:
    """Whether the group has others or not."""
    assert NONE is await driver.commit(1)
    assert NONE is await driver.commit_in_transaction(5)
    assert NONE is await driver.end(is_commit=False)
    assert (1, set()) == (driver.committed(), driver.unstable())
    driver.group = "one of that transaction alone"
    assert NONE is await driver.commit_in_transaction(5)
    assert NONE is await driver.end(is_commit=False)
    assert ["group"] == driver.groups.ids()
    assert {} == await driver.store.load(PENDING_OFFSETS)


@pytest.mark.parametrize(
    ("member_id", "generation", "code", "without_group"),
    [
        (NO_MEMBER_ID, -1, NONE, NONE),
        (NO_MEMBER_ID, 1, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION),
    ],
)
async def test_who_commits_nothing_is_looked_at_all_the_same(
    driver: GroupDriver,
    member_id: str,
    generation: int,
    code: ErrorCode,
    without_group: ErrorCode,
) -> None:
    """At once, as nothing is stored; a group is not made for it."""
    request = TxnCommitRequest(member_id, None, generation, PendingCommit(7, 0, {}))
    reply = driver.groups.commit_in_transaction(driver.group, request)
    assert (True, without_group) == (reply.is_done, reply.result)
    assert [] == driver.groups.ids()
    assert NONE is await driver.commit(1)
    reply = driver.groups.commit_in_transaction(driver.group, request)
    assert (True, code) == (reply.is_done, reply.result)


@pytest.mark.parametrize("is_commit", [True, False])
async def test_an_end_that_is_told_twice_does_no_harm(driver: GroupDriver, is_commit: bool) -> None:
    """Nor does one of a group that nobody knows, or with nothing pending."""
    assert NONE is await driver.end(is_commit=is_commit)
    assert [] == driver.groups.ids()
    assert NONE is await driver.commit_in_transaction(5)
    both = [driver.ask_to_end(is_commit=is_commit), driver.ask_to_end(is_commit=is_commit)]
    assert [NONE, NONE] == [await answer(one) for one in both]
    assert NONE is await driver.commit(9)
    assert NONE is await driver.end(is_commit=is_commit)
    assert 9 == driver.committed()


async def test_what_is_pending_survives_a_crash(driver: GroupDriver) -> None:
    """It is durable before the answer; after the end's answer nothing of it comes back."""
    assert NONE is await driver.commit_in_transaction(5, epoch=3)
    assert NONE is await driver.commit_in_transaction(6, epoch=3, topic_id=OTHER_TOPIC)
    await driver.crash()
    assert (None, {0}, {0}) == (
        driver.committed(),
        driver.unstable(),
        driver.unstable(OTHER_TOPIC),
    )
    assert NONE is await driver.end(epoch=3)
    await driver.crash()
    assert (5, 6) == (driver.committed(), driver.committed(topic_id=OTHER_TOPIC))
    assert set() == driver.unstable()


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("has_arrived", [True, False])
async def test_an_end_is_stored_whole_or_not_at_all(
    driver: GroupDriver, has_arrived: bool, is_commit: bool
) -> None:
    """A crash while it is stored leaves the transaction as it was, or ended."""
    for partition in (0, 16, 32):
        assert NONE is await driver.commit_in_transaction(5, partition=partition)
    driver.store.hold()
    ending = driver.ask_to_end(is_commit=is_commit)
    await turn()
    assert not ending.is_done
    assert {0, 16, 32} == driver.unstable()
    held = driver.store.held
    driver.store.gate, driver.store.held = None, ()
    if has_arrived:
        await driver.store.apply(held)
    await driver.crash()
    ended = [5, 5, 5] if is_commit else [None, None, None]
    found = [driver.committed(partition) for partition in (0, 16, 32)]
    assert found == (ended if has_arrived else [None, None, None])
    assert driver.unstable() == (set() if has_arrived else {0, 16, 32})
    assert NONE is await driver.end(is_commit=is_commit)
    assert ended == [driver.committed(partition) for partition in (0, 16, 32)]


@pytest.mark.parametrize("outcome", ["refused", "unknown"])
async def test_an_end_that_cannot_be_stored_is_told_again(
    driver: GroupDriver, outcome: str
) -> None:
    """All is pending as before; what may be on the disk is put right by the next write."""
    assert NONE is await driver.commit_in_transaction(5)
    driver.store.outcome = outcome
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is await driver.end()
    assert (None, {0}) == (driver.committed(), driver.unstable())
    assert NONE is await driver.commit(1, partition=1)
    await driver.crash()
    assert (None, {0}) == (driver.committed(), driver.unstable())
    assert NONE is await driver.end()
    assert (5, set()) == (driver.committed(), driver.unstable())


@pytest.mark.parametrize("has_group", [True, False])
async def test_a_commit_whose_fate_is_unknown_does_not_outlive_its_transaction(
    driver: GroupDriver, has_group: bool
) -> None:
    """The producer was told that it failed and aborts: then no row may be left on the disk."""
    if has_group:
        assert NONE is await driver.commit(1)
    driver.store.outcome = "unknown"
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is await driver.commit_in_transaction(5)
    assert set() == driver.unstable()
    assert 1 == len(await driver.store.load(PENDING_OFFSETS))
    assert NONE is await driver.end(is_commit=False)
    assert {} == await driver.store.load(PENDING_OFFSETS)
    assert driver.groups.ids() == (["group"] if has_group else [])


async def test_the_commit_that_comes_last_counts(driver: GroupDriver) -> None:
    """As in Kafka: by when it came, not by when its transaction ended."""
    assert NONE is await driver.commit_in_transaction(5)
    assert NONE is await driver.commit_in_transaction(6, partition=1)
    assert NONE is await driver.commit(9)
    assert (9, {0, 1}) == (driver.committed(), driver.unstable())
    await driver.crash()
    assert (9, {0, 1}) == (driver.committed(), driver.unstable())
    assert NONE is await driver.end()
    assert (9, 6) == (driver.committed(), driver.committed(1))

    assert NONE is await driver.commit_in_transaction(10, epoch=1)
    assert NONE is await driver.commit(11)
    assert NONE is await driver.commit_in_transaction(12, epoch=1)
    assert NONE is await driver.end(epoch=1)
    assert 12 == driver.committed()


@pytest.mark.parametrize("crashes", [True, False])
async def test_of_two_transactions_the_commit_that_comes_last_counts(
    driver: GroupDriver, crashes: bool
) -> None:
    """Whichever of them ends first."""
    assert NONE is await driver.commit_in_transaction(5, producer=1)
    assert NONE is await driver.commit_in_transaction(6, producer=2)
    assert NONE is await driver.commit_in_transaction(7, producer=2, partition=1)
    assert NONE is await driver.commit_in_transaction(8, producer=1, partition=1)
    if crashes:
        await driver.crash()
    assert NONE is await driver.end(producer=2)
    assert (6, 7, {0, 1}) == (driver.committed(), driver.committed(1), driver.unstable())
    if crashes:
        await driver.crash()
    assert NONE is await driver.end(producer=1)
    assert (6, 8, set()) == (driver.committed(), driver.committed(1), driver.unstable())


async def test_a_transaction_ends_beside_one_that_commits_to_another_topic(
    driver: GroupDriver,
) -> None:
    """Neither of them changes anything of what the other has pending."""
    assert NONE is await driver.commit_in_transaction(5, producer=1)
    assert NONE is await driver.commit_in_transaction(6, producer=2, topic_id=OTHER_TOPIC)
    assert NONE is await driver.end(producer=1)
    assert (5, None) == (driver.committed(), driver.committed(topic_id=OTHER_TOPIC))
    assert (set(), {0}) == (driver.unstable(), driver.unstable(OTHER_TOPIC))
    assert NONE is await driver.end(producer=2)
    assert (5, 6) == (driver.committed(), driver.committed(topic_id=OTHER_TOPIC))


async def test_a_commit_after_a_restart_counts_as_the_later_one(driver: GroupDriver) -> None:
    """Another transaction had committed to the place before the restart, and ends last."""
    assert NONE is await driver.commit_in_transaction(100, producer=1)
    await driver.crash()
    assert NONE is await driver.commit_in_transaction(200, producer=2)
    assert NONE is await driver.end(producer=2)
    assert NONE is await driver.end(producer=1)
    assert 200 == driver.committed()


async def test_commits_of_a_batch_count_in_their_order(driver: GroupDriver) -> None:
    """What waits for the store at the same time is no different."""
    driver.store.hold()
    asked = [
        driver.ask_to_commit(1),
        driver.ask_to_commit_in_transaction(2),
        driver.ask_to_commit(3),
        driver.ask_to_commit_in_transaction(4, partition=1),
        driver.ask_to_end(),
        driver.ask_to_commit_in_transaction(5, epoch=1),
    ]
    driver.store.release()
    assert [NONE] * 6 == [await answer(one) for one in asked]
    assert (3, 4, {0}) == (driver.committed(), driver.committed(1), driver.unstable())


async def test_a_fenced_producer_changes_nothing(driver: GroupDriver) -> None:
    """Neither with offsets nor with an end of a transaction that is over."""
    assert NONE is await driver.commit_in_transaction(5, epoch=2)
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH
    assert fenced is await driver.commit_in_transaction(9, epoch=1)
    assert fenced is await driver.end(epoch=1, is_commit=False)
    assert {0} == driver.unstable()
    assert NONE is await driver.end(epoch=3)  # KIP-890: the marker's is one more
    assert 5 == driver.committed()


async def test_what_an_older_epoch_left_behind_is_not_committed(driver: GroupDriver) -> None:
    """A newer one begins when the transaction before is over: it is too late for its offsets."""
    assert NONE is await driver.commit_in_transaction(5, epoch=2)
    assert NONE is await driver.commit_in_transaction(6, epoch=3, partition=1)
    assert {1} == driver.unstable()
    assert NONE is await driver.end(epoch=4)
    assert (None, 6) == (driver.committed(), driver.committed(1))
    assert {} == await driver.store.load(PENDING_OFFSETS)


async def test_members_commit_in_their_generation(driver: GroupDriver) -> None:
    """KIP-447: who was put out is fenced, though its producer is not."""
    first, second = await driver.stable(2)
    assert NONE is await driver.commit_in_transaction(1, first)
    await driver.leave(LeavingMember(second.member_id))
    assert ErrorCode.UNKNOWN_MEMBER_ID is await driver.commit_in_transaction(2, second)
    again = await driver.join(first.member_id)
    old = first._replace(generation=first.generation)
    assert ErrorCode.ILLEGAL_GENERATION is await driver.commit_in_transaction(2, old)
    # Unlike a plain commit: not in which state the group is.
    assert "CompletingRebalance" == driver.state
    assert NONE is await driver.commit_in_transaction(3, again)
    nobody = again._replace(generation=-1)
    assert ErrorCode.ILLEGAL_GENERATION is await driver.commit_in_transaction(4, nobody)
    # Producers older than KIP-447 name nobody, and are let in whoever is in the group.
    assert NONE is await driver.commit_in_transaction(4)
    assert NONE is await driver.end()
    assert 4 == driver.committed()


async def test_nobody_hears_of_a_generation_before_what_the_last_one_commits_is_pending(
    driver: GroupDriver,
) -> None:
    """Who is given a partition must not be told an offset that a transaction is about to pass."""
    (first,) = await driver.stable(1)
    driver.store.hold()
    committing = driver.ask_to_commit_in_transaction(5, first)
    await turn()
    newcomer, again = driver.ask_to_join(), driver.ask_to_join(first.member_id)
    await turn()
    assert ErrorCode.ILLEGAL_GENERATION is await driver.commit_in_transaction(6, first)
    assert [False, False, False] == [one.is_done for one in (committing, newcomer, again)]
    assert set() == driver.unstable()
    seen: list[set[int]] = []
    for one in (newcomer, again):
        one.then(lambda _: seen.append(driver.unstable()))
    driver.store.release()
    assert [NONE, NONE] == [(await answer(one)).error for one in (newcomer, again)]
    assert [{0}, {0}] == seen
    assert NONE is await answer(committing)


async def test_an_instance_is_no_proof(driver: GroupDriver) -> None:
    """KIP-345: the process that a static member was replaced by fences the one before."""
    (old,) = await driver.stable(1, instance="one")
    new = await driver.join(instance="one")
    fenced = await driver.commit_in_transaction(1, old, instance="one")
    assert ErrorCode.FENCED_INSTANCE_ID is fenced
    assert NONE is await driver.commit_in_transaction(1, new, instance="one")


async def test_a_transaction_keeps_no_member_alive(driver: GroupDriver) -> None:
    """As in Kafka: the producer's life is not the consumer's."""
    (member,) = await driver.stable(1, session_s=10.0)
    for _ in range(2):
        driver.advance(6.0)
        await driver.commit_in_transaction(1, member)
    assert "Empty" == driver.state


async def test_who_commits_to_no_group(driver: GroupDriver) -> None:
    """A group is made for nobody in particular; a member of no group is of an old generation."""
    stranger = await GroupDriver().start()
    (member,) = await stranger.stable(1)
    assert ErrorCode.ILLEGAL_GENERATION is await driver.commit_in_transaction(1, member)
    assert [] == driver.groups.ids()
    driver.group = ""
    assert ErrorCode.INVALID_GROUP_ID is await driver.commit_in_transaction(1)
    driver.group = "new"
    assert NONE is await driver.commit_in_transaction(1)
    assert ("Empty", ["new"]) == (driver.state, driver.groups.ids())


async def test_a_deleted_group_takes_what_is_pending_along(driver: GroupDriver) -> None:
    """As in Kafka: the transaction's end finds nothing, and makes no group."""
    assert NONE is await driver.commit_in_transaction(5)
    assert NONE is await answer(driver.groups.ask(driver.group, DeleteRequest()))
    assert ([], {}) == (driver.groups.ids(), await driver.store.load(PENDING_OFFSETS))
    assert NONE is await driver.end()
    assert [] == driver.groups.ids()


async def test_a_transaction_that_meets_a_deletion_asks_again(driver: GroupDriver) -> None:
    """The group is about to go: what is committed now belongs to the next of its name."""
    assert NONE is await driver.commit(1)
    driver.store.hold()
    deleting = driver.groups.ask(driver.group, DeleteRequest())
    await turn()
    code = at_once(driver.ask_to_commit_in_transaction(5))
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS is code
    driver.store.release()
    assert NONE is await answer(deleting)
    assert NONE is await driver.commit_in_transaction(5)


async def test_who_deletes_an_offset_deletes_what_is_pending(driver: GroupDriver) -> None:
    """As in Kafka, whether anything was committed to the place or not."""
    assert NONE is await driver.commit(1)
    for partition in range(3):
        assert NONE is await driver.commit_in_transaction(5, partition=partition)
    deleting = driver.groups.delete_offsets(driver.group, [(TOPIC, 0), (TOPIC, 1)])
    assert NONE is await answer(deleting)
    assert {2} == driver.unstable()
    assert NONE is await driver.end()
    assert [None, None, 5] == [driver.committed(partition) for partition in range(3)]


async def test_a_deleted_topic_takes_what_is_pending_along(driver: GroupDriver) -> None:
    """What is on its way when the topic goes, too, and what a crash left of it."""
    assert NONE is await driver.commit_in_transaction(5)
    assert NONE is await driver.commit_in_transaction(6, topic_id=OTHER_TOPIC)
    driver.store.hold()
    driver.ask_to_commit_in_transaction(7, partition=1)
    driver.groups.forget_topic(TOPIC)
    driver.store.release()
    await turn()
    assert (set(), {0}) == (driver.unstable(), driver.unstable(OTHER_TOPIC))
    await driver.groups.aclose()
    await driver.start(lambda _: False)
    await turn()
    assert ([], {}) == (driver.groups.ids(), await driver.store.load(PENDING_OFFSETS))


async def test_nothing_expires_below_a_transaction(driver: GroupDriver) -> None:
    """What other places hold does, and the group with all that it has when the end has come."""
    assert NONE is await driver.commit(1)
    assert NONE is await driver.commit(2, partition=1)
    assert NONE is await driver.commit(2, partition=2, topic_id=OTHER_TOPIC)
    assert NONE is await driver.commit_in_transaction(5)
    assert NONE is await driver.commit_in_transaction(6, partition=3, topic_id=OTHER_TOPIC)
    driver.advance(RETENTION_S + SWEEP_S)
    await turn()
    assert (1, None) == (driver.committed(), driver.committed(1))
    assert driver.committed(2, OTHER_TOPIC) is None
    assert 2 == driver.metrics.offsets_expired
    assert ({0}, {3}) == (driver.unstable(), driver.unstable(OTHER_TOPIC))
    assert NONE is await driver.end()
    assert (5, 6) == (driver.committed(), driver.committed(3, OTHER_TOPIC))
    driver.advance(SWEEP_S)
    await turn()
    assert [] == driver.groups.ids()


async def test_what_was_pending_over_a_restart_is_kept_from_its_commit_on(
    driver: GroupDriver,
) -> None:
    """As long as any other committed offset, and no longer."""
    assert NONE is await driver.commit_in_transaction(5)
    driver.advance(RETENTION_S / 2)
    await driver.crash()
    assert NONE is await driver.end()
    driver.advance(SWEEP_S)
    await turn()
    assert 5 == driver.committed()
    driver.advance(RETENTION_S / 2)
    await turn()
    assert driver.committed() is None


async def test_a_group_without_offsets_lives_as_long_as_its_transaction(
    driver: GroupDriver,
) -> None:
    """However long that takes: a start brings it back as well."""
    (member,) = await driver.stable(1)
    assert NONE is await driver.commit_in_transaction(5, member)
    await driver.leave(LeavingMember(member.member_id))
    for _ in range(2):
        driver.advance(2 * RETENTION_S)
        await turn()
        assert {0} == driver.unstable()
        await driver.crash()
    assert NONE is await driver.end()
    assert 5 == driver.committed()


@pytest.mark.damages_storage("a row is overwritten")
@pytest.mark.parametrize("knows_the_epoch", [True, False])
async def test_damage_is_told_when_it_is_committed(
    driver: GroupDriver, knows_the_epoch: bool
) -> None:
    """Nobody knows what was pending: the group must be told, not sent to where it stood before."""
    assert NONE is await driver.commit(1)
    assert NONE is await driver.commit(2, partition=20)
    assert NONE is await driver.commit_in_transaction(5)
    (key,) = await driver.store.load(PENDING_OFFSETS)
    if knows_the_epoch:
        assert NONE is await driver.commit_in_transaction(6, partition=20)
    await driver.store.apply([Change(PENDING_OFFSETS, key, b"[0,rubbish")])
    await driver.crash()
    assert (1, {*range(16)}) == (driver.committed(), driver.unstable() - {20})
    assert NONE is await driver.commit_in_transaction(7, partition=21)
    assert NONE is await driver.end()
    assert [DAMAGED_OFFSET, 6 if knows_the_epoch else 2, 7] == [
        driver.committed(n) for n in (0, 20, 21)
    ]
    assert {} == await driver.store.load(PENDING_OFFSETS)


@pytest.mark.damages_storage("a row is overwritten")
async def test_a_fenced_producer_stays_so_where_one_of_its_rows_is_damaged(
    driver: GroupDriver,
) -> None:
    """The epoch is in the others as well: an older one neither commits nor ends what is pending."""
    assert NONE is await driver.commit_in_transaction(5, epoch=3)
    (key,) = await driver.store.load(PENDING_OFFSETS)
    assert NONE is await driver.commit_in_transaction(6, epoch=3, partition=20)
    await driver.store.apply([Change(PENDING_OFFSETS, key, b"rubbish")])
    await driver.crash()
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH
    assert fenced is await driver.commit_in_transaction(9, epoch=2, partition=20)
    assert fenced is await driver.end(epoch=2, is_commit=False)
    assert NONE is await driver.end(epoch=3)
    assert [DAMAGED_OFFSET, 6] == [driver.committed(number) for number in (0, 20)]


@pytest.mark.damages_storage("a row is overwritten")
async def test_damage_goes_with_an_abort(driver: GroupDriver) -> None:
    """Then it does not matter what was pending."""
    assert NONE is await driver.commit(1)
    assert NONE is await driver.commit_in_transaction(5)
    (key,) = await driver.store.load(PENDING_OFFSETS)
    rows = [
        Change(PENDING_OFFSETS, key, b"{}"),
        Change(PENDING_OFFSETS, "no key of a row", b"[]"),
    ]
    await driver.store.apply(rows)
    await driver.crash()
    assert NONE is await driver.end(is_commit=False)
    assert (1, set()) == (driver.committed(), driver.unstable())


async def test_who_goes_back_in_a_transaction_is_told_of_when_it_is_committed(
    driver: GroupDriver,
) -> None:
    """Not before, and not at all when it is aborted."""
    told: list[Any] = []
    driver.groups.when_committed_back.append(lambda *what: told.append(what))
    assert NONE is await driver.commit(9)
    assert NONE is await driver.commit_in_transaction(5)
    assert NONE is await driver.end(is_commit=False)
    assert NONE is await driver.commit_in_transaction(4, epoch=1)
    assert [] == told
    assert NONE is await driver.end(epoch=1)
    assert [("group", (TOPIC, 0), 4, 9)] == told


async def test_what_holds_places_open_is_explained(driver: GroupDriver) -> None:
    """Whose transaction, and how many places."""
    for partition in range(3):
        assert NONE is await driver.commit_in_transaction(5, epoch=2, partition=partition)
    explained = driver.groups.explain(driver.group)
    assert explained is not None
    assert [{"producer_id": 7, "producer_epoch": 2, "partitions": 3}] == explained["transactions"]


async def test_many_offsets_of_one_transaction_touch_few_rows(driver: GroupDriver) -> None:
    """Sixteen neighbours share a row, as those do that are committed plainly."""
    asked = [driver.ask_to_commit_in_transaction(1, partition=number) for number in range(64)]
    assert {NONE} == {await answer(one) for one in asked}
    assert 4 == len(await driver.store.load(PENDING_OFFSETS))
    assert NONE is await driver.end()
    assert 4 == len(await driver.store.load(GROUP_OFFSETS))
    assert {} == await driver.store.load(OFFSET_BLOCK)


@pytest.mark.parametrize("offset", [-1, -2, -3, -(2**63)])
async def test_an_offset_that_is_no_position_is_pending_as_it_was_sent(
    driver: GroupDriver, offset: int
) -> None:
    """Also after a crash, and after one more when it is committed."""
    assert NONE is await driver.commit(1)
    assert NONE is await driver.commit_in_transaction(offset)
    await driver.crash()
    assert NONE is await driver.end()
    assert offset == driver.committed()
    await driver.crash()
    assert offset == driver.committed()
