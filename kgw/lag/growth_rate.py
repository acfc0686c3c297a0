"""The recent growth rate of a log, which an average over days hides. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

RECENT_S: Final = 60.0
"""The shortest time that growth is divided by: growth within a moment says nothing about an
hour."""


class GrowthRate(NamedTuple):
    """How much a log had grown at two times, so that a rate can be computed at any time.

    A single mark would be too fresh for that whenever it has just been moved. If samples are
    frequent, the older one is at least a minute old.
    """

    older_s: float
    older_bytes: int
    newer_s: float
    newer_bytes: int

    @classmethod
    def begin(cls, now_s: float, grown_bytes: int) -> Self:
        """Return the pace after the first sample, which does not show any growth yet."""
        return cls(now_s, grown_bytes, now_s, grown_bytes)

    def bytes_a_ms(self, now_s: float, grown_bytes: int) -> float:
        """Return the greater of the two growth rates since the older and since the newer time."""
        return (
            max(
                (grown_bytes - self.older_bytes) / max(RECENT_S, now_s - self.older_s),
                (grown_bytes - self.newer_bytes) / max(RECENT_S, now_s - self.newer_s),
            )
            / 1000
        )

    def moved(self, now_s: float, grown_bytes: int) -> GrowthRate:
        """Return the pace for the next samples."""
        if grown_bytes < self.newer_bytes:
            return GrowthRate.begin(now_s, grown_bytes)  # the partition was reopened
        if now_s - self.newer_s < RECENT_S:
            return self
        return GrowthRate(self.newer_s, self.newer_bytes, now_s, grown_bytes)
