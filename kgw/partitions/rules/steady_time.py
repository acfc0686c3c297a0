"""SteadyTime: wall time without jumps, by which records are removed. No I/O.

A wrong clock must not delete records. Wall time is compared with monotonic time and trusted while
both advance equally. After a jump in either direction, time continues from its value before the
jump until the new wall time has run steadily for long enough to be trusted; meanwhile it is never
later than the wall clock. So a jump alone deletes nothing, and records that would have expired
without the jump still expire. A jump that is undone in that time has no effect.

The last trusted time is stored for restarts. A machine that was off for longer than the hold looks
like one whose clock has jumped: removal by time begins that much later, which does no harm.
"""

from __future__ import annotations

from typing import Final

TOLERANCE_MS: Final = 60_000
"""The largest difference between wall and monotonic time that is no jump.

Clocks that are slewed drift by half a second in a thousand; a time service makes smaller steps
after its first one.
"""


class SteadyTime:
    """Turns readings of both clocks into a time without jumps."""

    __slots__ = (
        "_hold_ms",
        "_monotonic_s",
        "_new_monotonic_s",
        "_new_wall_ms",
        "_wall_ms",
        "ahead_ms",
    )

    def __init__(
        self, wall_ms: int, monotonic_s: float, *, hold_ms: int, last_known_ms: int | None = None
    ) -> None:
        """Start from a first reading. `last_known_ms` is the last trusted time before a restart."""
        self.ahead_ms = 0
        """How far the wall clock was ahead of the expected time at the last reading."""
        self._hold_ms = hold_ms
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s
        # The first reading after a jump, until the new wall time is trusted; None if there was no
        # jump.
        self._new_wall_ms: int | None = None
        self._new_monotonic_s = monotonic_s
        if last_known_ms is not None and not (
            -TOLERANCE_MS <= wall_ms - last_known_ms <= hold_ms + TOLERANCE_MS
        ):
            self._wall_ms = last_known_ms
            self._new_wall_ms = wall_ms

    @property
    def is_held(self) -> bool:
        """Whether the wall clock has jumped and is not trusted yet."""
        return self._new_wall_ms is not None

    def read(self, wall_ms: int, monotonic_s: float) -> int:
        """Return the steady time in milliseconds since the epoch."""
        expected_ms = self._wall_ms + _elapsed_ms(self._monotonic_s, monotonic_s)
        self.ahead_ms = wall_ms - expected_ms
        if abs(self.ahead_ms) <= TOLERANCE_MS:
            self._new_wall_ms = None
            return wall_ms
        since_jump_ms = _elapsed_ms(self._new_monotonic_s, monotonic_s)
        if (
            self._new_wall_ms is None
            or abs(wall_ms - self._new_wall_ms - since_jump_ms) > TOLERANCE_MS
        ):
            self._new_wall_ms, self._new_monotonic_s = wall_ms, monotonic_s
            since_jump_ms = 0
        if since_jump_ms >= self._hold_ms:
            self._wall_ms, self._monotonic_s = wall_ms, monotonic_s
            self._new_wall_ms = None
            return wall_ms
        return min(wall_ms, expected_ms)


class JumpWatch:
    """Detects whether the wall clock has jumped since the last check."""

    __slots__ = ("_monotonic_s", "_wall_ms")

    def __init__(self, wall_ms: int, monotonic_s: float) -> None:
        """Start from a first reading."""
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s

    def has_jumped(self, wall_ms: int, monotonic_s: float) -> bool:
        """Take another reading of both clocks."""
        expected_ms = self._wall_ms + _elapsed_ms(self._monotonic_s, monotonic_s)
        self._wall_ms, self._monotonic_s = wall_ms, monotonic_s
        return abs(wall_ms - expected_ms) > TOLERANCE_MS


def _elapsed_ms(since_s: float, now_s: float) -> int:
    return round((now_s - since_s) * 1000)
