"""The runtime by itself, with a machine that has rows, waiters, a deadline and work outside."""

from __future__ import annotations

import asyncio
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kgw.coordinator.entry import Entry, Reply
from kgw.coordinator.machine import (
    NEVER_S,
    Abandoned,
    AllStored,
    Answer,
    Asked,
    Become,
    Call,
    Compute,
    DecodedRow,
    Kind,
    Persist,
    Returned,
    TimePassed,
)
from kgw.coordinator.runtime import LATE_S, Runtime
from kgw.errors import ErrorCode, KafkaError
from kgw.state.base import DamagedRowsError, StateTakenOverError
from kgw.testing.clock import ManualClock
from tests.groups.life import FlakyStore
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.state.base import Change, Row

ROWS, LOUD_ROWS = "plain-rows", "loud-rows"
KEY = "key"
WAIT_S = 10.0


class State(Enum):
    """Of a list of words."""

    PLAIN = "Plain"
    LOUD = "Loud"


class Words(NamedTuple):
    """The content of a row."""

    words: tuple[str, ...]

    def encode(self, _running_ms: int) -> bytes:
        return " ".join(self.words).encode()


class Do(NamedTuple):
    """A request. The machine finds by name what it does, and it is answered with the words."""

    what: str
    word: Any = ""

    def refused(self, error: ErrorCode) -> str:
        return error.name


class Fetch(NamedTuple):
    """The request of a call."""

    word: str


class Note(NamedTuple):
    """An effect of the kind's own."""

    text: str


class WordList:
    """A machine: it keeps words, in one row."""

    state = State.PLAIN
    row_kind = ROWS
    other = "loud"

    def __init__(self, entry: Entry) -> None:
        self.key = (self.row_kind, entry.key)
        row = entry.submitted.get(self.key)
        self.words = row.words if isinstance(row, Words) else ()
        self.waiting: list[Asked] = []
        self.events: list[str] = []
        self.next_deadline_s = NEVER_S

    def handle(self, event: Any, now_s: float) -> list[Any]:
        self.events.append(type(event).__name__)
        if isinstance(event, Asked):
            request: Any = event.request
            effects: list[Any] = getattr(self, request.what)(event, now_s)
            return effects
        if isinstance(event, Returned):
            asked = self.waiting.pop(0)
            if event.error is not ErrorCode.NONE:
                return [Answer(asked.waiter, event.error.name)]
            return self.add(asked._replace(request=Do("add", event.result)), now_s)
        if isinstance(event, TimePassed):
            self.next_deadline_s = NEVER_S
        if isinstance(event, TimePassed | Abandoned):
            waiting, self.waiting = self.waiting, []
            result = "late" if isinstance(event, TimePassed) else event.error.name
            return [Answer(asked.waiter, result) for asked in waiting]
        assert isinstance(event, AllStored)
        return []

    @property
    def is_vacant(self) -> bool:
        return self.next_deadline_s == NEVER_S

    def row(self) -> Persist:
        return Persist({self.key: Words(self.words)})

    def add(self, asked: Any, _: float) -> list[Any]:
        self.words += (asked.request.word,)
        return [self.row(), Note(asked.request.word), Answer(asked.waiter, " ".join(self.words))]

    def join(self, asked: Any, _: float) -> list[Any]:
        persist, _note, answer = self.add(asked, 0.0)
        return [persist._replace(may_join=True), answer]

    def add_later(self, asked: Any, _: float) -> list[Any]:
        persist, _note, answer = self.add(asked, 0.0)
        return [persist._replace(is_urgent=False), answer]

    def read(self, asked: Any, _: float) -> list[Any]:
        return [Answer(asked.waiter, " ".join(self.words))]

    def peek(self, asked: Any, _: float) -> list[Any]:
        return [Answer(asked.waiter, " ".join(self.words), at_once=True)]

    def remove(self, asked: Any, _: float) -> list[Any]:
        self.words = ()
        self.next_deadline_s = NEVER_S
        return [Persist({self.key: None}), Answer(asked.waiter, "")]

    def wait(self, asked: Any, now_s: float) -> list[Any]:
        self.waiting.append(asked)
        self.next_deadline_s = now_s + WAIT_S
        return []

    def call(self, asked: Any, _: float) -> list[Any]:
        self.waiting.append(asked)
        return [Call(asked.request.word)]

    def turn_over(self, asked: Any, _: float) -> list[Any]:
        """Go on as the other kind, which answers."""
        row = Words(tuple(one.swapcase() for one in self.words))
        there = (LOUD_ROWS if self.row_kind == ROWS else ROWS, self.key[1])
        persist = Persist({self.key: None, there: row})
        return [persist, Become(self.other, asked._replace(request=Do("read")))]

    def fail(self, _asked: Any, _: float) -> list[Any]:
        self.words = ("nonsense",)
        raise ZeroDivisionError


