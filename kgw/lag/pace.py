"""How fast a log grows now: what a mean over days does not show. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

RECENT_S: Final = 60.0
"""What was written in a moment says nothing about an hour: growth counts as that of a minute."""


class Pace(NamedTuple):
    """Two marks of how much a log had grown: one of them is a minute old, where looks are so often.

    A single one would be too fresh to tell anything each time that it is moved.
    """

    older_s: float
    older_bytes: int
    newer_s: float
    newer_bytes: int

    @classmethod
    def begin(cls, now_s: float, grown_bytes: int) -> Self:
        """Return what one look knows: nothing yet."""
        return cls(now_s, grown_bytes, now_s, grown_bytes)

    def bytes_a_ms(self, now_s: float, grown_bytes: int) -> float:
        """Return the faster pace of the two since then."""
        return (
            max(
                (grown_bytes - self.older_bytes) / max(RECENT_S, now_s - self.older_s),
                (grown_bytes - self.newer_bytes) / max(RECENT_S, now_s - self.newer_s),
            )
            / 1000
        )

    def moved(self, now_s: float, grown_bytes: int) -> Pace:
        """Return the marks for the looks to come."""
        if grown_bytes < self.newer_bytes:
            return Pace.begin(now_s, grown_bytes)  # the partition was opened anew
        if now_s - self.newer_s < RECENT_S:
            return self
        return Pace(self.newer_s, self.newer_bytes, now_s, grown_bytes)
