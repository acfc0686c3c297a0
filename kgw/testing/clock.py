"""A clock that moves only when a test moves it."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kgw.clock import Clock, Timer

if TYPE_CHECKING:
    from collections.abc import Callable


class ManualTimer:
    """A call that `ManualClock.advance` makes when its time is reached."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock(Clock):
    """A clock that moves only in `advance`.

    Monotonic and wall time start at given values, and move together.
    """

    def __init__(self, *, monotonic_s: float = 1000.0, wall_ms: int = 1_700_000_000_000) -> None:
        self._start_s = monotonic_s
        self._start_wall_ms = wall_ms
        self._now_s = monotonic_s
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._sequence = 0
        self.used_cpu_s = 0.0
        """The return value of `cpu_s`, which does not change with time."""

    def monotonic_s(self) -> float:
        return self._now_s

    def cpu_s(self) -> float:
        return self.used_cpu_s

    def wall_ms(self) -> int:
        return self._start_wall_ms + round((self._now_s - self._start_s) * 1000)

    async def sleep_until(self, monotonic_s: float) -> None:
        if monotonic_s <= self._now_s:
            return
        done: Future[None] = get_running_loop().create_future()
        timer = self.call_at(monotonic_s, lambda: None if done.done() else done.set_result(None))
        try:
            await done
        finally:
            timer.cancel()

    def call_at(self, monotonic_s: float, callback: Callable[[], object]) -> Timer:
        timer = ManualTimer(callback)
        self._sequence += 1
        heappush(self._timers, (monotonic_s, self._sequence, timer))
        if monotonic_s <= self._now_s:
            get_running_loop().call_soon(self._run_due)
        return timer

    def advance(self, seconds: float) -> None:
        """Move the clock; make the calls that become due, in order, each at its own time."""
        target_s = self._now_s + seconds
        while self._timers and self._timers[0][0] <= target_s:
            self._now_s = max(self._now_s, self._timers[0][0])
            self._run_due()
        self._now_s = target_s

    @property
    def pending(self) -> int:
        """The number of timers that wait, without cancelled ones."""
        return sum(1 for _, _, timer in self._timers if timer.callback is not None)

    def _run_due(self) -> None:
        while self._timers and self._timers[0][0] <= self._now_s:
            _, _, timer = heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
