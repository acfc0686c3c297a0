"""The coordinator over a store and partitions: what is durable when, and who is told what."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kgw.coordinator.runtime import LATE_S
from kgw.errors import ErrorCode, KafkaError
from kgw.state.base import Change
from kgw.state.kinds import TRANSACTION
from kgw.transactions.ending import LONGEST_WAIT_S, TOLD_PER_TURN, growing_wait_s
from kgw.transactions.requests import AddRequest, ProducerIdAndEpoch
from kgw.transactions.rows import decode_row
from kgw.transactions.table import FINISHED_PER_TURN
from tests.transactions.driver import ID, Driver, Told, in_short, settle
from tests.transactions.script import place
from tests.turns import most_in_a_turn

if TYPE_CHECKING:
    from kgw.state.base import Row
    from kgw.transactions.rows import TransactionRow


async def begun(driver: Driver, *indexes: int) -> tuple[int, int]:
    """Return a producer that has a transaction in these partitions."""
    producer: tuple[int, int] = await driver.init()
    assert "NONE" == await driver.add(producer, *indexes)
    return producer


async def stored(driver: Driver) -> TransactionRow | None:
    """Return what is stored of the id."""
    row = (await driver.store.load(TRANSACTION)).get(ID)
    return None if row is None else decode_row(row.value)


async def stored_state(driver: Driver) -> str:
    """Return the state that is stored of the id."""
    row = await stored(driver)
    return "nothing" if row is None else row.state.value


async def completed(driver: Driver) -> None:
    """Let ends be carried out, and what is stored of them by the way."""
    await settle()
    driver.clock.advance(LATE_S)
    await settle()


# --- what is durable when ------------------------------------------------------------------------


async def test_commit_reaches_partitions_and_groups(driver: Driver) -> None:
    """Each hears of it once, with the producer's raised epoch, and the next one may begin."""
    producer = await begun(driver, 0, 1)
    await driver.add_group(producer, "g")
    assert (1, 1) == await driver.end(producer)
    await settle()
    raised = (1, 1)
    assert {Told(0, raised, True), Told(1, raised, True), Told("g", raised, True)} == set(
        driver.listeners.told
    )
    assert 3 == driver.listeners.attempts
    await completed(driver)
    assert "CompleteCommit" == driver.state == await stored_state(driver)
    assert "NONE" == await driver.add((1, 1), 5)
    assert {2} == {one.transaction_version for one in driver.listeners.endings}


async def test_abort_says_so(driver: Driver) -> None:
    """Partitions hear that it is none."""
    producer = await begun(driver, 0)
    assert "NONE" == await driver.end(producer, commit=False, version=0)
    await settle()
    assert [Told(0, producer, False)] == driver.listeners.told
    assert "CompleteAbort" == driver.state


async def test_nothing_is_answered_before_it_is_stored(driver: Driver) -> None:
    """Neither an id, nor a partition, nor an end; and no marker comes before the decision."""
    driver.store.hold()
    init = driver.ask_init()
    await settle()
    assert not init.is_done
    driver.store.release()
    assert ProducerIdAndEpoch(1, 0) == (await init).producer

    driver.store.hold()
    first, second = driver.ask_add((1, 0), 0), driver.ask_add((1, 0), 0)
    request = AddRequest(ProducerIdAndEpoch(1, 0), frozenset({place(0)}), verify_only=True)
    verify = driver.coordinator.ask(ID, request)
    await settle()
    assert not first.is_done
    assert not second.is_done
    assert not verify.is_done
    driver.store.release()
    assert ErrorCode.NONE is await first is await second is await verify

    driver.store.hold()
    end = driver.ask_end((1, 0))
    await settle()
    assert not end.is_done
    assert 0 == driver.listeners.attempts
    driver.store.release()
    assert ProducerIdAndEpoch(1, 1) == (await end).producer


async def test_what_is_asked_again_waits_for_the_write_that_holds_it(driver: Driver) -> None:
    """Also when the write before that one has just been stored."""
    producer = await begun(driver, 0)
    driver.store.hold()
    first = driver.ask_add(producer, 1)
    await settle()
    second = driver.ask_add(producer, 2)
    driver.store.release()
    driver.store.hold()
    await settle()
    again = driver.ask_add(producer, 2)
    await settle()
    answered = [one.is_done for one in (first, second, again)]
    driver.store.release()
    assert [True, False, False] == answered
    assert ErrorCode.NONE is await second is await again


