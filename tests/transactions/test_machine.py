"""The rules of one transactional id, as transcripts: what is asked, and what is to be done."""

from __future__ import annotations

import pytest

from kgw.coordinator.machine import NEVER_S
from kgw.errors import ErrorCode
from kgw.transactions.machine import LAST_EPOCH
from kgw.transactions.states import TRANSITIONS, TransactionEvent, TransactionState, next_state
from tests.transactions.script import Script


def begun(*, producer_id: int = 7) -> Script:
    """Return an id that a producer has, with epoch 0."""
    script = Script()
    script.init(new=producer_id)
    return script


def ongoing() -> Script:
    """Return an id whose producer, 7:0, has a transaction in one partition."""
    script = begun()
    script.add(7, 0)
    return script


def at_epoch(epoch: int) -> Script:
    """Return an id whose producer has come to an epoch, with a transaction open."""
    script = begun()
    row = script.row
    script.machine.row = row._replace(producer=row.producer._replace(epoch=epoch))
    script.add(7, epoch)
    return script


# --- lives ---------------------------------------------------------------------------------------


def test_life_before_version_2() -> None:
    """One epoch for all transactions, and partitions that are added."""
    script = Script()
    assert ["need a producer id"] == script.init()
    assert ["store Empty 7:0", "answer NONE 7:0"] == script.init(new=7)
    assert ["store Ongoing 7:0", "answer NONE"] == script.add(7, 0, places=[0, 1])
    assert ["answer NONE"] == script.add(7, 0, places=[1])
    assert ["store Ongoing 7:0", "answer NONE"] == script.add(7, 0, places=[2])
    assert ["store Ongoing 7:0", "answer NONE"] == script.add(7, 0, places=[], group="g")
    assert [
        "store PrepareCommit 7:0",
        "end committed 7:0 v0 in 4",
        "answer NONE",
    ] == script.end(7, 0, version=0)
    assert ["store CompleteCommit 7:0"] == script.marked()
    assert ["store Ongoing 7:0", "answer NONE"] == script.add(7, 0)
    assert [
        "store PrepareAbort 7:0",
        "end aborted 7:0 v0 in 1",
        "answer NONE",
    ] == script.end(7, 0, commit=False, version=0)
    assert ["store CompleteAbort 7:0"] == script.marked()


def test_life_in_version_2() -> None:
    """Each end raises the epoch, and its markers carry the raised one (KIP-890)."""
    script = ongoing()
    assert [
        "store PrepareCommit 7:1",
        "end committed 7:1 v2 in 1",
        "answer NONE 7:1",
    ] == script.end(7, 0)
    assert ["store CompleteCommit 7:1"] == script.marked()
    assert frozenset() == script.row.places
    assert ["store Ongoing 7:1", "answer NONE"] == script.add(7, 1)
    assert [
        "store PrepareAbort 7:2",
        "end aborted 7:2 v2 in 1",
        "answer NONE 7:2",
    ] == script.end(7, 1, commit=False)


def test_times_of_a_transaction() -> None:
    """It begins with the first partition, and says so until the next one."""
    script = begun()
    assert -1 == script.row.started_ms
    script.wait(5)
    script.add(7, 0)
    began_ms = script.now.running_ms
    script.wait(5)
    script.add(7, 0, places=[1])
    script.end(7, 0)
    script.marked()
    assert began_ms == script.row.started_ms
    assert script.now.running_ms == script.row.updated_ms


# --- producers that come and go on ---------------------------------------------------------------


def test_new_producer_fences_the_one_before() -> None:
    """It gets the next epoch; every API refuses the old one."""
    script = begun()
    assert ["store Empty 7:1", "answer NONE 7:1"] == script.init()
    for version in (0, 2):
        assert ["answer PRODUCER_FENCED"] == script.end(7, 0, version=version)
        assert ["answer PRODUCER_FENCED"] == script.end(7, 0, commit=False, version=version)
    assert ["answer PRODUCER_FENCED"] == script.add(7, 0)
    assert ["answer PRODUCER_FENCED"] == script.add(7, 0, places=[], group="g")
    assert ["answer PRODUCER_FENCED"] == script.verify(7, 0)
    assert ["answer PRODUCER_FENCED"] == script.init((7, 0))


