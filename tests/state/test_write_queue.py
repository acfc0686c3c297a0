from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kgw.errors import StorageError
from kgw.state.write_queue import CommitQueue, WriteQueue
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Callable


class Disk:
    """A store that writes a batch when it is allowed to, and notes what it has written."""

    def __init__(self) -> None:
        self.begun: list[list[int]] = []
        self.written: list[int] = []
        self._free = asyncio.Event()
        self._free.set()

    def hold(self) -> None:
        """Let batches wait from now on."""
        self._free.clear()

    def go_on(self) -> None:
        """Let them be written."""
        self._free.set()

    async def write(self, numbers: list[int]) -> None:
        """Write a batch."""
        self.begun.append(numbers)
        await self._free.wait()
        self.written += numbers


class Entry(NamedTuple):
    """A number to be stored, and the future of the caller that submits it."""

    number: int
    done: asyncio.Future[None]


class Callers:
    """Callers of a queue over a disk; an entry is refused, or a commit fails, where a test says."""

    def __init__(self, at_once: int = 100) -> None:
        self.disk = Disk()
        self.queue: CommitQueue[Entry] = CommitQueue(
            self._commit, when_stored=self._stored, at_once=at_once
        )
        self.refused: dict[int, Exception] = {}
        self.failures: list[Exception] = []
        """What the next commits raise."""
        self.fits = 100
        self.between: list[list[int]] = []
        self.answers: list[tuple[int, str]] = []
        """What callers heard, in the order in which they heard it."""

    async def _commit(self, entries: list[Entry]) -> dict[int, Exception]:
        del entries[self.fits :]
        refused = {
            index: self.refused[entry.number]
            for index, entry in enumerate(entries)
            if entry.number in self.refused
        }
        await self.disk.write([one.number for one in entries if one.number not in self.refused])
        if self.failures:
            raise self.failures.pop()
        return refused

    async def _stored(self) -> None:
        self.between.append(sorted(number for number, _ in self.answers))

    async def submit(self, number: int) -> None:
        """Be one caller: raise what it is told."""
        entry = Entry(number, asyncio.get_running_loop().create_future())
        self.queue.submit(entry)
        try:
            await entry.done
        except StorageError as error:
            self.answers.append((number, str(error)))
            raise
        self.answers.append((number, "stored"))

    def begin(self, *numbers: int) -> list[asyncio.Task[None]]:
        """Let several call at the same time."""
        return [asyncio.get_running_loop().create_task(self.submit(one)) for one in numbers]


async def outcomes(tasks: list[asyncio.Task[None]]) -> list[str | None]:
    """Return what each caller heard: None for a success."""
    found = await asyncio.gather(*tasks, return_exceptions=True)
    return [None if one is None else str(one) for one in found]


# --- writes -------------------------------------------------------------------------------------


async def test_each_write_is_flushed_once_and_in_order() -> None:
    """Writes that wait for a flush share the next one."""
    disk = Disk()
    queue = WriteQueue(disk.write)
    disk.hold()
    queue.submit(0)
    await turns(3)
    for number in range(1, 50):
        queue.submit(number)
        await turns(1)
    assert [[0]] == disk.begun
    disk.go_on()
    await queue.aclose()
    assert [[0], list(range(1, 50))] == disk.begun
    assert list(range(50)) == disk.written


async def test_a_flush_takes_no_more_than_it_may() -> None:
    """The rest is flushed next, before later writes."""
    disk = Disk()
    queue = WriteQueue(disk.write, at_once=3)
    for number in range(7):
        queue.submit(number)
    await queue.aclose()
    assert [[0, 1, 2], [3, 4, 5], [6]] == disk.begun


async def test_a_write_that_nobody_waits_for_is_flushed_with_the_next() -> None:
    """By itself it begins no flush; closing flushes it."""
    disk = Disk()
    queue = WriteQueue(disk.write)
    queue.submit_later(0)
    await turns(5)
    assert [] == disk.begun
    queue.submit(1)
    await turns(5)
    queue.submit_later(2)
    await turns(5)
    assert [[0, 1]] == disk.begun
    await queue.aclose()
    assert [0, 1, 2] == disk.written


async def test_closing_waits_for_writes_that_come_meanwhile() -> None:
    """And a close that is given up loses no write."""
    disk = Disk()
    queue = WriteQueue(disk.write)
    disk.hold()
    queue.submit(0)
    closing = asyncio.ensure_future(queue.aclose())
    await turns(3)
    closing.cancel()
    queue.submit(1)
    again = asyncio.ensure_future(queue.aclose())
    await turns(3)
    assert not again.done()
    disk.go_on()
    await again
    assert closing.cancelled()
    assert [0, 1] == disk.written


async def test_closing_stores_what_a_flush_left_that_was_cancelled_before_it_began() -> None:
    """A loop that ends cancels all tasks at once: the close waited without end for that flush."""
    disk = Disk()
    queue = WriteQueue(disk.write)
    before = asyncio.all_tasks()
    queue.submit(0)
    (flushing,) = asyncio.all_tasks() - before
    flushing.cancel()
    closing = asyncio.ensure_future(queue.aclose())
    await turns(10)
    assert closing.done()
    assert [0] == disk.written


