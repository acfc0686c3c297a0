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

    def running_ms(self) -> int:
        """What ages of whatever outlives the process count by; see `RunningClock`."""
        return self.wall_ms()

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


class RunningClock(Clock):
    """Another clock, with a running time that no jump of the wall clock moves.

    It begins as wall time, passes as monotonic time does, and goes on after a restart from what was
    noted before, so that nothing grows old by a wall clock that is wrong. A stop is part of it as
    far as whoever calls `go_on` believes how long it was; so it may lag behind wall time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.go_on(clock.wall_ms())

    def go_on(self, running_ms: int) -> None:
        """Have running time go on from here."""
        self._begun_ms = running_ms
        self._begun_s = self._clock.monotonic_s()
        self._wall_lead_ms = self._clock.wall_ms() - running_ms

    def running_ms(self) -> int:
        return self._begun_ms + round((self._clock.monotonic_s() - self._begun_s) * 1000)

    def wall_ms_of(self, running_ms: int) -> int:
        """Return what the wall clock of now says of a running time that has passed.

        The same until the wall clock has moved: both are rounded, so that they differ by 1 ms now
        and then.
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

    AttributeError where `system.HAS_THREAD_CLOCKS` is false.
    """
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
