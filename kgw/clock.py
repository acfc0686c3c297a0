"""The one place that reads time. Everything else is given a Clock, or `now` as an argument."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod


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


class SystemClock(Clock):
    """The machine's clocks and the running event loop's timers."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, monotonic_s: float) -> None:
        from asyncio import sleep  # noqa: PLC0415 - pure code imports this module for Clock alone

        delay_s = monotonic_s - time.monotonic()
        if delay_s > 0:
            await sleep(delay_s)