def test_other_producer_ids_are_told_apart() -> None:
    """An id that belongs to nobody here is no epoch that was fenced."""
    script = ongoing()
    assert ["answer INVALID_PRODUCER_ID_MAPPING"] == script.add(8, 0)
    assert ["answer INVALID_PRODUCER_ID_MAPPING"] == script.verify(8, 0)
    assert ["answer INVALID_PRODUCER_ID_MAPPING"] == script.end(8, 0)
    assert ["answer INVALID_PRODUCER_ID_MAPPING"] == script.end(8, 0, version=0)
    assert ["answer PRODUCER_FENCED"] == script.init((8, 0))


def test_new_producer_while_a_transaction_is_open() -> None:
    """It aborts that with a raised epoch, is told to ask again, and gets the epoch after that."""
    script = ongoing()
    assert [
        "store PrepareAbort 7:1",
        "end fenced 7:1 v2 in 1",
        "answer CONCURRENT_TRANSACTIONS",
    ] == script.init()
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.init()
    assert ["answer PRODUCER_FENCED"] == script.end(7, 0)
    assert ["answer PRODUCER_FENCED"] == script.end(7, 0, commit=False)
    script.marked()
    # The old one may not learn the epoch that was raised against it.
    assert ["answer PRODUCER_FENCED"] == script.end(7, 0, commit=False)
    assert ["answer PRODUCER_FENCED"] == script.init((7, 0))
    assert ["store Empty 7:2", "answer NONE 7:2"] == script.init()


def test_producer_that_goes_on_while_its_transaction_is_open() -> None:
    """Its transaction is aborted, and it gets the epoch of that abort (KIP-360)."""
    script = ongoing()
    assert "end fenced 7:1 v2 in 1" in script.init((7, 0))
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.init((7, 0))
    script.marked()
    assert ["answer NONE 7:1"] == script.init((7, 0))


def test_stale_producer_does_not_abort_the_transaction_of_another() -> None:
    """One that says what it had, and is fenced by now, changes nothing."""
    script = begun()
    script.init((7, 0))
    script.add(7, 1)
    assert ["answer PRODUCER_FENCED"] == script.init((7, 0))
    assert TransactionState.ONGOING is script.machine.state


def test_producer_that_goes_on_asks_again() -> None:
    """The answer that was lost is given once more; who is older is fenced."""
    script = begun()
    assert ["store Empty 7:1", "answer NONE 7:1"] == script.init((7, 0))
    assert ["answer NONE 7:1"] == script.init((7, 0))
    assert ["store Empty 7:2", "answer NONE 7:2"] == script.init((7, 1))
    assert ["answer PRODUCER_FENCED"] == script.init((7, 0))
    # A new producer: nobody before may go on.
    script.init()
    assert ["answer PRODUCER_FENCED"] == script.init((7, 2))


def test_forgotten_producer_goes_on_under_another_id() -> None:
    """Its transactional id has expired: it gets a new producer id, and may ask for it again."""
    script = Script()
    assert ["store Empty 9:0", "answer NONE 9:0"] == script.init((7, 4), new=9)
    assert ["answer NONE 9:0"] == script.init((7, 4))
    assert ["answer PRODUCER_FENCED"] == script.init((7, 3))


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_times_that_are_refused(timeout_ms: int) -> None:
    """Nothing and more than the limit, whatever the state."""
    assert ["answer INVALID_TRANSACTION_TIMEOUT"] == Script().init(timeout_ms=timeout_ms)
    script = ongoing()
    assert ["answer INVALID_TRANSACTION_TIMEOUT"] == script.init(timeout_ms=timeout_ms)
    assert TransactionState.ONGOING is script.machine.state