class LoudList(WordList):
    """The other kind, which keeps its words in rows of its own."""

    state = State.LOUD
    row_kind = LOUD_ROWS
    other = "plain"


class Lists(Runtime[Entry]):
    """The runtime, as it is, with effects that are noted."""

    entry_type = Entry

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.notes: list[str] = []
        self.unreadable_keys: list[str] = []

    def carry_out(self, entry: Entry, effect: Any) -> None:
        if effect.text == "broken":
            super().carry_out(entry, effect)
        self.notes.append(effect.text)

    def unreadable(self, row_kind: str, key: str, error: ValueError | None) -> None:
        super().unreadable(row_kind, key, error)
        self.unreadable_keys.append(key)


def decode(_kind: str, key: str, value: bytes) -> DecodedRow:
    """Return a row of either kind."""
    return DecodedRow(key, Words(tuple(value.decode("ascii").split())))


KINDS = {"plain": Kind((ROWS,), decode, WordList), "loud": Kind((LOUD_ROWS,), decode, LoudList)}


class Driver:
    """One runtime over a store that fails, and a clock by hand."""

    def __init__(self) -> None:
        self.store = FlakyStore()
        self.clock = ManualClock()
        self.bugs: list[BaseException] = []
        self.gate: asyncio.Future[None] | None = None
        self.fetched = 0

    def make(self) -> Lists:
        self.states: dict[str, int] = {}
        self.lists = Lists(
            *(self.store, self.clock, KINDS, self.states, self.bugs.append, {Fetch: self.fetch})
        )
        return self.lists

    async def start(self) -> Driver:
        """Begin, or begin again over the same store."""
        await self.make().load()
        self.lists.open()
        return self

    async def fetch(self, request: Fetch) -> str:
        self.fetched += 1
        if self.gate is not None:
            await self.gate
        if request.word == "refused":
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
        if request.word == "broken":
            raise ZeroDivisionError
        return request.word

    def ask(self, what: str, word: Any = "", key: str = KEY) -> Reply[str]:
        request = Do(what, word)
        reply = Reply(request.refused)
        entry = self.lists.entries.get(key) or self.lists.create(key, "plain")
        self.lists.step(entry, Asked(request, reply))
        return reply

    async def answer(self, what: str, word: Any = "", key: str = KEY) -> str:
        reply = self.ask(what, word, key)
        await turns()
        assert reply.is_done, "no answer"
        return reply.result

    @property
    def machine(self) -> WordList:
        machine: WordList = self.lists.entries[KEY].machine
        return machine


@pytest.fixture
async def driver() -> Driver:
    """Return one with nothing in its store."""
    return await Driver().start()


# --- changes and answers -------------------------------------------------------------------------


async def test_no_answer_comes_before_its_change_is_durable(driver: Driver) -> None:
    """Nor does a later one that shows the change, or an effect of the kind's own."""
    driver.store.hold()
    added, read = driver.ask("add", "one"), driver.ask("read")
    await turns()
    assert (False, False, []) == (added.is_done, read.is_done, driver.lists.notes)
    assert "one" == driver.ask("peek").result
    driver.store.release()
    await turns()
    assert ("one", "one", ["one"]) == (added.result, read.result, driver.lists.notes)


async def test_effects_are_carried_out_in_their_order(driver: Driver) -> None:
    """Answers of all entries as they were asked, and notes between them."""
    heard: list[str] = driver.lists.notes

    def hear(key: str, reply: Reply[str]) -> None:
        heard.append(key + reply.result)

    for word in ("a", "b", "c"):
        for key in ("x", "y"):
            reply = driver.ask("add", word, key)
            reply.when_done(partial(hear, key))
    await turns()
    assert ["a", "xa", "a", "ya", "b", "xa b", "b", "ya b"] == heard[:8]
    assert ["c", "xa b c", "c", "ya b c"] == heard[8:]


async def test_an_answer_waits_for_the_last_of_several_writes(driver: Driver) -> None:
    """The one that is stored first does not let it pass."""
    driver.store.hold()
    driver.ask("add", "a")
    await turns()
    driver.ask("add", "b")
    driver.store.release()
    driver.store.hold()
    await turns()
    read = driver.ask("read")
    assert not read.is_done
    driver.store.release()
    await turns()
    assert "a b" == read.result
    assert 1 == driver.machine.events.count("AllStored")