async def test_completion_is_stored_with_what_comes_next(driver: Driver) -> None:
    """It shares the row of the next transaction: a sync less for each."""
    producer = await begun(driver, 0)
    await driver.end(producer)
    await settle()
    assert "CompleteCommit" == driver.state
    assert "PrepareCommit" == await stored_state(driver)
    driver.store.written.clear()
    assert "NONE" == await driver.add((1, 1), 1)
    assert 1 == len(driver.store.written)
    assert "Ongoing" == await stored_state(driver)
    driver.clock.advance(LATE_S)
    await settle()
    assert "Ongoing" == await stored_state(driver)


async def test_crash_before_completion_is_stored(driver: Driver) -> None:
    """Everybody is told once more, and the producer goes on."""
    producer = await begun(driver, 0)
    await driver.end(producer)
    await settle()
    await driver.crash()
    await settle()
    assert [0, 0] == driver.committed
    assert "CompleteCommit" == driver.state
    assert "NONE" == await driver.add((1, 1), 1)


async def test_stop_stores_completions(driver: Driver) -> None:
    """The next start has nothing to do."""
    producer = await begun(driver, 0)
    await driver.end(producer)
    await settle()
    await driver.coordinator.aclose()
    assert "CompleteCommit" == await stored_state(driver)
    assert 0 == driver.clock.pending


async def test_end_is_answered_before_markers_are_written(driver: Driver) -> None:
    """The decision is what counts; they are on their way when the answer is given."""
    driver.listeners.hold()
    producer = await begun(driver, 0)
    end = driver.ask_end(producer)
    await end
    assert 1 == driver.listeners.attempts
    assert "PrepareCommit" == driver.state == await stored_state(driver)
    assert "CONCURRENT_TRANSACTIONS" == await driver.init()
    assert "CONCURRENT_TRANSACTIONS" == await driver.end(producer)
    driver.listeners.release()
    await completed(driver)
    assert "CompleteCommit" == await stored_state(driver)
    assert (1, 1) == await driver.end(producer)


async def test_what_has_not_changed_is_answered_at_once(driver: Driver) -> None:
    """A partition that is in the transaction already costs no turn of the loop."""
    producer = await begun(driver, 0)
    assert driver.ask_add(producer, 0).is_done
    who = ProducerIdAndEpoch(*producer)
    request = AddRequest(who, frozenset({place(0)}), verify_only=True)
    assert driver.coordinator.ask(ID, request).is_done
    request = AddRequest(who, groups=frozenset({"g"}), verify_only=True)
    verify = driver.coordinator.ask(ID, request)
    assert ErrorCode.TRANSACTION_ABORTABLE is verify.result


async def test_additions_that_come_together_are_one_write(driver: Driver) -> None:
    """A request with many partitions asks for each of them."""
    producer = await driver.init()
    before = len(driver.store.written)
    asked = [driver.ask_add(producer, index) for index in range(100)]
    for one in asked:
        assert ErrorCode.NONE is await one
    row = await stored(driver)
    assert row is not None
    assert 100 == len(row.places)
    assert before + 1 == len(driver.store.written)


async def test_next_transaction_waits_for_the_end_of_the_last(driver: Driver) -> None:
    """Its first partition is taken in as soon as the markers are written."""
    producer = await begun(driver, 0)
    driver.listeners.hold()
    await driver.end(producer)
    added = driver.ask_add((1, 1), 3)
    await settle()
    assert not added.is_done
    driver.listeners.release()
    assert ErrorCode.NONE is await added
    row = await stored(driver)
    assert row is not None
    assert "Ongoing" == row.state.value
    assert {place(3)} == row.places


async def test_next_transaction_does_not_wait_for_long(driver: Driver) -> None:
    """Its client is told to come again."""
    producer = await begun(driver, 0)
    driver.listeners.hold()
    await driver.end(producer)
    added = driver.ask_add((1, 1), 3)
    driver.clock.advance(0.2)
    assert ErrorCode.CONCURRENT_TRANSACTIONS is await added
    driver.listeners.release()
    await settle()


async def test_ids_do_not_disturb_each_other(driver: Driver) -> None:
    """Each has its own producer id; the one that fails to end holds up nobody."""
    one, other = await driver.init(), await driver.init(name="other")
    assert {1, 2} == {one[0], other[0]}
    assert ["other", ID] == sorted(one.transactional_id for one in driver.coordinator.listed())
    assert "INVALID_PRODUCER_ID_MAPPING" == await driver.add(other, 0)


# --- producers that come at the same time --------------------------------------------------------