def test_producer_says_its_time_anew() -> None:
    """What the last producer asked for counts."""
    script = begun()
    script.init(timeout_ms=1_000)
    assert 1_000 == script.row.timeout_ms
    script.add(7, 1)
    assert [] == script.wait(0.9)
    assert "end timed-out 7:2 v2 in 1" in script.wait(0.1)


# --- EndTxn: what Kafka's tables say -------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_end_is_asked_for_again_in_version_2(commit: bool) -> None:
    """While markers are written, and after: the same decision, the other one, the next producer."""
    script = ongoing()
    script.end(7, 0, commit=commit)
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.end(7, 0, commit=commit)
    assert ["answer INVALID_TXN_STATE"] == script.end(7, 0, commit=not commit)
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.end(7, 1, commit=False)
    script.restart()
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.end(7, 0, commit=commit)
    script.marked()
    script.restart()
    assert ["answer NONE 7:1"] == script.end(7, 0, commit=commit)
    assert ["answer NONE 7:1"] == script.end(7, 0, commit=commit)
    assert ["answer INVALID_TXN_STATE"] == script.end(7, 0, commit=not commit)
    # With the next epoch it is about the next transaction, in which there is nothing.
    assert ["answer INVALID_TXN_STATE"] == script.end(7, 1, commit=True)
    assert ["store CompleteAbort 7:2", "answer NONE 7:2"] == script.end(7, 1, commit=False)
    assert ["answer NONE 7:2"] == script.end(7, 1, commit=False)


@pytest.mark.parametrize("commit", [True, False])
def test_end_is_asked_for_again_before_version_2(commit: bool) -> None:
    """The epoch does not tell, so that the state alone decides."""
    script = ongoing()
    script.end(7, 0, commit=commit, version=0)
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.end(7, 0, commit=commit, version=0)
    assert ["answer INVALID_TXN_STATE"] == script.end(7, 0, commit=not commit, version=0)
    script.marked()
    assert ["answer NONE"] == script.end(7, 0, commit=commit, version=0)
    assert ["answer INVALID_TXN_STATE"] == script.end(7, 0, commit=not commit, version=0)


@pytest.mark.parametrize("commit", [True, False])
def test_end_of_nothing_before_version_2(commit: bool) -> None:
    """There must be a transaction."""
    assert ["answer INVALID_TXN_STATE"] == begun().end(7, 0, commit=commit, version=0)


def test_end_of_nothing_in_version_2() -> None:
    """To abort raises the epoch at once; to commit nothing is a mistake."""
    script = begun()
    assert ["answer INVALID_TXN_STATE"] == script.end(7, 0, commit=True)
    assert ["store CompleteAbort 7:1", "answer NONE 7:1"] == script.end(7, 0, commit=False)
    assert ["answer NONE 7:1"] == script.end(7, 0, commit=False)


def test_end_of_who_never_came() -> None:
    """There is no such transactional id."""
    for version in (0, 2):
        assert ["answer INVALID_PRODUCER_ID_MAPPING"] == Script().end(7, 0, version=version)
    assert ["answer INVALID_PRODUCER_ID_MAPPING"] == Script().add(7, 0)
    assert ["answer INVALID_PRODUCER_ID_MAPPING"] == Script().verify(7, 0)


def test_older_end_is_no_repetition_for_the_next_producer() -> None:
    """What a producer ended that was fenced since, nobody is told again."""
    script = ongoing()
    script.end(7, 0)
    script.marked()
    script.init()
    assert ["answer PRODUCER_FENCED"] == script.end(7, 0)
    assert ["answer PRODUCER_FENCED"] == script.end(7, 1)


