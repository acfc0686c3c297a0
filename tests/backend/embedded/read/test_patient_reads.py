"""Reads beside files that hang: threads are replaced, as many as it takes, and end again."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, cast

import pytest

from kgw.backend.base import ReadResult
from kgw.backend.embedded.read.patient_reads import STALLED_S, PatientReads
from kgw.partitions.read.cold_reads import ColdReads
from kgw.testing.clock import ManualClock
from tests import patience
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.partitions.view import PartitionView


class Pool(ThreadPoolExecutor):
    """Threads, and how often they were asked."""

    asked = 0

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Take note."""
        self.asked += 1
        return super().submit(*args, **kwargs)


class Reads:
    """Reads that hang, and how many of them are under way."""

    def __init__(self, most: int = 100) -> None:
        self.clock = ManualClock()
        self.usual = Pool(2)
        self.reads = PatientReads(self.usual, self.clock, most)
        self.may_go_on = Event()
        self.begun = 0
        self._lock = Lock()

    def hang(self) -> int:
        """Read a file that hangs."""
        with self._lock:
            self.begun += 1
        self.may_go_on.wait()
        return self.begun

    def start(self, count: int) -> list[asyncio.Future[int]]:
        """Begin so many reads that hang."""
        return [asyncio.ensure_future(self.reads.run(self.hang)) for _ in range(count)]

    async def until(self, begun: int) -> None:
        """Wait until so many of them are under way."""
        async with asyncio.timeout(patience.seconds(10)):
            while self.begun < begun:
                await turns()

    def close(self) -> None:
        """Let everything end."""
        self.may_go_on.set()
        self.usual.shutdown()
        self.reads.close()


@pytest.fixture
def reads() -> Iterator[Reads]:
    """Two threads, and more where these hang."""
    made = Reads()
    yield made
    made.close()


async def test_threads_that_hang_are_replaced(reads: Reads) -> None:
    """What waits behind fifty of them is read, after a few looks."""
    hanging = reads.start(50)
    healthy = asyncio.ensure_future(reads.reads.run(lambda: 7))
    await reads.until(2)
    assert 0 == reads.reads.helpers
    for least in (10, 42, 50):
        reads.clock.advance(STALLED_S)
        await reads.until(least)
    async with asyncio.timeout(patience.seconds(10)):
        assert 7 == await healthy
    reads.may_go_on.set()
    await asyncio.gather(*hanging)
    async with asyncio.timeout(patience.seconds(10)):
        while reads.reads.helpers:
            await turns()
    reads.clock.advance(STALLED_S)
    assert 0 == reads.clock.pending


async def test_a_storage_that_answers_gets_no_more_threads(reads: Reads) -> None:
    """However much is queued: what has waited is not what hangs."""
    first = reads.start(2)
    await reads.until(2)
    more = [asyncio.ensure_future(reads.reads.run(int)) for _ in range(20)]
    reads.clock.advance(STALLED_S / 2)
    assert 0 == reads.reads.helpers
    reads.may_go_on.set()
    await asyncio.gather(*first, *more)
    assert 0 == reads.reads.helpers


async def test_so_many_hang_at_most() -> None:
    """Then reads wait, as there are threads for so many."""
    reads = Reads(most=5)
    hanging = reads.start(20)
    try:
        await reads.until(2)
        for _ in range(4):
            reads.clock.advance(STALLED_S)
            await reads.until(7)
        counts = reads.begun, reads.reads.helpers
    finally:
        reads.close()
    await asyncio.gather(*hanging)
    assert (7, 5) == counts


async def test_a_read_that_was_given_up_is_not_begun(reads: Reads) -> None:
    """And what fails says so to whoever waits for it."""
    hanging = reads.start(2)
    await reads.until(2)
    third = reads.start(1)[0]
    await asyncio.sleep(0)
    third.cancel()
    await turns()

    def fail() -> None:
        raise OSError("broken")

    failing = asyncio.ensure_future(reads.reads.run(fail))
    reads.may_go_on.set()
    await asyncio.gather(*hanging)
    with pytest.raises(OSError, match="broken"):
        await failing
    assert 2 == reads.begun


async def test_what_hangs_for_long_fills_no_queue(reads: Reads) -> None:
    """Neither by the reads that others do meanwhile, nor by those that are given up."""
    hanging = reads.start(3)
    await reads.until(2)
    reads.clock.advance(STALLED_S)
    await reads.until(3)
    asked = reads.usual.asked
    async with asyncio.timeout(patience.seconds(10)):
        for _ in range(50):
            assert 0 == await reads.reads.run(int)
    assert reads.usual.asked <= asked + 1
    reads.may_go_on.set()
    await asyncio.gather(*hanging)


async def test_other_work_waits_for_no_read_that_hangs(reads: Reads) -> None:
    """It came behind them."""
    hanging = reads.start(4)
    await reads.until(2)
    other = asyncio.ensure_future(reads.reads.run(lambda: 7, is_read=False))
    await turns()
    assert not other.done()
    reads.clock.advance(STALLED_S)
    async with asyncio.timeout(patience.seconds(10)):
        assert 7 == await other
    reads.may_go_on.set()
    await asyncio.gather(*hanging)


async def test_a_read_that_is_given_up_leaves_nothing() -> None:
    """Though no thread comes to look at it, for as long as they hang."""
    made = Reads(most=0)
    hanging = made.start(2)
    try:
        await made.until(2)
        more = made.start(50)
        await turns()
        for one in more:
            one.cancel()
        await turns()
        assert 0 == made.reads.queued
    finally:
        made.close()
    await asyncio.gather(*hanging)


async def test_other_work_may_take_long(reads: Reads) -> None:
    """As a backup does: reads that wait behind it do not make the threads more."""
    long = [asyncio.ensure_future(reads.reads.run(reads.hang, is_read=False)) for _ in range(2)]
    await reads.until(2)
    behind = asyncio.ensure_future(reads.reads.run(lambda: 7))
    for _ in range(3):
        await turns()
        reads.clock.advance(STALLED_S)
    assert (0, False) == (reads.reads.helpers, behind.done())
    reads.may_go_on.set()
    await asyncio.gather(*long)
    async with asyncio.timeout(patience.seconds(10)):
        assert 7 == await behind


class Hanging:
    """A partition's view whose reads hang in their threads."""

    aborted_from = 0

    def __init__(self, reads: Reads) -> None:
        self.identity = object()
        self._reads = reads

    async def read(self, *_: object, **__: object) -> ReadResult:
        """Wait in a thread."""
        await self._reads.reads.run(self._reads.hang)
        return ReadResult([], 0, 0)


async def test_each_file_that_hangs_costs_one_thread() -> None:
    """However often it is asked for; so others are read as long as there are more threads."""
    made = Reads(most=60)
    cold = ColdReads(made.clock, lambda _: None)
    views = [cast("PartitionView", Hanging(made)) for _ in range(50)]
    try:
        for _ in range(4):
            for view in views:
                if cold.find(view, 0, 1) is None:
                    read = cold.begin(view, 0, 1 << 20, 1, at_least_one=True)
                    await turns()
                    if cold.leave(read) is None:
                        read.task.cancel()
            made.clock.advance(STALLED_S)
            await turns()
        for _ in range(3):
            made.clock.advance(STALLED_S)
            await turns()
        await made.until(50)
        async with asyncio.timeout(patience.seconds(10)):
            assert 7 == await made.reads.run(lambda: 7)
        begun = made.begun
    finally:
        made.close()
        await cold.aclose()
    assert 50 == begun