async def test_two_producers_ask_at_once(driver: Driver) -> None:
    """The later one fences the earlier one, whoever got their id first from the store."""
    first, second = driver.ask_init(), driver.ask_init()
    results = {(await first).producer, (await second).producer}
    assert {0, 1} == {one.epoch for one in results}
    assert 1 == len({one.id for one in results})
    fenced, current = sorted(results)
    assert "PRODUCER_FENCED" == await driver.add(fenced, 0)
    assert "NONE" == await driver.add(current, 0)


async def test_new_producer_ends_what_the_old_one_left(driver: Driver) -> None:
    """It is told to ask again until that is done; nothing of the old one is committed."""
    old = await begun(driver, 0, 1)
    driver.listeners.hold()
    assert "CONCURRENT_TRANSACTIONS" == await driver.init()
    assert "CONCURRENT_TRANSACTIONS" == await driver.init()
    assert "PRODUCER_FENCED" == await driver.end(old)
    driver.listeners.release()
    await settle()
    assert (1, 2) == await driver.init()
    assert {Told(0, (1, 1), False), Told(1, (1, 1), False)} == set(driver.listeners.told)
    assert {"fenced": 1} == driver.metrics.transactions_ended


@pytest.mark.parametrize("ends_first", [True, False])
async def test_end_and_new_producer_at_once(driver: Driver, ends_first: bool) -> None:
    """The one that comes first decides, before either is stored."""
    producer = await begun(driver, 0)
    if ends_first:
        end, init = driver.ask_end(producer), driver.ask_init()
    else:
        init, end = driver.ask_init(), driver.ask_end(producer)
    assert ErrorCode.CONCURRENT_TRANSACTIONS is (await init).error
    expected = ErrorCode.NONE if ends_first else ErrorCode.PRODUCER_FENCED
    assert expected is (await end).error
    await settle()
    assert ([0] if ends_first else []) == driver.committed


@pytest.mark.parametrize("zeros_are", ["nothing", "its own"])
async def test_zeros_of_clients_that_have_nothing_to_say(driver: Driver, zeros_are: str) -> None:
    """They are taken for none, unless the producer has that id (KIP-360)."""
    if zeros_are == "its own":
        driver.ids = -1
        assert (0, 0) == await driver.init()
        assert (0, 1) == await driver.init(0, 0)
        # So it is known who asks, and that nobody has come since.
        assert (0, 1) == await driver.init(0, 0)
    else:
        assert (1, 0) == await driver.init(0, 0)
        assert (1, 1) == await driver.init(0, 0)
        assert "PRODUCER_FENCED" == await driver.add((1, 0), 0)


async def test_requests_without_an_id(driver: Driver) -> None:
    """An empty id is a mistake; one that nobody has begun is not known."""
    assert "INVALID_REQUEST" == await driver.init(name="")
    assert "INVALID_PRODUCER_ID_MAPPING" == await driver.add((1, 0), 0)
    assert "INVALID_PRODUCER_ID_MAPPING" == await driver.end((1, 0))
    assert "INVALID_TRANSACTION_TIMEOUT" == await driver.init(timeout_ms=0)
    assert [] == list(driver.coordinator.listed())
    assert {} == {state: n for state, n in driver.metrics.transactional_ids.items() if n}


async def test_ids_are_limited() -> None:
    """Those that there are go on; a new one is refused for good."""
    driver = await Driver(ids_max=2).start()
    assert (1, 0) == await driver.init(name="a")
    assert (2, 0) == await driver.init(name="b")
    assert "POLICY_VIOLATION" == await driver.init(name="c")
    assert (2, 1) == await driver.init(name="b")
    await driver.coordinator.aclose()


async def test_no_producer_id_can_be_had(driver: Driver) -> None:
    """The client tries again, and nothing is left behind."""
    driver.ids_fail = True
    assert "COORDINATOR_NOT_AVAILABLE" == await driver.init()
    assert [] == list(driver.coordinator.listed())
    driver.ids_fail = False
    assert (1, 0) == await driver.init()


# --- time ----------------------------------------------------------------------------------------


async def test_transaction_whose_time_is_over(driver: Driver) -> None:
    """It is aborted to the second, and counted."""
    producer = await begun(driver, 0)
    driver.clock.advance(59.9)
    assert "Ongoing" == driver.state
    driver.clock.advance(0.2)
    await completed(driver)
    assert "CompleteAbort" == driver.state == await stored_state(driver)
    assert [Told(0, (1, 1), False)] == driver.listeners.told
    assert {"timed-out": 1} == driver.metrics.transactions_ended
    assert "PRODUCER_FENCED" == await driver.add(producer, 1)
    assert (1, 1) == await driver.end(producer, commit=False)