async def test_writes_that_wait_share_a_flush_in_which_the_last_counts(driver: Driver) -> None:
    """Each row is stored once, and a restart finds all words."""
    driver.store.hold()
    driver.ask("add", "first")
    await turns()
    for word in ("a", "b", "c"):
        driver.ask("add", word)
    driver.ask("add", "other", "z")
    driver.store.release()
    await turns()
    stored = [(one.key, one.value) for one in driver.store.written]
    assert [(KEY, b"first"), (KEY, b"first a b c"), ("z", b"other")] == stored
    await driver.start()
    assert "first a b c" == await driver.answer("read")


async def test_each_change_of_a_busy_entry_is_stored(driver: Driver) -> None:
    """None is lost while another flush is under way."""
    replies = []
    for number in range(50):
        replies.append(driver.ask("add", str(number)))
        if number % 7 == 0:
            await asyncio.sleep(0)
    await turns()
    words = [str(number) for number in range(50)]
    assert [" ".join(words[: number + 1]) for number in range(50)] == [
        one.result for one in replies
    ]
    await driver.start()
    assert " ".join(words) == await driver.answer("read")


async def test_a_write_that_may_be_joined_takes_the_next_one_in(driver: Driver) -> None:
    """One write for many, until a flush has it; another one is not joined."""
    replies = [driver.ask("join", word) for word in ("a", "b")]
    assert 1 == driver.lists.entries[KEY].unwritten
    driver.store.hold()
    await turns()
    replies.append(driver.ask("join", "c"))
    replies.append(driver.ask("add", "d"))
    replies.append(driver.ask("join", "e"))
    assert 4 == driver.lists.entries[KEY].unwritten
    driver.store.release()
    await turns()
    assert ["a", "a b", "a b c", "a b c d", "a b c d e"] == [one.result for one in replies]
    assert [b"a b", b"a b c d e"] == [one.value for one in driver.store.written]


async def test_nobody_waits_for_a_write_that_is_not_urgent(driver: Driver) -> None:
    """It is stored with the next one, or soon."""
    assert "a" == driver.ask("add_later", "a").result
    await turns()
    assert [] == driver.store.written
    driver.clock.advance(LATE_S)
    await turns()
    assert [b"a"] == [one.value for one in driver.store.written]
    driver.ask("add_later", "b")
    assert "a b c" == await driver.answer("add", "c")
    assert [b"a", b"a b c"] == [one.value for one in driver.store.written]
    driver.ask("add_later", "d")
    await driver.lists.aclose()
    assert b"a b c d" == driver.store.written[-1].value


async def test_an_entry_of_which_nothing_is_left_goes(driver: Driver) -> None:
    """With its timer, and out of the gauge."""
    assert "" == await driver.answer("read")
    assert ({}, {"Plain": 0}) == (driver.lists.entries, driver.states)
    await driver.answer("add", "a")
    assert {"Plain": 1} == driver.states
    driver.ask("wait")
    assert 1 == driver.clock.pending
    await driver.answer("remove")
    assert ({}, {"Plain": 0}, 0) == (driver.lists.entries, driver.states, driver.clock.pending)


async def test_a_bug_in_an_effect_keeps_no_answer_back(driver: Driver) -> None:
    """It is reported."""
    assert "broken" == await driver.answer("add", "broken")
    assert [TypeError] == [type(bug) for bug in driver.bugs]


# --- failures ------------------------------------------------------------------------------------


async def test_changes_that_fail_did_not_happen(driver: Driver) -> None:
    """Nor did those behind them; another entry's that wait go on."""
    await driver.answer("add", "a")
    driver.store.outcome = "refused"
    driver.store.hold()
    failed = [driver.ask("add", "b")]
    await turns()
    failed += [driver.ask("add", "c"), driver.ask("read")]
    other = driver.ask("add", "x", "other")
    driver.store.release()
    await turns()
    assert 3 * ["COORDINATOR_NOT_AVAILABLE"] == [one.result for one in failed]
    assert "x" == other.result
    assert ["a", "x"] == driver.lists.notes
    assert "a d" == await driver.answer("add", "d")
    assert [] == driver.bugs


async def test_a_waiter_is_answered_when_its_machine_is_restored(driver: Driver) -> None:
    """Its machine is gone, and so is the deadline."""
    await driver.answer("add", "a")
    waiting = driver.ask("wait")
    driver.store.outcome = "refused"
    await driver.answer("add", "b")
    assert "COORDINATOR_NOT_AVAILABLE" == waiting.result