# --- commits ------------------------------------------------------------------------------------


async def test_no_caller_is_told_before_its_entry_is_stored() -> None:
    """Nor are those of the commit after it told with it."""
    callers = Callers()
    callers.disk.hold()
    first = callers.begin(1, 2)
    await turns(5)
    later = callers.begin(3)
    await turns(5)
    assert ([[1, 2]], []) == (callers.disk.begun, callers.answers)
    callers.disk.go_on()
    await asyncio.gather(*first)
    assert [(1, "stored"), (2, "stored")] == callers.answers[:2]
    await asyncio.gather(*later)
    assert [1, 2, 3] == callers.disk.written


async def test_an_error_goes_to_the_caller_whose_entry_was_refused() -> None:
    """The others in its commit are stored, and hear nothing of it."""
    callers = Callers()
    callers.refused = {1: StorageError("conflict of 1"), 3: StorageError("conflict of 3")}
    expected = [None, "conflict of 1", None, "conflict of 3", None]
    assert expected == await outcomes(callers.begin(*range(5)))
    assert [0, 2, 4] == callers.disk.written


async def test_a_commit_that_fails_is_told_to_all_of_its_callers() -> None:
    """A refusal does not hide it; callers of the next commit are none of them."""
    callers = Callers()
    callers.refused = {1: StorageError("conflict of 1")}
    callers.failures = [StorageError("no room")]
    callers.disk.hold()
    failing = callers.begin(0, 1, 2)
    await turns(5)
    later = callers.begin(3)
    await turns(5)
    callers.disk.go_on()
    assert ["no room"] * 3 == await outcomes(failing)
    assert [None] == await outcomes(later)


async def test_an_entry_that_does_not_fit_is_in_the_next_commit() -> None:
    """Before entries that were submitted later; its caller hears of that commit alone."""
    callers = Callers()
    callers.fits = 2
    callers.disk.hold()
    tasks = callers.begin(0, 1, 2, 3, 4)
    await turns(5)
    tasks += callers.begin(5)
    await turns(5)
    callers.disk.go_on()
    assert [None] * 6 == await outcomes(tasks)
    assert [[0, 1], [2, 3], [4, 5]] == callers.disk.begun
    assert [0, 1, 2, 3, 4, 5] == [number for number, _ in callers.answers]


async def test_an_entry_that_does_not_fit_does_not_fail_with_the_commit() -> None:
    """It was not in it: the next commit stores it, and the error is not for its caller."""
    callers = Callers()
    callers.fits = 2
    callers.failures = [StorageError("no room")]
    callers.disk.hold()
    tasks = callers.begin(0, 1, 2)
    await turns(5)
    callers.disk.go_on()
    assert ["no room", "no room", None] == await outcomes(tasks)
    assert [0, 1, 2] == callers.disk.written


async def test_more_than_a_commit_may_hold_becomes_several() -> None:
    """In order, each entry once."""
    callers = Callers(at_once=4)
    assert [None] * 10 == await outcomes(callers.begin(*range(10)))
    assert [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] == callers.disk.begun


async def test_a_caller_that_gives_up_stops_nobody() -> None:
    """Its entry is stored all the same, for it may be in the commit already."""
    callers = Callers()
    callers.disk.hold()
    tasks = callers.begin(0, 1, 2)
    await turns(5)
    tasks[1].cancel()
    await turns(3)
    callers.disk.go_on()
    assert [None, "", None] == await outcomes(tasks)
    assert [0, 1, 2] == callers.disk.written


@pytest.mark.parametrize("failure", [None, StorageError("no room")])
async def test_work_between_two_commits_is_done_after_the_answers(
    failure: Exception | None,
) -> None:
    """And not after a commit that has failed."""
    callers = Callers()
    callers.failures = [failure] if failure else []
    tasks = callers.begin(0, 1)
    await outcomes(tasks)
    await callers.queue.aclose()
    assert (0 if failure else 1) == len(callers.between)


async def test_the_next_commit_waits_for_the_work_between() -> None:
    """The state of the store must not change under it."""
    disk = Disk()
    working: list[Callable[[], None]] = []

    async def work() -> None:
        done = asyncio.Event()
        working.append(done.set)
        await done.wait()

    async def commit(entries: list[Entry]) -> dict[int, Exception]:
        await disk.write([entry.number for entry in entries])
        return {}

    queue: CommitQueue[Entry] = CommitQueue(commit, when_stored=work)
    entries = [Entry(number, asyncio.get_running_loop().create_future()) for number in range(2)]
    queue.submit(entries[0])
    await entries[0].done
    queue.submit(entries[1])
    await turns(5)
    assert [[0]] == disk.begun
    working.pop()()
    await entries[1].done
    assert [[0], [1]] == disk.begun
    working.pop()()
    await queue.aclose()