async def test_end_that_is_being_stored_when_time_is_over(driver: Driver) -> None:
    """It was decided in time, and stays."""
    producer = await begun(driver, 0)
    driver.store.hold()
    end = driver.ask_end(producer)
    await settle()
    driver.clock.advance(100)
    driver.store.release()
    assert ErrorCode.NONE is (await end).error
    await settle()
    assert [0] == driver.committed


async def test_end_that_fails_when_time_is_over(driver: Driver) -> None:
    """Nothing was decided: the time counts, a little later."""
    producer = await begun(driver, 0)
    driver.clock.advance(59)
    driver.store.outcome = "refused"
    assert "COORDINATOR_NOT_AVAILABLE" == await driver.end(producer)
    assert "Ongoing" == driver.state
    driver.clock.advance(1.2)
    await settle()
    assert [Told(0, (1, 1), False)] == driver.listeners.told


async def test_ids_that_nobody_uses_go() -> None:
    """After their time, at the next look; a producer that comes back begins anew."""
    driver = await Driver(expiration_s=600.0, expiration_check_interval_s=100.0).start()
    producer = await begun(driver, 0)
    await driver.init(name="busy")
    driver.clock.advance(50)
    await settle()
    await driver.end(producer)
    await settle()
    driver.clock.advance(500)
    await settle()
    assert "CompleteCommit" == driver.state
    await driver.init(name="busy")
    driver.clock.advance(150)
    await settle()
    assert "nothing" == await stored_state(driver)
    assert ["busy"] == [one.transactional_id for one in driver.coordinator.listed()]
    assert 1 == driver.metrics.transactional_ids_expired
    assert "INVALID_PRODUCER_ID_MAPPING" == await driver.add((1, 1), 0)
    assert (3, 0) == await driver.init(1, 1)
    await driver.coordinator.aclose()


async def test_removal_that_fails(driver: Driver) -> None:
    """The id is what it was."""
    producer = await driver.init()
    driver.store.outcome = "refused"
    driver.clock.advance(8 * 86_400)
    await settle()
    assert 1 == driver.store.failures
    assert "NONE" == await driver.add(producer, 0)


async def test_many_ids_are_looked_at_in_turns() -> None:
    """The loop turns for others while it is found which ones go."""
    driver = await Driver(expiration_s=10.0, expiration_check_interval_s=100.0).start()
    for one in [driver.ask_init(name=str(number)) for number in range(2_500)]:
        await one
    driver.clock.advance(100.5)
    assert 1_000 == driver.metrics.transactional_ids["Dead"]
    await settle()
    assert 2_500 == driver.metrics.transactional_ids_expired
    assert 0 == len(list(driver.coordinator.listed()))
    await driver.coordinator.aclose()


# --- a store that fails --------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["refused", "stored, perhaps"])
async def test_store_fails_at_the_first_id(driver: Driver, outcome: str) -> None:
    """Nobody has it: the next one to ask gets another."""
    driver.store.outcome = outcome
    assert "COORDINATOR_NOT_AVAILABLE" == await driver.init()
    assert [] == list(driver.coordinator.listed())
    assert (2, 0) == await driver.init()


async def test_store_fails_at_the_next_epoch(driver: Driver) -> None:
    """Who had the id has it still."""
    producer = await driver.init()
    driver.store.outcome = "refused"
    assert "COORDINATOR_NOT_AVAILABLE" == await driver.init()
    assert "NONE" == await driver.add(producer, 0)


@pytest.mark.parametrize("outcome", ["refused", "stored, perhaps"])
async def test_store_fails_at_an_addition(driver: Driver, outcome: str) -> None:
    """The transaction is what it was, with all that followed from it refused."""
    producer = await begun(driver, 0)
    driver.store.outcome = outcome
    first, second = driver.ask_add(producer, 1), driver.ask_add(producer, 2)
    end = driver.ask_end(producer)
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is await first is await second
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is (await end).error
    row = driver.coordinator.describe(ID)
    assert row is not None
    assert "Ongoing" == row.state.value
    assert {place(0)} == row.places
    assert 0 == driver.listeners.attempts
    assert "NONE" == await driver.add(producer, 1)
    assert (1, 1) == await driver.end(producer)
    await settle()
    assert [0, 1] == sorted(driver.committed)


async def test_what_was_queued_behind_a_failure_fails_with_it(driver: Driver) -> None:
    """It followed from what did not happen."""
    producer = await driver.init()
    driver.store.hold()
    first = driver.ask_add(producer, 0)
    await settle()
    driver.store.outcome = "refused"
    second, end = driver.ask_add(producer, 1), driver.ask_end(producer)
    driver.store.release()
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is await first is await second
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is (await end).error
    await settle()
    assert "Empty" == driver.state
    assert 0 == driver.listeners.attempts