async def test_a_state_that_was_taken_over(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has it: clients look for that one."""

    async def taken_over(_changes: Sequence[Change]) -> None:
        raise StateTakenOverError("another process writes the state now")

    monkeypatch.setattr(driver.store, "apply", taken_over)
    assert "NOT_COORDINATOR" == await driver.answer("add", "a")


async def test_after_a_bug_the_machine_is_restored(driver: Driver) -> None:
    """From the changes that are queued, too."""
    driver.store.hold()
    added = driver.ask("add", "a")
    with pytest.raises(ZeroDivisionError):
        driver.ask("fail")
    assert "a" == driver.ask("peek").result
    driver.store.release()
    await turns()
    assert "a" == added.result


async def test_rows_that_cannot_be_encoded(driver: Driver) -> None:
    """The bug is reported, and the batch is refused."""
    assert "COORDINATOR_NOT_AVAILABLE" == await driver.answer("add", "\ud800")
    assert [UnicodeEncodeError] == [type(bug) for bug in driver.bugs]
    assert "a" == await driver.answer("add", "a")


# --- timers --------------------------------------------------------------------------------------


async def test_one_timer_an_entry(driver: Driver) -> None:
    """It goes off at the machine's deadline, once."""
    await driver.answer("add", "a")
    waiting = [driver.ask("wait"), driver.ask("wait")]
    assert 1 == driver.clock.pending
    machine = driver.machine
    driver.clock.advance(WAIT_S)
    assert ["late", "late"] == [one.result for one in waiting]
    driver.clock.advance(WAIT_S)
    assert ["Asked", "Asked", "TimePassed"] == machine.events[2:]
    later = driver.ask("wait")
    driver.clock.advance(WAIT_S)
    assert "late" == later.result


async def test_no_timer_goes_off_after_a_release(driver: Driver) -> None:
    """Not even one that was about to, or one of a request that came later."""
    waiting = driver.ask("wait")
    machine = driver.machine
    driver.lists.answer_waiters()
    assert "NOT_COORDINATOR" == waiting.result
    assert "NOT_COORDINATOR" == driver.ask("wait").result
    assert 0 == driver.clock.pending
    before = list(machine.events)
    driver.clock.advance(2 * WAIT_S)
    await turns()
    assert before == machine.events


async def test_no_timer_of_an_entry_that_was_removed_goes_off(driver: Driver) -> None:
    """Nor does one that a new entry of its key has not asked for."""
    driver.ask("wait")
    entry, machine = driver.lists.entries[KEY], driver.machine
    driver.lists.remove(entry)
    driver.clock.advance(2 * WAIT_S)
    assert ["Asked"] == machine.events
    assert {"Plain": 0} == driver.states


# --- load and release ----------------------------------------------------------------------------


async def test_timers_of_loaded_entries_begin_when_all_are_loaded(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that has a deadline from its rows is told of it then."""
    await driver.answer("add", "a")
    begin = WordList.__init__

    def hasty(self: WordList, entry: Entry) -> None:
        begin(self, entry)
        self.next_deadline_s = driver.clock.monotonic_s()

    monkeypatch.setattr(WordList, "__init__", hasty)
    await driver.make().load()
    driver.clock.advance(1.0)
    assert [] == driver.machine.events
    driver.lists.open()
    driver.clock.advance(0.0)
    assert ["TimePassed"] == driver.machine.events


async def test_rows_that_cannot_be_read_are_left_out(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are loaded, but for those of other nodes."""
    for key in ("good", "bad", "theirs"):
        await driver.answer("add", "a", key)
    broken = [one._replace(value=b"\xff") for one in driver.store.written if one.key == "bad"]
    await driver.store.apply(broken)
    load = driver.store.load

    async def damaged(kind: str) -> dict[str, Row]:
        raise DamagedRowsError(kind, await load(kind), ["torn"])

    monkeypatch.setattr(driver.store, "load", damaged)
    await driver.make().load(lambda key: key != "theirs")
    assert ["good"] == list(driver.lists.entries)
    assert ["torn", "bad", "torn"] == driver.lists.unreadable_keys


async def test_a_release_answers_once_and_stores_what_was_begun(driver: Driver) -> None:
    """Who waits for the store is answered when it has it."""
    driver.store.hold()
    added = driver.ask("add", "a")
    await turns()
    driver.lists.answer_waiters()
    driver.lists.answer_waiters()
    assert not added.is_done
    driver.store.release()
    await driver.lists.aclose()
    assert "a" == added.result
    await driver.start()
    assert "a" == driver.ask("peek").result


async def test_sweeps(driver: Driver) -> None:
    """One after each interval, not beside another, and none after a release."""
    begun = 0

    def work() -> Any:
        nonlocal begun
        begun += 1
        yield
        yield

    driver.lists.sweep(60.0, work)
    assert 0 == begun
    driver.clock.advance(60.0)
    driver.clock.advance(60.0)
    assert 1 == begun
    await turns()
    driver.clock.advance(60.0)
    assert 2 == begun
    driver.lists.answer_waiters()
    await driver.lists.aclose()
    driver.clock.advance(60.0)
    assert 2 == begun


# --- calls ---------------------------------------------------------------------------------------


async def test_the_result_of_a_call_comes_back_as_an_event(driver: Driver) -> None:
    """Once; the entry stays until then, though nothing of it is stored."""
    driver.gate = asyncio.get_running_loop().create_future()
    reply = driver.ask("call", Fetch("word"))
    await turns()
    assert ([KEY], False) == (list(driver.lists.entries), reply.is_done)
    driver.gate.set_result(None)
    await turns()
    assert "word" == reply.result
    assert ["Asked", "Returned", "AllStored"] == driver.machine.events


@pytest.mark.parametrize(
    ("word", "error", "bugs"),
    [
        ("refused", "TOPIC_ALREADY_EXISTS", []),
        ("broken", "COORDINATOR_NOT_AVAILABLE", [ZeroDivisionError]),
    ],
)
async def test_a_call_that_fails(driver: Driver, word: str, error: str, bugs: list[type]) -> None:
    """The machine is told why."""
    assert error == await driver.answer("call", Fetch(word))
    assert bugs == [type(bug) for bug in driver.bugs]
    assert {} == driver.lists.entries


async def test_work_runs_outside_of_the_loop(driver: Driver) -> None:
    """In a thread of its own."""

    def join(*words: str) -> str:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return "-".join(words)

    reply = driver.ask("call", Compute(join, ("a", "b")))
    await driver.lists.aclose()
    assert "a-b" == reply.result


async def test_a_result_that_comes_after_a_release_changes_nothing(driver: Driver) -> None:
    """Its waiter was answered; a call after the release does not begin."""
    driver.gate = asyncio.get_running_loop().create_future()
    reply = driver.ask("call", Fetch("word"))
    await turns()
    machine = driver.machine
    driver.lists.answer_waiters()
    assert "NOT_COORDINATOR" == reply.result
    assert "NOT_COORDINATOR" == driver.ask("call", Fetch("more")).result
    driver.gate.set_result(None)
    await driver.lists.aclose()
    assert ["Asked", "Abandoned", "Asked", "Abandoned"] == machine.events
    assert (1, []) == (driver.fetched, driver.store.written)


async def test_a_result_for_a_machine_that_was_restored_is_dropped(driver: Driver) -> None:
    """The one after it has not called."""
    await driver.answer("add", "a")
    driver.gate = asyncio.get_running_loop().create_future()
    reply = driver.ask("call", Fetch("word"))
    driver.store.outcome = "refused"
    await driver.answer("add", "b")
    assert "COORDINATOR_NOT_AVAILABLE" == reply.result
    driver.gate.set_result(None)
    await turns()
    assert ("a", []) == (driver.ask("peek").result, driver.bugs)


# --- kinds ---------------------------------------------------------------------------------------


async def test_an_entry_changes_its_kind_and_back(driver: Driver) -> None:
    """Its new machine answers, from rows of its own; a restart finds that kind."""
    await driver.answer("add", "word")
    driver.store.hold()
    turned = driver.ask("turn_over")
    assert ("loud", {"Plain": 0, "Loud": 1}) == (driver.lists.entries[KEY].kind, driver.states)
    await turns()
    assert not turned.is_done
    driver.store.release()
    await turns()
    assert "WORD" == turned.result
    assert {} == await driver.store.load(ROWS)
    assert [KEY] == list(await driver.store.load(LOUD_ROWS))
    await driver.start()
    assert "loud" == driver.lists.entries[KEY].kind
    assert "word" == await driver.answer("turn_over")
    assert "word again" == await driver.answer("add", "again")


async def test_a_change_of_kind_that_fails(driver: Driver) -> None:
    """The entry is of the kind before, with its rows."""
    await driver.answer("add", "word")
    driver.store.outcome = "refused"
    assert "COORDINATOR_NOT_AVAILABLE" == await driver.answer("turn_over")
    assert ("plain", {"Plain": 1, "Loud": 0}) == (driver.lists.entries[KEY].kind, driver.states)
    assert "word" == driver.ask("peek").result
