"""Pauses work on many partitions, so that it hardly slows down producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kgw.clock import Clock

REST: Final = 19
"""A pause takes this many times as long as the work before it.

A new log start is written to the same disk as records: its three syncs take ten times as long as an
append's single sync.
"""

MAX_REST_S: Final = 0.2
"""The longest pause. Without it, a run over all partitions would take hours on a slow disk."""

_WORK_S: Final = 0.001


class Throttle:
    """Pauses in proportion to the time since the last pause."""

    __slots__ = ("_clock", "_since_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s = clock.monotonic_s()

    async def step(self) -> None:
        """Return at once or after a pause; call this after each unit of work."""
        now_s = self._clock.monotonic_s()
        worked_s = now_s - self._since_s
        if worked_s >= _WORK_S:
            await self._clock.sleep_until(now_s + min(worked_s * REST, MAX_REST_S))
            self._since_s = self._clock.monotonic_s()