@pytest.mark.parametrize("outcome", ["refused", "stored, perhaps"])
@pytest.mark.parametrize("commit", [True, False])
async def test_store_fails_at_a_decision(driver: Driver, outcome: str, commit: bool) -> None:
    """Nothing is decided, and nobody told; the producer tries again, and decides as it likes."""
    producer = await begun(driver, 0)
    driver.store.outcome = outcome
    assert "COORDINATOR_NOT_AVAILABLE" == await driver.end(producer, commit=True)
    assert "Ongoing" == driver.state
    assert 0 == driver.listeners.attempts
    assert (1, 1) == await driver.end(producer, commit=commit)
    await settle()
    assert [Told(0, (1, 1), commit)] == driver.listeners.told


async def test_store_fails_at_the_end_of_an_end(driver: Driver) -> None:
    """Everybody is told once more, after a wait, which does no harm."""
    producer = await begun(driver, 0)
    driver.listeners.hold()
    await driver.end(producer)
    waiting = driver.ask_add((1, 1), 7)
    driver.store.outcome = "refused"
    driver.listeners.release()
    await settle()
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is waiting.result
    assert "PrepareCommit" == driver.state
    assert [0] == driver.committed
    assert 1 == driver.metrics.transaction_ends_late
    driver.clock.advance(0.1)
    await settle()
    assert [0, 0] == driver.committed
    await completed(driver)
    assert "CompleteCommit" == await stored_state(driver)
    assert 0 == driver.metrics.transaction_ends_late


async def test_store_that_is_broken_is_not_asked_without_end(driver: Driver) -> None:
    """What the coordinator does by itself waits longer after each failure."""
    await begun(driver, 0)
    driver.store.is_broken = True
    driver.clock.advance(60)
    for _ in range(60):
        driver.clock.advance(1)
        await settle()
    assert 5 <= driver.store.failures <= 25
    assert "Ongoing" == driver.state
    driver.store.is_broken = False
    driver.clock.advance(LONGEST_WAIT_S)
    await settle()
    assert "CompleteAbort" == driver.state


async def test_partitions_that_come_one_by_one_take_the_room_of_one_row(driver: Driver) -> None:
    """Each row has all those before: 5,000 of them in the queue took 600 MB."""
    producer = await driver.init()
    tracemalloc.start()
    try:
        asked = [driver.ask_add(producer, index) for index in range(1_000)]
        grown_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown_bytes < 2_000_000
    assert {ErrorCode.NONE} == {await one for one in asked}
    row = await stored(driver)
    assert row is not None
    assert 1_000 == len(row.places)


async def test_partitions_that_are_let_in_enter_in_turns(driver: Driver) -> None:
    """Each has a batch that waits: thousands of them in one turn would hold up the loop."""
    producer = await driver.init()
    turn = 0
    entered: Counter[int] = Counter()
    for number in range(20):
        asked = driver.ask_add(producer, *range(100 * number, 100 * number + 100))
        asked.when_done(lambda _: entered.update({turn: 100}))
    while sum(entered.values()) < 2_000:
        turn += 1
        await asyncio.sleep(0)
    # What is asked together is let in together: the one that makes the turn full may reach over.
    assert max(entered.values()) < FINISHED_PER_TURN + 100


@pytest.mark.parametrize("commit", [True, False])
async def test_who_was_let_into_a_transaction_hears_before_its_end_is_told(
    driver: Driver, commit: bool
) -> None:
    """Also where one flush stores both: what it does then belongs to the transaction."""
    producer: tuple[int, int] = await driver.init()
    heard: list[int] = []
    request = AddRequest(ProducerIdAndEpoch(*producer), groups=frozenset({"group"}))
    added = driver.coordinator.ask(ID, request)
    added.when_done(lambda _: heard.append(driver.listeners.attempts))
    ended = driver.ask_end(producer, commit=commit)
    await settle()
    assert ended.is_done
    assert [0] == heard
    assert ["group"] == [one.where for one in driver.listeners.told]


