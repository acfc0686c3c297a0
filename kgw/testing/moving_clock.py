"""A clock that shows real time plus the time that a test has added."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kgw.clock import Clock, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

_TURNS = 50
"""How many loop iterations are left to tasks that timers have started; without I/O, they finish in
that time."""
_LOOK_AGAIN_S = 0.001
_PATIENCE_S = 30.0


class _MovingTimer:
    """A call that is made once real or added time reaches its time."""

    __slots__ = ("_callback", "_clock", "_handle", "due_s")

    def __init__(self, clock: MovingClock, due_s: float, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self.due_s = due_s

    def arm(self) -> None:
        """Set a real timer for the rest of the time."""
        if self._handle is not None:
            self._handle.cancel()
        delay_s = max(0.0, self.due_s - self._clock.monotonic_s())
        self._handle = asyncio.get_running_loop().call_later(delay_s, self.fire)

    def fire(self) -> None:
        """Make the call."""
        self.cancel()
        self._callback()

    def cancel(self) -> None:
        """Cancel the call."""
        self._clock.forget(self)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class MovingClock(Clock):
    """A clock that runs like the machine's, and can be moved forward.

    All its methods run in the thread of one event loop.
    """

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._timers: dict[_MovingTimer, None] = {}
        # Tasks that a timer has woken or started, until they end or sleep on this clock again.
        self._at_work: set[asyncio.Task[object]] = set()

    @property
    def ahead_s(self) -> float:
        """How many seconds this clock is ahead of the machine's."""
        return self._ahead_s

    def monotonic_s(self) -> float:
        return time.monotonic() + self._ahead_s

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 + round(self._ahead_s * 1000)

    async def sleep_until(self, monotonic_s: float) -> None:
        if monotonic_s <= self.monotonic_s():
            return
        task = asyncio.current_task()
        woken = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)
                if task is not None:
                    self._at_work.add(task)

        timer = self.call_at(monotonic_s, wake)
        if task is not None:
            self._at_work.discard(task)
        try:
            await woken
        finally:
            timer.cancel()

    def call_at(self, monotonic_s: float, callback: Callable[[], object]) -> Timer:
        timer = _MovingTimer(self, monotonic_s, callback)
        self._timers[timer] = None
        timer.arm()
        return timer

    def forget(self, timer: _MovingTimer) -> None:
        """Remove a timer."""
        self._timers.pop(timer, None)

    def cancel_all(self) -> None:
        """Cancel all timers, when their broker has ended."""
        for timer in list(self._timers):
            timer.cancel()

    async def put_forward(self, seconds: float) -> None:
        """Move the clock forward in one step; return when all timers that are due have run.

        Their calls are made in the order of their times, and all see the new time. Raises
        TimeoutError if the tasks that they woke still run after 30 s of real time.
        """
        patience_ends_s = time.monotonic() + _PATIENCE_S
        self._ahead_s += seconds
        for timer in self._timers:
            timer.arm()
        self._at_work.clear()
        while True:
            self._fire_due()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            self._at_work = {task for task in self._at_work if not task.done()}
            if self._at_work:
                await asyncio.wait(self._at_work, timeout=_LOOK_AGAIN_S)
            elif not self._due():
                return
            if time.monotonic() > patience_ends_s:
                raise TimeoutError(f"at work for {_PATIENCE_S:g} s: {self._at_work}")

    def _due(self) -> list[_MovingTimer]:
        now_s = self.monotonic_s()
        return sorted(
            (timer for timer in self._timers if timer.due_s <= now_s),
            key=lambda timer: timer.due_s,
        )

    def _fire_due(self) -> None:
        known = asyncio.all_tasks()
        for timer in self._due():
            # An earlier timer may have cancelled this one.
            if timer in self._timers:
                timer.fire()
        self._at_work |= asyncio.all_tasks() - known
