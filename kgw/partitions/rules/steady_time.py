"""The time to go by when records are removed for good: wall time that no jump has moved. Pure.

A clock that is set wrong must not cost records. Wall time is compared with monotonic time: as long
as both have come equally far it is right. After a jump in either direction, time continues from its
value before the jump until the new wall time has run steadily for long enough to be trusted;
meanwhile it is never later than the wall clock. So a jump alone deletes nothing, and records that
would have expired without it still do. A clock that jumps and comes back in that time has done
nothing.

The last trusted time is stored for restarts. A machine that was off for longer than the hold looks
like one whose clock has jumped: removal by time begins that much later, which does no harm.
"""

from __future__ import annotations

from typing import Final

TOLERANCE_MS: Final = 60_000
"""How far wall and monotonic time may part. Clocks that are slewed drift by half a second in a
thousand; steps of a time service after its first one are smaller."""


class SteadyTime:
    """Turns readings of both clocks into a time that jumps do not move."""

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
        """Begin with a first reading. `last_known_ms` is the last trusted time before a restart."""
        self.ahead_ms = 0
        """How far the wall clock was ahead of where it should be, when it was read last."""
        self._hold_ms = hold_ms
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s
        # The reading after a jump that has yet to prove itself; None while all is well.
        self._new_wall_ms: int | None = None
        self._new_monotonic_s = monotonic_s
        if last_known_ms is not None and not (
            -TOLERANCE_MS <= wall_ms - last_known_ms <= hold_ms + TOLERANCE_MS
        ):
            self._wall_ms = last_known_ms
            self._new_wall_ms = wall_ms

    @property
    def is_held(self) -> bool:
        """Whether the wall clock has jumped and is not believed yet."""
        return self._new_wall_ms is not None

    def read(self, wall_ms: int, monotonic_s: float) -> int:
        """Return the time to go by, in milliseconds since the epoch."""
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
    """Tells whether the wall clock has jumped since somebody looked last."""

    __slots__ = ("_monotonic_s", "_wall_ms")

    def __init__(self, wall_ms: int, monotonic_s: float) -> None:
        """Begin with a first reading."""
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s

    def has_jumped(self, wall_ms: int, monotonic_s: float) -> bool:
        """Take another reading of both clocks."""
        expected_ms = self._wall_ms + _elapsed_ms(self._monotonic_s, monotonic_s)
        self._wall_ms, self._monotonic_s = wall_ms, monotonic_s
        return abs(wall_ms - expected_ms) > TOLERANCE_MS


def _elapsed_ms(since_s: float, now_s: float) -> int:
    return round((now_s - since_s) * 1000)
