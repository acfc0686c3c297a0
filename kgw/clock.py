"""The one place that reads time. Everything else is given a Clock, or `now` as an argument."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A call that is to be made later, unless it is cancelled first."""

    def cancel(self) -> None: ...


class Clock(ABC):
    """Monotonic time for deadlines, wall time for records and people."""

    @abstractmethod
    def monotonic_s(self) -> float:
        """Seconds that never go back; only differences mean anything."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, as record timestamps carry them."""

    @abstractmethod
    async def sleep_until(self, monotonic_s: float) -> None:
        """Return once `monotonic_s()` has reached the given time."""

    @abstractmethod
    def call_at(self, monotonic_s: float, callback: Callable[[], object]) -> Timer:
        """Call back from the event loop at the given time, at once when it has passed.

        For waits by the thousand: a timer costs a tenth of a task that sleeps.
        """

    def cpu_s(self) -> float:
        """Processor time that the calling thread has used: a busy machine does not lengthen it."""
        return time.thread_time()


class SystemClock(Clock):
    """The machine's clocks and the running event loop's timers."""

    monotonic_s = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, monotonic_s: float) -> None:
        from asyncio import sleep

        delay_s = monotonic_s - time.monotonic()
        if delay_s > 0:
            await sleep(delay_s)

    def call_at(self, monotonic_s: float, callback: Callable[[], object]) -> Timer:
        from asyncio import get_running_loop

        delay_s = monotonic_s - time.monotonic()
        return get_running_loop().call_later(max(0.0, delay_s), callback)


def thread_cpu_s(thread: int) -> float:
    """Return the processor time that another thread has used, given its identifier (Linux)."""
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