def test_old_protocol_leaves_no_repetition_of_another_epoch() -> None:
    """A commit under one epoch is not the answer to a stale one under the epoch before."""
    script = begun()
    script.init((7, 0))
    script.add(7, 1)
    script.end(7, 1, version=0)
    script.marked()
    assert ["answer PRODUCER_FENCED"] == script.end(7, 0)


# --- time ----------------------------------------------------------------------------------------


def test_time_is_over() -> None:
    """The transaction is aborted, and what its producer still sends is fenced."""
    script = ongoing()
    assert [] == script.wait(59.9)
    assert ["store PrepareAbort 7:1", "end timed-out 7:1 v2 in 1"] == script.wait(0.1)
    assert NEVER_S == script.machine.next_deadline_s
    assert ["answer PRODUCER_FENCED"] == script.add(7, 0)
    assert ["answer PRODUCER_FENCED"] == script.end(7, 0, version=0)


def test_producer_hears_that_its_time_was_over() -> None:
    """Its commit is refused; its abort is answered as one, and says how to go on (KIP-890)."""
    script = ongoing()
    script.wait(60)
    assert ["answer INVALID_TXN_STATE"] == script.end(7, 0)
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.end(7, 0, commit=False)
    script.marked()
    assert ["answer INVALID_TXN_STATE"] == script.end(7, 0)
    assert ["answer NONE 7:1"] == script.end(7, 0, commit=False)


def test_end_comes_before_the_time_is_over() -> None:
    """A decision stands: no time is left that could be over."""
    script = ongoing()
    script.wait(59.9)
    script.end(7, 0)
    assert NEVER_S == script.machine.next_deadline_s
    assert [] == script.tell_that_time_has_passed()
    assert TransactionState.PREPARE_COMMIT is script.machine.state


def test_a_start_gives_a_transaction_its_whole_time() -> None:
    """How long nothing ran nobody knows for certain; a time that went back changes nothing."""
    script = ongoing()
    script.wait(50)
    script.now_s += 3_600  # a stop, or a wall clock that is wrong
    script.restart()
    assert [] == script.wait(59.9)
    assert "end timed-out 7:1 v2 in 1" in script.wait(0.1)
    script = ongoing()
    script.now_s -= 500
    script.restart()
    assert script.now_s + 60 == script.machine.next_deadline_s


# --- the next transaction while one ends ---------------------------------------------------------


def test_addition_waits_for_the_end_of_the_one_before() -> None:
    """It is carried out when the markers are written, after what ended."""
    script = ongoing()
    script.end(7, 0)
    assert [] == script.add(7, 1, places=[4])
    assert [] == script.add(7, 1, places=[], group="g")
    assert [
        "store CompleteCommit 7:1",
        "store Ongoing 7:1",
        "answer NONE",
        "store Ongoing 7:1",
        "answer NONE",
    ] == script.marked()
    assert {"g"} == script.row.groups
    assert [4] == [one.partition for one in script.row.places]


def test_addition_waits_for_so_long() -> None:
    """Then the client is told to try again; each has its own time."""
    script = ongoing()
    script.end(7, 0)
    script.add(7, 1)
    script.wait(0.06)
    script.add(7, 1)
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.wait(0.06)
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.wait(0.06)
    assert ["store CompleteCommit 7:1"] == script.marked()


def test_stale_addition_does_not_wait() -> None:
    """Who was fenced by the end hears so at once."""
    script = ongoing()
    script.end(7, 0)
    assert ["answer PRODUCER_FENCED"] == script.add(7, 0)


def test_who_waits_is_told_when_nobody_will_come() -> None:
    """The process stops, or goes back to what is stored."""
    script = ongoing()
    script.end(7, 0)
    script.add(7, 1)
    assert ["answer NOT_COORDINATOR"] == script.abandon(ErrorCode.NOT_COORDINATOR)
    assert [] == script.abandon(ErrorCode.NOT_COORDINATOR)


