"""Going through many partitions without holding up those who produce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kgw.clock import Clock

REST: Final = 19
"""Rests take so many times as long as the work before them. Moving a log start is noted beside the
thread that syncs records, but on the same disk: its three syncs take ten times as long as an
append's one."""

MAX_REST_S: Final = 0.2
"""So that a slow disk does not make a round of all partitions last for hours."""

_WORK_S: Final = 0.001


class Throttle:
    """Rests now and then, in proportion to the time since the last rest."""

    __slots__ = ("_clock", "_since_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s = clock.monotonic_s()

    async def step(self) -> None:
        """Return at once, or after a rest; to be called after each piece of work."""
        now_s = self._clock.monotonic_s()
        worked_s = now_s - self._since_s
        if worked_s >= _WORK_S:
            await self._clock.sleep_until(now_s + min(worked_s * REST, MAX_REST_S))
            self._since_s = self._clock.monotonic_s()
