"""What others do to a SeaweedFS that kgw serves from: filers that join, rules that forbid."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, NoReturn

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend, private_directory
from kgw.backend.seaweedmq.chain.leader import LEADER
from kgw.backend.seaweedmq.chain.ledger import SEALED_S
from kgw.backend.seaweedmq.filer import ChunkTooLargeError, ConditionFailedError, FilerError
from kgw.backend.seaweedmq.lease.lease import FilerLease
from kgw.backend.seaweedmq.offline.opening import state_directory
from kgw.backend.seaweedmq.partition_log import SeaweedMqPartitionLog
from kgw.backend.seaweedmq.path_rules import PathRule
from kgw.backend.seaweedmq.state.store import ChainStateStore, StateOptions
from kgw.backend.seaweedmq.watch.watch import CALM_S
from kgw.errors import DataDirectoryError, ErrorCode, StorageError
from kgw.problems import EXPIRING, FILERS, RULES, UNWATCHED
from kgw.state.base import Change
from kgw.testing.backend_harness import KEY, SETTINGS, TOPIC
from kgw.testing.batches import make_batch, read_stored
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, FilerStore, MemoryFiler
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from kgw.backend.base import PartitionLog
    from kgw.backend.seaweedmq.filer import FilerEntry

OTHER = "other:8888"
CHANGES = (CallKind.CREATE, CallKind.UPDATE, CallKind.PUT, CallKind.DELETE)


class Served:
    """A gateway's backend with its state, one partition, and the clock of both."""

    def __init__(self, store: FilerStore | None = None) -> None:
        self.clock = ManualClock()
        self.store = store or FilerStore()
        self.filer = MemoryFiler(self.store, self.clock)
        state = ChainStateStore(self.filer, self.clock, state_directory("kafka"))
        self.backend = SeaweedMqBackend(self.filer, "kafka", state, None, self.clock)

    @property
    def log(self) -> PartitionLog:
        """The partition."""
        return self.backend.partitions[KEY]

    async def wait(self, seconds: float = 1.0) -> None:
        """Let time pass, in steps in which everything that is due happens."""
        for _ in range(round(seconds * 2)):
            await turns(20)
            self.clock.advance(0.5)
        await turns(60)

    async def leave(self) -> None:
        """Let the other filer go, and some seconds pass: the one that is left is to know."""
        self.filer.addresses.remove(OTHER)
        await self.wait(CALM_S + 3)

    async def values(self) -> list[bytes | None]:
        """Return what is stored, read from the filer."""
        found = await self.log.read(0, 1 << 20, self.log.high_watermark)
        return [record.value for record in read_stored(found.buffers)]

    def reasons(self) -> set[str]:
        """Return why records are refused, as health has it."""
        return {problem.reason.name for problem in self.backend.health.found}

    def entries(self) -> Mapping[str, FilerEntry]:
        """Return what the partition's directory has now."""
        (path,) = (path for path in self.store.directories if path.endswith("/0000-0031"))
        return dict(self.store.directories[path])

    def go_back(self, entries: Mapping[str, FilerEntry]) -> None:
        """Have the filer hold older states of entries, as it takes them from another filer."""
        (path,) = (path for path in self.store.directories if path.endswith("/0000-0031"))
        self.store.directories[path].update(entries)

    async def stopped(self) -> list[bytes | None]:
        """End in order, as long as that takes, and return what another gateway reads."""
        closing = asyncio.ensure_future(self.backend.aclose())
        while not closing.done():
            await self.wait()
        await closing
        return await self._read_again()

    async def restarted(self) -> list[bytes | None]:
        """End as a killed gateway does, and return what another one reads."""
        await self.backend.abandon()
        return await self._read_again()

    async def _read_again(self) -> list[bytes | None]:
        again = Served(self.store)
        await again.backend.open()
        async with aclosing(again.backend):
            await again.backend.open_partition(KEY, TOPIC, SETTINGS)
            return await again.values()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Open one, with a record in its partition."""
    made = Served()
    await made.backend.open()
    log = await made.backend.create_partition(KEY, TOPIC, SETTINGS)
    await log.append([make_batch([b"a"])])
    yield made
    # What a failed test has left unsettled is waited for until its time is over.
    closing = asyncio.ensure_future(made.backend.aclose())
    while not closing.done():
        await made.wait()
    await closing


async def refusal(log: PartitionLog, value: bytes = b"x") -> StorageError:
    """Return what an append is refused with, at once."""
    append = log.append([make_batch([value])])
    await turns(30)
    assert isinstance(append.error, StorageError)
    return append.error


# --- a second filer ---


async def test_a_second_filer_stops_writes_until_it_is_gone(served: Served) -> None:
    """Within a second; with the error that clients try again after; reads go on."""
    served.filer.addresses.append(OTHER)
    await served.wait(0.75)
    error = await refusal(served.log)
    assert ErrorCode.KAFKA_STORAGE_ERROR is error.code
    assert "2 filers (memory:8888, other:8888)" in str(error)
    assert {FILERS.name} == served.reasons()
    assert not served.backend.health.writable
    with pytest.raises(StorageError, match="2 filers"):
        await served.backend.state.apply([Change("kind", "key", b"value")])
    assert [b"a"] == await served.values()
    await served.leave()
    assert set() == served.reasons()
    await served.log.append([make_batch([b"b"])])
    await served.backend.state.apply([Change("kind", "key", b"value")])
    assert [b"a", b"b"] == await served.values()


async def test_nothing_is_changed_beside_a_second_filer(served: Served) -> None:
    """Nobody sends a change, whatever was asked for: an append, a roll, a topic, a deletion."""
    for value in (b"b", b"c"):
        await served.log.append([make_batch([value])])
    served.filer.addresses.append(OTHER)
    await served.wait(0.75)
    before = served.filer.count(*CHANGES, CallKind.UPLOAD)
    await refusal(served.log)
    other = KEY._replace(partition=1)
    for change in (
        served.log.drop_before(1),
        served.backend.state.apply([Change("kind", "key", b"value")]),
        served.backend.create_partition(other, TOPIC, SETTINGS),
    ):
        with pytest.raises(StorageError, match="2 filers"):
            await change
    assert before == served.filer.count(*CHANGES, CallKind.UPLOAD)
    await served.leave()
    await served.backend.create_partition(other, TOPIC, SETTINGS)


async def test_a_removal_that_is_going_on_ends_when_a_filer_joins(served: Served) -> None:
    """The files are named as unwanted: they go with the next ones."""
    log = served.log
    assert isinstance(log, SeaweedMqPartitionLog)
    for value in (b"b", b"c"):
        await log.roll()
        await log.append([make_batch([value])])
    served.filer.hold_next(CallKind.DELETE)
    await log.drop_before(2)
    await turns(30)
    (request,) = served.filer.held
    served.filer.addresses.append(OTHER)
    await served.wait()
    before = served.filer.count(CallKind.DELETE)
    request.answer()
    await served.wait()
    assert before == served.filer.count(CallKind.DELETE)
    await served.leave()
    await log.append([make_batch([b"d"])])
    await log.roll()
    await log.append([make_batch([b"e"])])
    await log.drop_before(4)
    await served.wait()
    assert before + 2 == served.filer.count(CallKind.DELETE)


async def test_a_file_that_is_named_no_more_is_named_again(served: Served) -> None:
    """The filer has taken an older leader entry, which does not know the newest file."""
    older = served.entries()
    log = served.log
    assert isinstance(log, SeaweedMqPartitionLog)
    await log.roll()
    await log.append([make_batch([b"b"])])
    served.filer.addresses.append(OTHER)
    await served.wait()
    served.go_back({LEADER: older[LEADER]})
    await served.leave()
    assert [b"a", b"b"] == await served.restarted()


async def test_what_waits_when_a_filer_joins_is_refused_and_not_sent_later(served: Served) -> None:
    """Its chunk is uploaded, and no update was sent: the client is told at once."""
    served.filer.hold_next(CallKind.UPLOAD)
    append = served.log.append([make_batch([b"b"])])
    await turns()
    served.filer.addresses.append(OTHER)
    await served.wait()
    assert not append.is_done
    before = served.filer.count(*CHANGES)
    served.filer.held.pop().answer()
    await served.wait(0.25)
    assert isinstance(append.error, StorageError)
    assert "2 filers" in str(append.error)
    await served.leave()
    assert before == served.filer.count(*CHANGES)
    await served.log.append([make_batch([b"c"])])
    assert [b"a", b"c"] == await served.values()


async def test_an_upload_that_fails_all_the_while_is_refused_once_nothing_may_be_written(
    served: Served,
) -> None:
    """As where a rule lets nothing be stored: nobody waits half a minute for that."""
    served.store.is_full = True
    append = served.log.append([make_batch([b"b"])])
    await turns(60)
    assert not append.is_done
    served.filer.path_rules = (PathRule("/", is_read_only=True),)
    await served.wait(8)
    assert isinstance(append.error, StorageError)
    served.store.is_full = False


async def test_a_chunk_that_is_too_large_for_all_is_refused_at_once(served: Served) -> None:
    """It would be half a minute later; what comes after it is taken."""
    served.filer.fail_next(CallKind.UPLOAD, ChunkTooLargeError("over the limited 1048576 bytes"))
    assert "over the limited" in str(await refusal(served.log))
    await served.log.append([make_batch([b"b"])])
    assert [b"a", b"b"] == await served.values()


async def test_a_filer_that_comes_and_goes_stops_writes_all_the_while(served: Served) -> None:
    """They go on once there has been no other for some seconds."""
    for _ in range(4):
        served.filer.addresses.append(OTHER)
        await served.wait()
        served.filer.addresses.remove(OTHER)
        await served.wait(CALM_S - 1)
        assert "2 filers" in str(await refusal(served.log))
    await served.wait(2)
    await served.log.append([make_batch([b"b"])])


@pytest.mark.parametrize("is_made", [True, False])
async def test_what_is_on_its_way_when_a_filer_joins_is_settled(
    served: Served, *, is_made: bool
) -> None:
    """Neither refused nor acknowledged before it is known; sent again only when one is left."""
    older = served.entries()
    served.filer.hold_next(CallKind.UPDATE)
    append = served.log.append([make_batch([b"b"])])
    await turns(30)
    (request,) = served.filer.held
    served.filer.addresses.append(OTHER)
    await served.wait()
    if is_made:
        request.deliver()
    newer = served.entries()
    # What this filer shows is what the other one has had.
    served.go_back(older)
    request.lose()
    await served.wait(20)
    updates = served.filer.count(CallKind.UPDATE)
    was_done = append.is_done
    assert not was_done
    served.go_back(newer)
    await served.leave()
    assert append.is_done
    assert append.error is None
    assert updates + (not is_made) == served.filer.count(CallKind.UPDATE)
    assert [b"a", b"b"] == await served.restarted()


async def test_what_a_filer_has_lost_is_put_back(served: Served) -> None:
    """It has taken older states from the other one: acknowledged records are there all the same."""
    older = served.entries()
    await served.log.append([make_batch([b"b"])])
    await served.log.append([make_batch([b"c"])])
    served.filer.addresses.append(OTHER)
    await served.wait()
    served.go_back(older)
    await served.leave()
    assert set() == served.reasons()
    await served.log.append([make_batch([b"d"])])
    assert [b"a", b"b", b"c", b"d"] == await served.restarted()


async def test_sealed_files_are_put_back_as_well(served: Served) -> None:
    """Under load several files are filled within the second in which a filer is seen to join."""
    log = served.log
    assert isinstance(log, SeaweedMqPartitionLog)
    states = []
    for value in (b"b", b"c", b"d"):
        states.append(served.entries())
        await log.append([make_batch([value])])
        await log.roll()
    await log.append([make_batch([b"e"])])
    served.filer.addresses.append(OTHER)
    await served.wait()
    for state in reversed(states):
        served.go_back(state)
    await served.leave()
    assert set() == served.reasons()
    assert [b"a", b"b", b"c", b"d", b"e"] == await served.restarted()


async def test_nothing_is_forgotten_that_may_have_to_be_put_back(served: Served) -> None:
    """However long the other filer is there, and though another file is sealed meanwhile."""
    log = served.log
    assert isinstance(log, SeaweedMqPartitionLog)
    older = served.entries()
    await log.append([make_batch([b"b"])])
    await log.roll()
    await log.append([make_batch([b"c"])])
    served.filer.hold_next(CallKind.UPDATE)
    rolling = asyncio.ensure_future(log.roll())
    await turns(30)
    served.filer.addresses.append(OTHER)
    await served.wait(SEALED_S + 2)
    served.filer.held.pop().answer()
    with pytest.raises(StorageError, match="2 filers"):
        await rolling
    (name,) = (name for name in older if name != LEADER)
    served.go_back({name: older[name]})
    await served.leave()
    assert [b"a", b"b", b"c"] == await served.restarted()


async def test_a_sealed_file_of_the_state_is_put_back() -> None:
    """Its chain is one as those of partitions are."""
    store, clock = FilerStore(), ManualClock()
    filer = MemoryFiler(store, clock)
    await filer.open()
    options = StateOptions(file_bytes=200)
    directory = state_directory("kafka")
    state = ChainStateStore(filer, clock, directory, options)
    await state.open()
    older: dict[str, FilerEntry] = {}
    for number in range(4):
        # Two commits fill a file.
        await state.apply([Change("kind", str(number), bytes(100))])
        if number == 0:
            older = dict(store.directories[directory])
    filer.write_stop = "another filer"
    store.directories[directory].update(older)
    await state.restore()
    filer.write_stop = None
    await state.aclose()
    again = ChainStateStore(filer, clock, directory, options)
    await again.open()
    async with aclosing(again):
        assert {"0", "1", "2", "3"} == set(await again.load("kind"))


async def test_a_stop_beside_another_filer_puts_back_what_is_lost_until_then(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever starts next does not know what was there; what comes after the stop is told."""
    older = served.entries()
    await served.log.append([make_batch([b"b"])])
    served.filer.addresses.append(OTHER)
    await served.wait()
    served.go_back(older)
    served.filer.fail_next(CallKind.UPDATE, ConditionFailedError("the other was asked"))
    assert [b"a", b"b"] == await served.stopped()
    assert "kgw stops beside another filer" in caplog.text