# --- verification, and other limits --------------------------------------------------------------


def test_verification() -> None:
    """NONE for partitions of the open transaction, of the present epoch, and nothing else."""
    script = begun()
    assert ["answer TRANSACTION_ABORTABLE"] == script.verify(7, 0)
    script.add(7, 0, places=[0, 1])
    assert ["answer NONE"] == script.verify(7, 0, places=[0, 1])
    assert ["answer TRANSACTION_ABORTABLE"] == script.verify(7, 0, places=[1, 2])
    assert ["answer TRANSACTION_ABORTABLE"] == script.verify(7, 0, groups=["g"])
    script.add(7, 0, places=[], group="g")
    assert ["answer NONE"] == script.verify(7, 0, groups=["g"])
    script.end(7, 0, version=0)
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.verify(7, 0)
    script.marked()
    assert ["answer TRANSACTION_ABORTABLE"] == script.verify(7, 0)


def test_groups_of_a_transaction_are_limited() -> None:
    """Their names are kept and written: not without end. The transaction goes on."""
    script = Script(groups_max=2)
    script.init(new=7)
    script.add(7, 0, places=[], group="a")
    script.add(7, 0, places=[], group="b")
    assert ["answer POLICY_VIOLATION"] == script.add(7, 0, places=[], group="c")
    assert ["answer NONE"] == script.add(7, 0, places=[], group="b")


def test_names_of_groups_are_limited_together() -> None:
    """All of them are written with each change. What is in the transaction stays in it."""
    script = Script(group_names_max=10)
    script.init(new=7)
    script.add(7, 0, places=[], group="seven..")
    assert ["answer POLICY_VIOLATION"] == script.add(7, 0, places=[], group="four")
    assert ["answer NONE"] == script.add(7, 0, places=[], group="seven..")
    script.add(7, 0, places=[], group="two")
    script.end(7, 0, version=0)


def test_idle_ids_go() -> None:
    """Not with an open transaction, nor one that ends; what follows begins anew."""
    script = begun()
    script.wait(100)
    assert [] == script.idle(100.1)
    assert ["remove"] == script.idle(100)
    assert TransactionState.DEAD is script.machine.state
    assert [] == script.idle(100)
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.init()
    assert ["answer INVALID_PRODUCER_ID_MAPPING"] == script.add(7, 0)
    assert ["answer INVALID_PRODUCER_ID_MAPPING"] == script.end(7, 0)
    script = ongoing()
    script.now_s += 1000
    assert [] == script.idle(100)
    script.end(7, 0)
    script.now_s += 1000
    assert [] == script.idle(100)
    script.marked()
    assert [] == script.idle(100)
    script.now_s += 100
    script.restart()
    assert ["remove"] == script.idle(100)


# --- epochs that are used up ---------------------------------------------------------------------


def test_epochs_are_used_up_by_an_end() -> None:
    """The markers carry the last epoch of all, and the next transaction has another producer id."""
    script = at_epoch(LAST_EPOCH)
    assert ["need a producer id"] == script.end(7, LAST_EPOCH)
    assert TransactionState.ONGOING is script.machine.state
    assert [
        "store PrepareCommit 7:32767",
        "end committed 7:32767 v2 in 1",
        "answer NONE 8:0",
    ] == script.end(7, LAST_EPOCH, new=8)
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.end(7, LAST_EPOCH)
    assert ["answer CONCURRENT_TRANSACTIONS"] == script.init((7, LAST_EPOCH))
    assert [] == script.add(8, 0)
    assert ["answer INVALID_PRODUCER_ID_MAPPING"] == script.add(7, LAST_EPOCH)
    script.restart()
    assert ["store CompleteCommit 8:0"] == script.marked()
    assert ["answer NONE 8:0"] == script.end(7, LAST_EPOCH)
    assert ["answer INVALID_TXN_STATE"] == script.end(7, LAST_EPOCH, commit=False)
    assert ["answer NONE 8:0"] == script.init((7, LAST_EPOCH))
    script.add(8, 0)
    # That it was the one before is known until something else happens.
    assert ["answer INVALID_PRODUCER_ID_MAPPING"] == script.end(7, LAST_EPOCH)
    assert ["answer PRODUCER_FENCED"] == script.init((7, LAST_EPOCH))


