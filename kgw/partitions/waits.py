"""Waiting for records: the long poll of Fetch."""

from __future__ import annotations

from asyncio import get_running_loop
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Sequence

    from kgw.clock import Clock, Timer
    from kgw.partitions.partition import Partition

# Deadlines are moved back to the next multiple of this, so that waits end together: one timer, one
# turn of the loop and one poll for all of them. 1,000 clients that wait for 500 ms at a time took
# 10 % of a core with a timer each.
TICK_MS = 20
# A short wait is not made longer by a noticeable part of it.
_SHORT_WAIT_MS = 10 * TICK_MS
# Sums of seconds are that far from whole milliseconds at most.
_ROUNDING_MS = 1e-3


class Listener(Protocol):
    """Who is told of what becomes of a partition: stands in its `waits`."""

    def advanced(self, size_bytes: int) -> None:
        """So many bytes more can be read."""

    def fire(self) -> None:
        """The partition's beginning has moved, or it is no longer there."""


class FetchDeadlines:
    """Ends waits whose time is up, all those of one tick in one call of the loop."""

    __slots__ = ("_clock", "_loop", "_ticks")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop: AbstractEventLoop | None = None
        self._ticks: dict[int, tuple[Timer, dict[FetchWait, None]]] = {}

    def add(self, wait: FetchWait, deadline_s: float) -> int:
        """End a wait at its deadline, or up to TICK_MS later; return the tick, for `remove`."""
        due_ms = ceil(deadline_s * 1000 - _ROUNDING_MS)
        if due_ms - self._clock.monotonic_s() * 1000 >= _SHORT_WAIT_MS:
            due_ms += -due_ms % TICK_MS
        tick = self._ticks.get(due_ms)
        if tick is None:
            timer = self._clock.call_at(due_ms / 1000, partial(self._expire, due_ms))
            self._ticks[due_ms] = (timer, {wait: None})
        else:
            tick[1][wait] = None
        return due_ms

    def future(self) -> Future[None]:
        """Return a future of the running loop. Asking which one that is takes a system call."""
        loop = self._loop
        if loop is None:
            loop = self._loop = get_running_loop()
        return loop.create_future()

    def remove(self, wait: FetchWait, due_ms: int) -> None:
        """Forget a wait that has ended otherwise, and a timer that nobody waits for."""
        tick = self._ticks.get(due_ms)
        if tick is None:
            return
        timer, waits = tick
        waits.pop(wait, None)
        if not waits:
            timer.cancel()
            del self._ticks[due_ms]

    def _expire(self, due_ms: int) -> None:
        _, waits = self._ticks.pop(due_ms)
        # What one of them wakes may end another.
        while waits:
            wait, _ = waits.popitem()
            wait.expire()


class FetchWait:
    """Waits until enough bytes have been committed to some partitions, or until a deadline.

    `wake` is called once, in the loop: when `missing_bytes` have become visible since the wait
    began, when one of the partitions is deleted, or at the deadline. Nothing runs in between.
    """

    __slots__ = (
        "_deadlines",
        "_due_ms",
        "_is_over",
        "_missing_bytes",
        "_partitions",
        "_wake",
        "expired",
        "has_advanced",
    )

    def __init__(
        self,
        partitions: Sequence[Partition],
        missing_bytes: int,
        deadline_s: float,
        deadlines: FetchDeadlines,
        wake: Callable[[], object],
    ) -> None:
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._wake = wake
        self._is_over = False
        self.expired = False
        self.has_advanced = False
        for partition in partitions:
            partition.waits[self] = None
        self._deadlines = deadlines
        self._due_ms = deadlines.add(self, deadline_s)

    def __repr__(self) -> str:
        state = "over" if self._is_over else "waiting"
        return f"<FetchWait {state} partitions={len(self._partitions)}>"

    def advanced(self, size_bytes: int) -> None:
        """Take note that `size_bytes` more can be read from one of the partitions."""
        self.has_advanced = True
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self.fire()

    def fire(self) -> None:
        """End the wait now."""
        if not self._is_over:
            self.cancel()
            self._wake()

    def expire(self) -> None:
        """End the wait because its time is up."""
        self.expired = True
        self.fire()

    def cancel(self) -> None:
        """Give the wait up: `wake` will not be called."""
        if not self._is_over:
            self._is_over = True
            self._deadlines.remove(self, self._due_ms)
            for partition in self._partitions:
                partition.waits.pop(self, None)
