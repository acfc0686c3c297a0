from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

from kgw.backend.embedded.write.flush_timer import FlushTimer
from tests.backend.embedded.driver import DIRECT, KEY, OTHER_KEY, RELAXED, Driver
from tests.simulated_disk import CrashMode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor
    from contextvars import Context

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.types import PartitionKey

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")


async def _at_once(function: Callable[[], _Result], /) -> _Result:
    return function()


async def test_a_log_is_noted_while_the_round_before_is_all_but_due() -> None:
    """A handle of uvloop that is less than half a millisecond away cannot say when it is due."""
    loop = asyncio.get_running_loop()
    begun: list[float] = []

    class Loop:
        """As much of uvloop's as the timer uses."""

        time = staticmethod(loop.time)
        create_task = staticmethod(loop.create_task)

        def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.Handle:
            begun.append(when_s)
            return loop.call_soon(callback)

    driver = Driver(DIRECT, RELAXED._replace(flush_interval_ms=0))
    logs = [driver.log(KEY), driver.log(OTHER_KEY)]
    executor = ThreadPoolExecutor(1)
    timer = FlushTimer(
        Loop(),  # type: ignore[arg-type]
        driver.store.writes.relaxed,
        _at_once,
        executor,
    )
    for log in logs:
        timer.note(log)
    assert 1 == len(begun)
    await timer.aclose()
    executor.shutdown()


# --- when, by a loop whose time is moved by hand --------------------------------------------------


class HandLoop(asyncio.SelectorEventLoop):
    """A real loop whose time stands still until a test moves it."""

    now_s = 1_000.0
    armed = 0

    def time(self) -> float:
        return self.now_s

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self.armed += 1
        return super().call_at(when, callback, *args, context=context)


class HeldThread:
    """A helper that does its work when it is told to; at once, unless it is held."""

    def __init__(self) -> None:
        self.is_held = False
        self._waiting: list[tuple[Callable[[], object], Future[object]]] = []

    def submit(self, function: Callable[..., object], *arguments: Any) -> Future[object]:
        future: Future[object] = Future()
        self._waiting.append((partial(function, *arguments), future))
        if not self.is_held:
            self.go_on()
        return future

    def go_on(self) -> None:
        """Do all that waits."""
        waiting, self._waiting = self._waiting, []
        for function, future in waiting:
            future.set_result(function())


class Timed:
    """A store of relaxed logs, and the timer that has them synced."""

    def __init__(self, loop: HandLoop) -> None:
        self.loop = loop
        self.driver = Driver(DIRECT, RELAXED)
        self.thread = HeldThread()
        self.timer = FlushTimer(
            loop, self.driver.store.writes.relaxed, _at_once, cast("Executor", self.thread)
        )

    def log(self, flush_interval_ms: int, key: PartitionKey = KEY) -> SegmentedLog:
        """Return a log that has reserved offsets: what comes next is answered unsynced."""
        self.driver.append(b"asks for a reservation", key=key)
        log = self.driver.log(key)
        log.settings = RELAXED._replace(flush_interval_ms=flush_interval_ms)
        return log

    async def answer(self, value: bytes, key: PartitionKey = KEY) -> None:
        """Append a record, and tell the timer, as who answers it does."""
        append = self.driver.append(value, key=key)
        assert (None, False) == (append.error, append.is_durable)
        self.timer.note(append.log)
        await self.turns()

    async def move(self, seconds: float) -> None:
        """Let time pass, and happen what is due by then."""
        self.loop.now_s += seconds
        await self.turns()

    async def turns(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def survivors(self, key: PartitionKey = KEY) -> list[bytes]:
        """Return what a power loss would leave now, but for the first record."""
        left = Driver(DIRECT, RELAXED, self.driver.fs.power_loss(Random(0), CrashMode.NOTHING))
        return left.values(key)[1:]


def _timed(story: Callable[[Timed], Coroutine[object, object, None]]) -> None:
    async def run() -> None:
        timed = Timed(cast("HandLoop", asyncio.get_running_loop()))
        await story(timed)
        timed.thread.is_held = False
        timed.thread.go_on()
        await timed.timer.aclose()

    with asyncio.Runner(loop_factory=HandLoop) as runner:
        runner.run(run())


def test_a_record_is_durable_when_its_time_is_over() -> None:
    """kgw.flush.ms after its answer, however many come behind it; the same again for the next."""

    async def story(timed: Timed) -> None:
        timed.log(flush_interval_ms=100)
        for count in (1, 2, 3):
            await timed.answer(b"%d" % count)
            await timed.move(0.04)
            await timed.answer(b"just behind it")
            await timed.move(0.0601)
            assert b"%d" % count in timed.survivors()
            # What was answered less than half of the time ago has its own round.
            await timed.move(0.1)
            assert 2 * count == len(timed.survivors())

    _timed(story)


def test_the_log_that_is_due_first_is_synced_first() -> None:
    """Whichever was noted first; and a log that is to be synced sooner from now on is."""

    async def story(timed: Timed) -> None:
        slow = timed.log(flush_interval_ms=60_000)
        timed.log(flush_interval_ms=50, key=OTHER_KEY)
        await timed.answer(b"slow")
        await timed.answer(b"quick", OTHER_KEY)
        await timed.move(0.0501)
        assert ([], [b"quick"]) == (timed.survivors(), timed.survivors(OTHER_KEY))
        slow.settings = RELAXED._replace(flush_interval_ms=200)
        timed.timer.reschedule()
        await timed.move(0.15)
        assert [b"slow"] == timed.survivors()

    _timed(story)


def test_settings_that_change_together_are_obeyed_once() -> None:
    """What is due next is looked for among all that is unsynced: not again for each of many."""

    async def story(timed: Timed) -> None:
        timed.log(flush_interval_ms=100)
        await timed.answer(b"waits")
        for count in (2, 3):
            for _ in range(10):
                timed.timer.reschedule()
            await timed.turns()
            assert count == timed.loop.armed

    _timed(story)


def test_what_comes_during_a_long_round_is_synced_right_behind_it() -> None:
    """It waits for that round and its own, and not for kgw.flush.ms after it."""

    async def story(timed: Timed) -> None:
        timed.log(flush_interval_ms=100)
        await timed.answer(b"first")
        timed.thread.is_held = True
        await timed.move(0.1001)
        await timed.answer(b"during")
        await timed.move(3.0)
        assert (3.1, []) == (round(timed.timer.age_s(), 3), timed.survivors())
        timed.thread.is_held = False
        timed.thread.go_on()
        await timed.turns()
        assert [b"first", b"during"] == timed.survivors()
        assert 0.0 == timed.timer.age_s()

    _timed(story)
