"""The only module that reads time. All other code gets a Clock, or `now` as an argument."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A callback that will be called unless it is cancelled before."""

    def cancel(self) -> None: ...


class Clock(ABC):
    """Monotonic time for deadlines, wall time for records and people."""

    @abstractmethod
    def monotonic_s(self) -> float:
        """Return monotonic time in seconds. Only differences have a meaning."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch, as in record timestamps."""

    def running_ms(self) -> int:
        """Return the time for ages of stored data, in milliseconds; see `RunningClock`."""
        return self.wall_ms()

    @abstractmethod
    async def sleep_until(self, monotonic_s: float) -> None:
        """Return when `monotonic_s()` has reached the given time."""

    @abstractmethod
    def call_at(self, monotonic_s: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` in the event loop at the given time, or soon if it has passed.

        For thousands of waits: a timer costs a tenth as much as a sleeping task.
        """

    def cpu_s(self) -> float:
        """Return the processor time of the calling thread, which a busy machine does not change."""
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


class RunningClock(Clock):
    """Wraps another clock and adds a running time, which does not jump with the wall clock.

    Running time begins as wall time and advances with monotonic time. After a restart `go_on` sets
    it to the stored running time plus the time that the process was down, if that is credible. So a
    wrong wall clock does not make data old, but running time may be behind wall time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.go_on(clock.wall_ms())

    def go_on(self, running_ms: int) -> None:
        """Set the running time, which advances from there."""
        self._begun_ms = running_ms
        self._begun_s = self._clock.monotonic_s()
        self._wall_lead_ms = self._clock.wall_ms() - running_ms

    def running_ms(self) -> int:
        return self._begun_ms + round((self._clock.monotonic_s() - self._begun_s) * 1000)

    def wall_ms_of(self, running_ms: int) -> int:
        """Convert a running time in the past to wall time, by the current wall clock.

        The result for the same running time changes only if the wall clock has jumped by more than
        1 ms: both times are rounded, so that their difference varies by 1 ms.
        """
        lead_ms = self.wall_ms() - self.running_ms()
        if abs(lead_ms - self._wall_lead_ms) > 1:
            self._wall_lead_ms = lead_ms
        return running_ms + self._wall_lead_ms

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    async def sleep_until(self, monotonic_s: float) -> None:
        await self._clock.sleep_until(monotonic_s)

    def call_at(self, monotonic_s: float, callback: Callable[[], object]) -> Timer:
        return self._clock.call_at(monotonic_s, callback)

    def cpu_s(self) -> float:
        return self._clock.cpu_s()


def thread_cpu_s(thread: int) -> float:
    """Return the processor time that another thread has used, given its identifier.

    Raises AttributeError if `system.HAS_THREAD_CLOCKS` is false.
    """
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
