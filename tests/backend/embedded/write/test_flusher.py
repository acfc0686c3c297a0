"""The thread that writes: what it makes of appends, and in which order they are answered."""

from __future__ import annotations

import asyncio
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, NoReturn

import pytest

from kgw.backend.embedded.write.flusher import ANSWERED_PER_TURN, Flusher
from kgw.errors import DiskFullError, StorageError
from kgw.testing.batches import make_batch
from tests import patience
from tests.backend.embedded.driver import (
    JOURNALED,
    KEY,
    OTHER_KEY,
    ROOT,
    SETTINGS,
    TOPIC,
    Driver,
    opened,
)
from tests.simulated_fs import Fault, FaultKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.embedded.write.write_path import DiskAppend

MANY = 3 * ANSWERED_PER_TURN + 1
SYNC_FAILS = Fault(FaultKind.EIO, 1, spared=frozenset({"open", "write"}))


class Writing:
    """A store, the thread that writes to it, and what has been answered."""

    def __init__(self) -> None:
        self.driver = Driver(JOURNALED)
        self.logs = [self.driver.log(key) for key in (KEY, OTHER_KEY)]
        self.told: list[DiskAppend] = []
        self.writes = self.driver.store.writes
        self.flusher = Flusher(asyncio.get_running_loop(), self.writes, lambda _, __: None)

    def append(self, value: bytes = b"value", number: int = 0) -> DiskAppend:
        append = self.flusher.append(self.logs[number], [make_batch([value])])
        append.when_done(self.told.append)
        return append

    async def hold(self) -> Event:
        """Keep the thread busy until the event is set."""
        began, go_on = asyncio.Event(), Event()
        loop = asyncio.get_running_loop()

        def wait() -> None:
            loop.call_soon_threadsafe(began.set)
            go_on.wait(patience.seconds(10))

        self.holding = asyncio.ensure_future(self.flusher.run(wait))
        await began.wait()
        return go_on

    async def append_many(self) -> list[DiskAppend]:
        """Append to both logs in turn, so much that it is written as one group."""
        go_on = await self.hold()
        appends = [self.append(b"%d" % number, number % 2) for number in range(MANY)]
        go_on.set()
        return appends


@pytest.fixture
async def writing() -> AsyncIterator[Writing]:
    """A store on a simulated disk, with a first record in each of two logs."""
    writing = Writing()
    for number in range(2):
        await writing.append(b"first", number)
    writing.told.clear()
    yield writing
    await writing.flusher.aclose()


async def test_an_append_is_shown_and_answered_once_it_is_synced(writing: Writing) -> None:
    """And not before: another thread that looks during the sync sees neither."""
    log, driver = writing.logs[0], writing.driver
    seen: list[tuple[int, int]] = []
    driver.fs.on_operation = lambda call, _: (
        seen.append((log.offsets.high_watermark, len(writing.told)))
        if call == "fdatasync"
        else None
    )
    await writing.append()
    driver.fs.on_operation = None
    assert [(1, 0)] == seen
    assert 2 == log.offsets.high_watermark


async def test_what_gathers_while_the_thread_is_busy_shares_one_sync(writing: Writing) -> None:
    """However many appends and logs it is about."""
    with writing.driver.noting("fdatasync", "sync_directory") as syncs:
        go_on = await writing.hold()
        appends = [writing.append(b"%d" % number, number % 2) for number in range(20)]
        go_on.set()
        await asyncio.gather(*appends)
    assert [f"{ROOT}/journal/0.journal"] == syncs
    assert appends == writing.told


async def test_what_one_turn_of_the_loop_appends_shares_one_sync(writing: Writing) -> None:
    """The thread is idle, and is woken when the turn is over."""
    with writing.driver.noting("fdatasync", "sync_directory") as syncs:
        appends = [writing.append(b"%d" % number, number % 2) for number in range(20)]
        await asyncio.gather(*appends)
    assert [f"{ROOT}/journal/0.journal"] == syncs
    assert appends == writing.told


async def test_jobs_and_appends_take_turns(writing: Writing) -> None:
    """A thousand partitions to create, one after the other, must not hold all appends up."""
    order: list[str] = []
    go_on = await writing.hold()
    jobs = [
        asyncio.ensure_future(writing.flusher.run(partial(order.append, f"job {number}")))
        for number in range(3)
    ]
    await asyncio.sleep(0)
    append = writing.append()
    append.when_done(lambda _: order.append("answer"))
    writing.driver.fs.on_operation = lambda call, _: (
        order.append("group") if call == "fdatasync" else None
    )
    go_on.set()
    await asyncio.gather(append, *jobs)
    writing.driver.fs.on_operation = None
    order.remove("answer")
    assert ["group", "job 0", "job 1", "job 2"] == order