async def test_end_that_cannot_be_noted_at_a_stop_is_left_to_the_next_start(
    driver: Driver,
) -> None:
    """Nobody is told anything once the coordinator is closed."""
    producer = await begun(driver, 0)
    driver.listeners.hold()
    await driver.end(producer)
    driver.store.is_broken = True
    closing = asyncio.ensure_future(driver.coordinator.aclose())
    await settle()
    driver.listeners.release()
    await closing
    attempts = driver.listeners.attempts
    driver.clock.advance(2 * LONGEST_WAIT_S)
    await settle()
    assert attempts == driver.listeners.attempts
    driver.store.is_broken = False
    await driver.crash()
    await settle()
    assert "CompleteCommit" == driver.state


# --- partitions and groups that fail -------------------------------------------------------------


@pytest.mark.parametrize("way", ["raises", "fails"])
async def test_marker_that_cannot_be_written(
    driver: Driver, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again, later each time, and those that have heard are left alone."""
    caplog.set_level("INFO")
    producer = await begun(driver, 0)
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    if way == "raises":
        driver.listeners.refusal = error
    else:
        driver.listeners.failure = error
    assert (1, 1) == await driver.end(producer)
    await settle()
    tries = [driver.listeners.attempts]
    for wait_s in (0.1, 0.2, 0.4):
        driver.clock.advance(wait_s - 0.01)
        await settle()
        tries.append(driver.listeners.attempts)
        driver.clock.advance(0.01)
        await settle()
    assert [1, 1, 2, 3] == tries
    assert "PrepareCommit" == driver.state
    assert 1 == driver.metrics.transaction_ends_late
    driver.listeners.refusal = driver.listeners.failure = None
    driver.clock.advance(1)
    await settle()
    assert [0] == driver.committed
    assert "CompleteCommit" == driver.state
    assert 4 == driver.metrics.transaction_end_failures
    assert 0 == driver.metrics.transaction_ends_late
    assert 1.5 == pytest.approx(driver.metrics.transaction_end_time.sum_s)
    (told,) = [one for one in caplog.records if "came late" in one.getMessage()]
    assert {"transactional_id": ID, "after_s": 1.7} == getattr(told, "kgw_fields", {})


async def test_group_that_cannot_be_told(driver: Driver) -> None:
    """As a partition; one that is gone has nothing left to end."""
    producer = await driver.init()
    await driver.add_group(producer, "g")
    driver.listeners.failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    await driver.end(producer)
    await settle()
    assert "PrepareCommit" == driver.state
    driver.listeners.failure = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    driver.clock.advance(0.1)
    await settle()
    assert "CompleteCommit" == driver.state


async def test_partition_that_is_gone(driver: Driver) -> None:
    """Its topic was deleted: nothing is left to end there."""
    producer = await begun(driver, 0, 1)
    driver.listeners.gone.add(0)
    await driver.end(producer)
    await settle()
    assert [1] == driver.committed
    assert "CompleteCommit" == driver.state


async def test_partition_that_knows_a_higher_epoch(driver: Driver) -> None:
    """Nothing of this transaction can be open there."""
    producer = await begun(driver, 0)
    driver.listeners.refusal = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    await driver.end(producer)
    await settle()
    assert "CompleteCommit" == driver.state


@pytest.mark.parametrize("where", ["partition", "group"])
async def test_nothing_else_that_is_refused_counts_as_told(driver: Driver, where: str) -> None:
    """Whatever the code, a process that was replaced among them: the decision stands."""
    producer = await driver.init()
    if where == "group":
        await driver.add_group(producer, "g")
    else:
        await driver.add(producer, 0)
    past = {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
    codes = [code for code in ErrorCode if code not in past]
    driver.listeners.failure = KafkaError(codes[0])
    await driver.end(producer)
    for code in codes:
        driver.listeners.failure = KafkaError(code)
        attempts = driver.listeners.attempts
        driver.clock.advance(LONGEST_WAIT_S)
        await settle()
        assert attempts < driver.listeners.attempts
        assert (code, "PrepareCommit") == (code, driver.state)
    driver.listeners.failure = None
    driver.clock.advance(LONGEST_WAIT_S)
    await settle()
    assert "CompleteCommit" == driver.state


async def test_bug_in_a_partition_is_reported_and_tried_again() -> None:
    """A decision stands, whatever is wrong."""
    driver = await Driver().start()
    producer = await begun(driver, 0)
    driver.listeners.refusal = RuntimeError("a bug")
    await driver.end(producer)
    await settle()
    assert [driver.listeners.refusal] == driver.bugs
    driver.listeners.refusal = None
    driver.clock.advance(0.1)
    await settle()
    assert "CompleteCommit" == driver.state
    await driver.coordinator.aclose()


async def test_many_partitions_are_told_in_turns(driver: Driver) -> None:
    """The loop turns for others meanwhile; all are told."""
    many = 3 * TOLD_PER_TURN
    producer = await begun(driver, *range(many))
    await driver.end(producer)
    most = await most_in_a_turn(settle(), lambda: driver.listeners.attempts)
    assert most <= TOLD_PER_TURN
    assert many == len(driver.committed)


def test_waits_grow() -> None:
    """From a tenth of a second to ten seconds, and stay there."""
    waits = [growing_wait_s(failures) for failures in range(1, 100)]
    assert sorted(waits) == waits
    assert (0.1, LONGEST_WAIT_S) == (waits[0], waits[-1])


# --- restarts ------------------------------------------------------------------------------------


async def test_restart_when_nothing_is_open(driver: Driver) -> None:
    """Who has the id has it still; nobody is told anything."""
    producer = await driver.init()
    await driver.crash()
    assert "Empty" == driver.state
    assert "NONE" == await driver.add(producer, 0)
    await driver.end(producer)
    await completed(driver)
    await driver.crash()
    await settle()
    assert "CompleteCommit" == driver.state
    assert (1, 1) == await driver.end(producer)
    assert 1 == driver.listeners.attempts


async def test_restart_while_a_transaction_is_open(driver: Driver) -> None:
    """It goes on, and has its whole time once more."""
    producer = await begun(driver, 0)
    driver.clock.advance(30)
    await driver.crash()
    assert "NONE" == await driver.add(producer, 1)
    driver.clock.advance(59)
    await settle()
    assert "Ongoing" == driver.state
    driver.clock.advance(1)
    await settle()
    assert "CompleteAbort" == driver.state
    assert {0, 1} == {one.where for one in driver.listeners.told}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("told", [0, 1, 2, 3])
async def test_kill_between_the_decision_and_each_marker(
    driver: Driver, told: int, version: int, commit: bool
) -> None:
    """The next process finishes what was decided: all hear the same."""
    producer = await begun(driver, 0, 1)
    await driver.add_group(producer, "g")
    driver.listeners.hold()
    await driver.end(producer, commit=commit, version=version)
    # The process is killed when so many have heard, and before it hears of that.
    held = driver.listeners.held or []
    for confirm in held[:told]:
        confirm()
    driver.listeners.held = None
    await driver.crash()
    await settle()
    assert ("CompleteCommit" if commit else "CompleteAbort") == driver.state
    raised = (1, 1) if version == 2 else producer
    heard = driver.listeners.told
    assert {0, 1, "g"} == {one.where for one in heard}
    assert {(raised, commit)} == {(one.producer, one.is_commit) for one in heard}
    expected = (1, 1) if version == 2 else "NONE"
    assert expected == await driver.end(producer, commit=commit, version=version)


async def test_kill_before_a_decision_is_stored(driver: Driver) -> None:
    """It was not answered and is none: the transaction is still open."""
    producer = await begun(driver, 0)
    driver.store.hold()
    end = driver.ask_end(producer)
    await settle()
    driver.store.gate = None
    await driver.crash()
    assert not end.is_done
    assert "Ongoing" == driver.state
    assert (1, 1) == await driver.end(producer, commit=False)


async def test_markers_of_each_process_have_a_higher_epoch(driver: Driver) -> None:
    """So that partitions can refuse those of a process that was replaced."""
    epochs = []
    for _ in range(3):
        producer = await driver.init()
        await driver.add(producer, 0)
        await driver.end(producer)
        await settle()
        epochs.append(driver.listeners.endings[-1].coordinator_epoch)
        await driver.crash()
    assert sorted(set(epochs)) == epochs


async def test_process_over_an_older_copy_of_the_store(driver: Driver) -> None:
    """Its markers are not taken for those of a process before."""
    await driver.init()
    copy = dict(await driver.store.load(TRANSACTION))
    for _ in range(5):
        await driver.crash()
        await driver.init()
    producer = await driver.init()
    await driver.add(producer, 0)
    await driver.end(producer)
    await settle()
    before = driver.listeners.endings[-1].coordinator_epoch
    other = Driver()
    other.clock.advance(3_600)
    await other.store.apply([Change(TRANSACTION, key, row.value) for key, row in copy.items()])
    await other.start()
    producer = await other.init()
    await other.add(producer, 0)
    await other.end(producer)
    await settle()
    assert other.listeners.endings[-1].coordinator_epoch > before
    await other.coordinator.aclose()


async def test_ids_of_other_nodes_are_left_alone(driver: Driver) -> None:
    """They are loaded by whoever coordinates them."""
    await driver.init()
    await driver.init(name="theirs")
    driver.is_ours = lambda name: name == ID
    await driver.crash()
    assert [ID] == [one.transactional_id for one in driver.coordinator.listed()]


async def test_row_that_cannot_be_read(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """It is named in the log, and its producer begins anew."""
    await driver.store.apply([Change(TRANSACTION, ID, b"{}"), Change(TRANSACTION, "x", b"\xff")])
    await driver.crash()
    assert [] == list(driver.coordinator.listed())
    named = {getattr(one, "kgw_fields", {}).get("transactional_id") for one in caplog.records}
    assert {ID, "x"} <= named
    assert (1, 0) == await driver.init()


# --- stopping ------------------------------------------------------------------------------------


async def test_stop_lets_nobody_wait(driver: Driver) -> None:
    """What waits for the transaction before is answered, also what comes now."""
    producer = await begun(driver, 0)
    driver.listeners.hold()
    await driver.end(producer)
    waiting = driver.ask_add((1, 1), 1)
    driver.coordinator.answer_waiters()
    assert ErrorCode.NOT_COORDINATOR is waiting.result
    assert ErrorCode.NOT_COORDINATOR is driver.ask_add((1, 1), 1).result
    driver.listeners.release()


async def test_stop_finishes_what_is_on_its_way(driver: Driver) -> None:
    """Markers that are being written are waited for; those that fail are left to the next start."""
    producer = await begun(driver, 0)
    driver.listeners.hold()
    await driver.end(producer)
    closing = asyncio.ensure_future(driver.coordinator.aclose())
    await settle()
    assert not closing.done()
    driver.listeners.release()
    await closing
    assert "CompleteCommit" == await stored_state(driver)


async def test_stop_does_not_wait_for_what_is_tried_again(driver: Driver) -> None:
    """The next start finishes it."""
    producer = await begun(driver, 0)
    driver.listeners.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    await driver.end(producer)
    await settle()
    await driver.coordinator.aclose()
    assert "PrepareCommit" == await stored_state(driver)
    assert 0 == driver.clock.pending
    driver.listeners.refusal = None
    await driver.crash()
    await completed(driver)
    assert "CompleteCommit" == await stored_state(driver)


async def test_a_marker_that_fails_during_a_stop_is_not_tried_again(driver: Driver) -> None:
    """Whoever has stopped writes no marker: the next start does, or another node."""
    producer = await begun(driver, 0)
    driver.listeners.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    driver.listeners.hold()
    await driver.end(producer)
    await settle()
    closing = asyncio.ensure_future(driver.coordinator.aclose())
    await settle()
    assert not closing.done()
    driver.listeners.failure = None
    driver.listeners.release()
    await closing
    driver.clock.advance(LONGEST_WAIT_S)
    await settle()
    assert (1, []) == (driver.listeners.attempts, driver.listeners.told)


# --- numbers -------------------------------------------------------------------------------------


async def test_metrics(driver: Driver) -> None:
    """How many ids are in which state, and how transactions end."""
    producer = await begun(driver, 0)
    await driver.init(name="other")
    states = driver.metrics.transactional_ids
    assert {"Ongoing": 1, "Empty": 1} == {state: n for state, n in states.items() if n}
    driver.listeners.hold()
    await driver.end(producer)
    driver.clock.advance(0.3)
    driver.listeners.release()
    await settle()
    assert {"CompleteCommit": 1, "Empty": 1} == {state: n for state, n in states.items() if n}
    assert {"committed": 1} == driver.metrics.transactions_ended
    assert 0.3 == pytest.approx(driver.metrics.transaction_end_time.sum_s)


async def test_nothing_is_answered_before_everything_is_loaded(driver: Driver) -> None:
    """A request for an id that is loaded already waits no less than others: clients ask again."""
    producer = await driver.init()
    asked = []
    load = driver.store.load

    async def load_and_ask(kind: str) -> dict[str, Row]:
        asked.append(await driver.init())
        asked.append(await driver.add(producer, 0))
        return await load(kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.store, "load", load_and_ask)
        await driver.crash()
    assert 2 * ["COORDINATOR_LOAD_IN_PROGRESS"] == asked
    assert "NONE" == await driver.add(producer, 0)


async def test_a_stop_answers_who_waits_for_a_producer_id(driver: Driver) -> None:
    """No id is stored for it, whenever the fresh one comes."""
    asked = driver.ask_init()
    driver.coordinator.answer_waiters()
    assert "NOT_COORDINATOR" == in_short(await asked)
    await driver.coordinator.aclose()
    assert {} == await driver.store.load(TRANSACTION)
    assert [] == driver.bugs