def test_epochs_are_used_up_by_new_producers() -> None:
    """The next one has another producer id. Who goes on may ask for it again."""
    script = at_epoch(LAST_EPOCH)
    script.end(7, LAST_EPOCH, version=0)
    script.marked()
    assert ["need a producer id"] == script.init()
    assert ["need a producer id"] == script.init((7, LAST_EPOCH))
    assert ["store Empty 8:0", "answer NONE 8:0"] == script.init((7, LAST_EPOCH), new=8)
    assert ["answer NONE 8:0"] == script.init((7, LAST_EPOCH))
    assert ["store Empty 8:1", "answer NONE 8:1"] == script.init(new=9)
    assert ["answer PRODUCER_FENCED"] == script.init((7, LAST_EPOCH))


def test_epochs_are_used_up_by_fencing() -> None:
    """One is left for that, which nobody is given: the next producer has another id."""
    script = at_epoch(LAST_EPOCH)
    assert "end fenced 7:32767 v2 in 1" in script.init()
    script.marked()
    assert ["need a producer id"] == script.init()
    assert ["store Empty 8:0", "answer NONE 8:0"] == script.init(new=8)


def test_epochs_are_used_up_by_time() -> None:
    """The producer that aborts then goes on under another id, as after any other time-out."""
    script = at_epoch(LAST_EPOCH)
    assert "end timed-out 7:32767 v2 in 1" in script.wait(60)
    script.marked()
    assert ["answer INVALID_TXN_STATE"] == script.end(7, LAST_EPOCH)
    assert ["need a producer id"] == script.end(7, LAST_EPOCH, commit=False)
    assert ["store CompleteAbort 8:0", "answer NONE 8:0"] == script.end(
        7, LAST_EPOCH, commit=False, new=8
    )
    assert ["answer NONE 8:0"] == script.end(7, LAST_EPOCH, commit=False)
    assert ["answer NONE 8:0"] == script.init((7, LAST_EPOCH))


def test_nobody_is_given_the_highest_epoch() -> None:
    """No other fences it: who asks how to go on after a time-out gets another producer id."""
    script = at_epoch(LAST_EPOCH)
    script.wait(60)
    script.marked()
    assert ["need a producer id"] == script.init((7, LAST_EPOCH))
    assert ["store Empty 8:0", "answer NONE 8:0"] == script.init((7, LAST_EPOCH), new=8)


def test_a_transaction_of_the_highest_epoch_is_ended_by_a_marker_that_partitions_take() -> None:
    """Its epoch cannot be raised: of version 2 it would be of the transaction before (KIP-890)."""
    script = at_epoch(LAST_EPOCH + 1)
    assert "end timed-out 7:32767 v0 in 1" in script.wait(60)


def test_producer_id_that_is_not_needed_any_more() -> None:
    """Two asked at once: the second one finds an id that has been begun, and leaves its own."""
    script = Script()
    script.init(new=7)
    assert ["store Empty 7:1", "answer NONE 7:1"] == script.init(new=8)


# --- states --------------------------------------------------------------------------------------


def test_table_of_states_is_complete() -> None:
    """Whatever is not in it is refused, and nothing comes back from the dead."""
    assert set(TransactionState) == set(TRANSITIONS)
    for state in TransactionState:
        for event in TransactionEvent:
            if event in TRANSITIONS[state]:
                assert TRANSITIONS[state][event] is next_state(state, event)
            else:
                with pytest.raises(ValueError, match="cannot see"):
                    next_state(state, event)