async def test_a_large_group_is_answered_in_turns(writing: Writing) -> None:
    """In the order in which it was written, whatever the thread ends while a part is answered."""
    appends = await writing.append_many()

    ended = Event()
    have_ended: list[bool] = []

    def begin_two_jobs(_: DiskAppend) -> None:
        for job in (int, ended.set):
            writing.flusher.run(job)

    appends[0].when_done(begin_two_jobs)
    # The thread is woken in the turn after that. What a callback raises would be logged alone.
    third_part = appends[2 * ANSWERED_PER_TURN]
    third_part.when_done(lambda _: have_ended.append(ended.wait(patience.seconds(10))))
    turns: list[int] = []
    while len(writing.told) < MANY:
        before = len(writing.told)
        await asyncio.sleep(0)
        turns.append(len(writing.told) - before)
    assert [True] == have_ended
    assert ANSWERED_PER_TURN == max(turns)
    assert appends == writing.told
    assert [MANY // 2 + 2, MANY // 2 + 1] == [log.offsets.high_watermark for log in writing.logs]


async def test_what_came_of_a_job_is_told_behind_what_was_written_before_it(
    writing: Writing,
) -> None:
    """A sync of relaxed logs, say, moves the same ends as the answers do."""
    await writing.append_many()
    # The thread does one job, then what is queued, then the other.
    await asyncio.gather(writing.flusher.run(int), writing.flusher.run(int))
    assert MANY == len(writing.told)


async def test_a_stop_answers_what_is_still_to_be_told(writing: Writing) -> None:
    """However many there are; nobody waits for ever."""
    appends = await writing.append_many()
    while not writing.told:  # noqa: ASYNC110 - a thread is on its way
        await asyncio.sleep(0)
    assert len(writing.told) < MANY
    await writing.flusher.aclose()
    assert appends == writing.told
    assert not any(append.error for append in appends)


async def test_offsets_of_a_large_group_that_was_refused_are_given_again(writing: Writing) -> None:
    """What is appended while some of it is still to be told goes where the first of it was."""
    go_on = await writing.hold()
    appends = [writing.append(b"%d" % number) for number in range(MANY)]
    writing.driver.fs.inject(Fault(FaultKind.ENOSPC, 1))
    go_on.set()
    while not writing.told:  # noqa: ASYNC110 - a thread is on its way
        await asyncio.sleep(0)
    writing.driver.fs.inject(None)
    assert len(writing.told) < MANY
    between = writing.append(b"between")
    assert 1 == (await between).base_offset
    assert [*appends, between] == writing.told
    assert all(isinstance(append.error, DiskFullError) for append in appends)
    assert 2 == writing.logs[0].offsets.next_offset


def _broken(*_: object) -> NoReturn:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("place", ["complete_group", "write_group"])
async def test_a_bug_while_a_group_is_written_or_answered_fails_it(
    place: str, writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error for those appends and for all after them; silence for none."""
    monkeypatch.setattr(writing.writes, place, _broken)
    go_on = await writing.hold()
    appends = [writing.append(b"%d" % number) for number in range(3)]
    go_on.set()
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert {StorageError} == {type(outcome) for outcome in outcomes}
    with pytest.raises(StorageError, match="a bug"):
        writing.append()


async def test_who_fails_to_take_news_of_an_advance_keeps_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The records are stored: they are answered, and the fault is logged."""
    async with opened(options=JOURNALED) as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        log.on_advance = _broken
        assert 0 == (await log.append([make_batch([b"a"])])).base_offset
        assert "told of an advance, it failed" in caplog.text
        assert backend.health.writable
        log.on_advance = None


@pytest.mark.parametrize("is_kill", [False, True])
async def test_appends_in_flight_are_answered_by_a_stop(*, is_kill: bool) -> None:
    """With success or an error, in order; those after it are refused."""
    async with opened(options=JOURNALED) as backend:
        log = await backend.create_partition(KEY, TOPIC, SETTINGS)
        appends = [log.append([make_batch([b"%d" % number])]) for number in range(MANY)]
        await (backend.abandon() if is_kill else backend.aclose())
        assert all(append.is_done for append in appends)
        with pytest.raises(StorageError):
            await log.append([make_batch([b"late"])])