async def test_a_stop_beside_another_filer_ends_where_nothing_can_be_put_back(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """When its time is over."""
    older = served.entries()
    await served.log.append([make_batch([b"b"])])
    served.filer.addresses.append(OTHER)
    await served.wait()
    served.go_back(older)
    served.filer.hold_all(CallKind.UPDATE)
    began_s = served.clock.monotonic_s()
    assert [b"a"] == await served.stopped()
    assert 30 > served.clock.monotonic_s() - began_s
    assert "was not put back before the stop" in caplog.text


async def test_a_file_that_is_dropped_meanwhile_is_not_brought_back(served: Served) -> None:
    """Retention has taken it: no chunk of it is there any more."""
    log = served.log
    assert isinstance(log, SeaweedMqPartitionLog)
    older = served.entries()
    await log.append([make_batch([b"b"])])
    await log.roll()
    await log.append([make_batch([b"c"])])
    served.filer.hold_next(CallKind.DELETE)
    await log.drop_before(2)
    served.filer.addresses.append(OTHER)
    await served.wait()
    (name,) = (name for name in older if name != LEADER)
    served.go_back({name: older[name]})
    await served.leave()
    assert older[name] == served.entries()[name]
    served.filer.held.pop().answer()


async def test_a_file_that_was_sealed_long_ago_is_not_kept(served: Served) -> None:
    """A gateway has thousands of partitions, and their lists of chunks are memory."""
    log = served.log
    assert isinstance(log, SeaweedMqPartitionLog)
    older = served.entries()
    await log.append([make_batch([b"b"])])
    await log.roll()
    await log.append([make_batch([b"c"])])
    await served.wait(SEALED_S + 6)
    served.filer.addresses.append(OTHER)
    await served.wait()
    (name,) = (name for name in older if name != LEADER)
    served.go_back({name: older[name]})
    await served.leave()
    assert older[name] == served.entries()[name]


async def test_an_idle_partition_is_put_right_as_well(served: Served) -> None:
    """And the state: nobody may write to either for hours, and a gateway may be killed before."""
    await served.backend.state.apply([Change("kind", "key", b"before")])
    directory = state_directory("kafka")
    older = dict(served.store.directories[directory])
    rows = served.entries()
    await served.backend.state.apply([Change("kind", "key", b"after", 1)])
    await served.log.append([make_batch([b"b"])])
    served.filer.addresses.append(OTHER)
    await served.wait()
    served.store.directories[directory].update(older)
    served.go_back(rows)
    await served.leave()
    await served.backend.abandon()
    again = Served(served.store)
    await again.backend.open()
    async with aclosing(again.backend):
        found = await again.backend.state.load("kind")
        assert b"after" == found["key"].value
        await again.backend.open_partition(KEY, TOPIC, SETTINGS)
        assert [b"a", b"b"] == await again.values()


async def test_an_append_that_meets_an_older_state_first_ends_nothing(served: Served) -> None:
    """The masters are asked before a partition is given up for good."""
    older = served.entries()
    await served.log.append([make_batch([b"b"])])
    served.go_back(older)
    served.filer.addresses.append(OTHER)
    append = served.log.append([make_batch([b"x"])])
    await turns(60)
    assert isinstance(append.error, StorageError)
    assert "other:8888" in str(append.error)
    await served.wait()
    await served.leave()
    await served.log.append([make_batch([b"c"])])
    assert [b"a", b"b", b"c"] == await served.restarted()


async def test_an_older_state_without_another_filer_ends_the_partition(served: Served) -> None:
    """As ever: nobody knows who has done that, or what else."""
    older = served.entries()
    await served.log.append([make_batch([b"b"])])
    served.go_back(older)
    append = served.log.append([make_batch([b"x"])])
    await turns(60)
    assert "not as this writer left it" in str(append.error)
    assert "not as this writer left it" in str(await refusal(served.log))


async def test_an_older_state_ends_nothing_while_the_masters_do_not_answer(
    served: Served,
) -> None:
    """Nobody knows whether there is another filer: they are asked again, then the look counts."""
    older = served.entries()
    await served.log.append([make_batch([b"b"])])
    newer = served.entries()
    served.go_back(older)
    served.filer.is_mute = True
    append = served.log.append([make_batch([b"c"])])
    await served.wait(10)
    assert not append.is_done
    # Another filer had given it back what it was: now it knows.
    served.go_back(newer)
    await served.wait(3)
    await append
    served.go_back(older)
    append = served.log.append([make_batch([b"d"])])
    await served.wait(40)
    assert "which filers there are is not known" in str(append.error)
    assert "not as this writer left it" not in str(append.error)
    served.go_back(older)
    append = served.log.append([make_batch([b"d"])])
    await served.wait(5)
    served.filer.is_mute = False
    await served.wait(3)
    assert "not as this writer left it" in str(append.error)


async def test_what_another_gateway_has_written_is_not_overwritten(served: Served) -> None:
    """It took over while there were two filers: its records are not ours to take back."""
    await served.log.append([make_batch([b"b"])])
    served.filer.addresses.append(OTHER)
    await served.wait()
    another = Served(served.store)
    await another.backend.open()
    async with aclosing(another.backend):
        await another.backend.open_partition(KEY, TOPIC, SETTINGS)
        await another.log.append([make_batch([b"theirs"])])
        theirs = another.entries()
        await served.leave()
        assert theirs == another.entries()
        assert [b"a", b"b", b"theirs"] == await another.values()


async def test_an_entry_that_names_what_nobody_knows_is_left(served: Served) -> None:
    """Older by its marks, and with a chunk that this gateway has not put there."""
    older = served.entries()
    (name,) = (name for name in older if name != LEADER)
    await served.log.append([make_batch([b"b"])])
    stranger = served.store.upload(b"stranger", 0)
    planted = older[name]._replace(chunks=(stranger,))
    served.filer.addresses.append(OTHER)
    await served.wait()
    served.go_back({name: planted})
    await served.leave()
    assert planted == served.entries()[name]
    # The next append says so.
    append = served.log.append([make_batch([b"x"])])
    await turns(60)
    assert "not as this writer left it" in str(append.error)


async def test_writes_go_on_once_all_is_put_back(served: Served) -> None:
    """A filer that does not answer is asked again; one that has changed meanwhile is looked at."""
    older = served.entries()
    await served.log.append([make_batch([b"b"])])
    served.filer.addresses.append(OTHER)
    await served.wait()
    served.go_back(older)
    served.filer.addresses.remove(OTHER)
    served.filer.fail_next(CallKind.UPDATE, FilerError("away"), times=3)
    await served.wait(CALM_S + 1)
    assert "2 filers" in str(await refusal(served.log))
    served.filer.fail_next(CallKind.UPDATE, ConditionFailedError("changed"))
    served.filer.lose_answer(CallKind.UPDATE)
    await served.wait(3)
    await served.log.append([make_batch([b"c"])])
    assert [b"a", b"b", b"c"] == await served.restarted()


async def test_a_filer_that_comes_while_something_is_put_back_stops_writes_still(
    served: Served,
) -> None:
    """That may take long: the masters are asked again before writes go on."""
    await _hold_what_is_put_back(served)
    served.filer.addresses.append(OTHER)
    served.filer.held.pop().answer()
    await turns(60)
    assert "2 filers" in str(await refusal(served.log))
    # Eight seconds from then on.
    served.filer.addresses.remove(OTHER)
    await served.wait(CALM_S - 2)
    assert "2 filers" in str(await refusal(served.log))
    await served.wait(4)
    await served.log.append([make_batch([b"c"])])
    assert [b"a", b"b", b"c"] == await served.values()


async def test_a_rule_that_comes_while_something_is_put_back_stops_writes_still(
    served: Served,
) -> None:
    """As a filer does."""
    await _hold_what_is_put_back(served)
    served.filer.path_rules = (PathRule("/", is_worm=True),)
    served.filer.held.pop().answer()
    await turns(60)
    assert "worm" in str(await refusal(served.log))
    assert {RULES.name} == served.reasons()
    served.filer.path_rules = ()
    await served.wait(6)
    await served.log.append([make_batch([b"c"])])


async def test_masters_that_do_not_answer_once_all_is_put_back_are_asked_again(
    served: Served,
) -> None:
    """Nobody knows whether the filer is the only one."""
    await _hold_what_is_put_back(served)
    served.filer.is_mute = True
    served.filer.held.pop().answer()
    await served.wait(5)
    assert "2 filers" in str(await refusal(served.log))
    assert {FILERS.name} == served.reasons()
    served.filer.is_mute = False
    await served.wait(1.5)
    await served.log.append([make_batch([b"c"])])


async def _hold_what_is_put_back(served: Served) -> None:
    """Have another filer come, take something back and go, and hold what puts that right."""
    older = served.entries()
    await served.log.append([make_batch([b"b"])])
    served.filer.addresses.append(OTHER)
    await served.wait()
    served.go_back(older)
    served.filer.addresses.remove(OTHER)
    served.filer.hold_next(CallKind.UPDATE)
    await served.wait(CALM_S + 2)
    assert 1 == len(served.filer.held)


async def test_masters_that_are_away_stop_nothing_and_end_nothing(served: Served) -> None:
    """No filer can join without one; what was known last holds."""
    await _masters_away(served)
    await served.log.append([make_batch([b"b"])])
    served.filer.is_mute = False
    served.filer.addresses.append(OTHER)
    await served.wait()
    served.filer.addresses.remove(OTHER)
    await _masters_away(served)
    assert "2 filers" in str(await refusal(served.log))


async def test_masters_that_are_away_for_long_are_a_problem_and_the_rest_is_watched(
    served: Served,
) -> None:
    """Nothing is stopped for that; a rule is."""
    served.filer.is_mute = True
    await served.wait(9)
    assert set() == served.reasons()
    await served.wait(3)
    (problem,) = served.backend.health.found
    assert problem.reason is UNWATCHED
    assert "which filers there are" in problem.text
    assert "the masters cannot be reached" in problem.text
    assert served.backend.health.writable
    served.filer.path_rules = (PathRule("/", is_worm=True),)
    await served.wait(5.5)
    assert "worm" in str(await refusal(served.log))
    assert 0 < served.filer.refreshed
    served.filer.path_rules = ()
    served.filer.is_mute = False
    await served.wait(2)
    assert set() == served.reasons()


@pytest.mark.parametrize("method", ["rules", "refresh"])
async def test_a_filer_that_does_not_say_how_it_is_set_up_is_a_problem(
    served: Served, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """What was known last holds, and other filers are seen."""

    async def fail() -> NoReturn:
        raise FilerError("no such file")

    with monkeypatch.context() as patch:
        patch.setattr(served.filer, method, fail)
        await served.wait(22)
        (problem,) = served.backend.health.found
        assert problem.reason is UNWATCHED
        assert "no such file" in problem.text
        served.filer.addresses.append(OTHER)
        await served.wait()
        assert "2 filers" in str(await refusal(served.log))
    await served.wait(6)
    assert {FILERS.name} == served.reasons()
    await served.leave()
    assert set() == served.reasons()


async def _masters_away(served: Served) -> None:
    served.filer.is_mute = True
    await served.wait(10)


async def test_a_stand_by_does_not_take_over_beside_a_second_filer() -> None:
    """It was alone when it was started; its process ends and says why."""
    store, clock = FilerStore(), ManualClock()
    first, second = MemoryFiler(store, clock), MemoryFiler(store, clock)
    place = private_directory("kafka")

    def backend(filer: MemoryFiler) -> SeaweedMqBackend:
        state = ChainStateStore(filer, clock, state_directory("kafka"))
        lease = FilerLease(filer, clock, place, 10_000)
        return SeaweedMqBackend(filer, "kafka", state, None, clock, lease)

    leading, standing_by = backend(first), backend(second)
    await leading.open()
    opening = asyncio.ensure_future(standing_by.open())
    await turns(60)
    assert not opening.done()
    second.addresses.append(OTHER)
    await leading.aclose()
    for _ in range(20):
        await turns(20)
        clock.advance(1)
    with pytest.raises(DataDirectoryError, match="2 filers"):
        await opening


# --- rules of the filer ---

FORBIDDEN = {
    "ttl": (PathRule("/topics/", ttl="7d"), "expire .*ttl 7d"),
    "ttl of a topic": (PathRule("/topics/kafka/t", ttl="3h"), "/topics/kafka/t expire"),
    "ttl of the state": (PathRule("/topics/.kgw/", ttl="1m"), r"/topics/\.kgw/kafka/ expire"),
    "read-only": (PathRule("/", is_read_only=True), "read-only"),
    "worm": (PathRule("/topics/", is_worm=True), "forbids to change or remove"),
    "a remote mount": (PathRule("/topics/kafka/", is_remote=True), "mounted at /topics/kafka "),
    "a remote mount below": (PathRule("/topics/kafka/t/", is_remote=True), "/topics/kafka/t/ "),
    "short names": (PathRule("/topics/kafka/", longest_name=40), "names of 40 characters"),
}


@pytest.mark.parametrize(("rule", "says"), FORBIDDEN.values(), ids=FORBIDDEN)
async def test_a_rule_that_would_lose_records_is_refused_at_the_start(
    rule: PathRule, says: str
) -> None:
    """Before anything is written."""
    served = Served()
    served.filer.path_rules = (rule,)
    with pytest.raises(DataDirectoryError, match=says):
        await served.backend.open()
    assert 0 == served.filer.count(*CHANGES)


@pytest.mark.parametrize(("rule", "says"), FORBIDDEN.values(), ids=FORBIDDEN)
async def test_a_rule_that_comes_later_stops_writes_until_it_is_gone(
    served: Served, rule: PathRule, says: str
) -> None:
    """Within seconds, and so do they go on."""
    served.filer.path_rules = (rule,)
    await served.wait(6)
    assert {RULES.name} | ({EXPIRING.name} if rule.ttl else set()) == served.reasons()
    error = await refusal(served.log)
    with pytest.raises(StorageError, match=says):
        raise error
    served.filer.path_rules = ()
    await served.wait(6)
    assert served.reasons() == ({EXPIRING.name} if rule.ttl else set())
    await served.log.append([make_batch([b"b"])])


async def test_a_ttl_is_seen_at_the_next_look_and_what_it_was_given_is_told(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """SeaweedFS deletes that, though the rule is taken away: it is told as long as kgw runs."""
    await served.wait(10)
    served.filer.path_rules = (PathRule("/topics/kafka/", ttl="1d"),)
    await served.wait(0.5)
    assert "ttl 1d" in str(await refusal(served.log))
    served.filer.path_rules = ()
    await served.wait(60)
    await served.log.append([make_batch([b"b"])])
    (problem,) = served.backend.health.found
    assert problem.reason is EXPIRING
    assert served.backend.health.writable
    # The clock begins at 22:13:20.
    assert problem.text.startswith(
        "what was written from 2023-11-14 22:13:30 to 2023-11-14 22:13:31 UTC will expire (ttl 1d)"
    )
    assert 1 == caplog.text.count("acknowledged records will expire")


async def test_each_time_a_ttl_was_there_is_told_once(served: Served) -> None:
    """However often it is looked at, and whatever else the rules say; the last twenty."""
    for number in range(22):
        served.filer.path_rules = (PathRule("/topics/kafka/", ttl=f"{number + 1}d"),)
        await served.wait(3)
        served.filer.path_rules = (PathRule("/topics/kafka/", is_worm=True),)
        await served.wait(1)
    served.filer.path_rules = ()
    await served.wait(1)
    found = [problem.text for problem in served.backend.health.found]
    assert [f"{number}d" for number in range(3, 23)] == [
        text.partition("(ttl ")[2].partition(")")[0] for text in found
    ]


async def test_places_that_were_asked_for_under_a_rule_are_not_used(served: Served) -> None:
    """They may be in volumes that expire: forgotten at the stop, and before writes go on."""
    served.filer.path_rules = (PathRule("/topics/kafka/", ttl="1d"),)
    await served.wait(2)
    assert 1 == served.filer.places_forgotten
    served.filer.path_rules = ()
    await served.wait(2)
    assert 2 == served.filer.places_forgotten


async def test_rules_of_others_are_theirs(served: Served) -> None:
    """Of other paths, and of namesakes."""
    served.filer.path_rules = (
        PathRule("/buckets/", ttl="7d", is_read_only=True),
        PathRule("/topics/kafka2/", ttl="7d"),
        PathRule("/topics/.system/", ttl="7d"),
    )
    await served.wait(6)
    await served.log.append([make_batch([b"b"])])
