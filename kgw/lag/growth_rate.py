"""The recent growth rate of a log, which an average over days does not show. No I/O."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

RECENT_S: Final = 60.0
"""Growth is divided by at least this time, as a shorter time says nothing about an hour."""


class GrowthRate(NamedTuple):
    """The sizes of a log at two earlier times, from which a rate can be computed at any time.

    A single size would be too recent just after its update. With frequent samples, the older size
    is at least a minute old.
    """

    older_s: float
    older_bytes: int
    newer_s: float
    newer_bytes: int

    @classmethod
    def begin(cls, now_s: float, grown_bytes: int) -> Self:
        """Return the object for a first sample, which does not show any growth yet."""
        return cls(now_s, grown_bytes, now_s, grown_bytes)

    def bytes_a_ms(self, now_s: float, grown_bytes: int) -> float:
        """Return the higher of the growth rates since the older and since the newer time."""
        return (
            max(
                (grown_bytes - self.older_bytes) / max(RECENT_S, now_s - self.older_s),
                (grown_bytes - self.newer_bytes) / max(RECENT_S, now_s - self.newer_s),
            )
            / 1000
        )

    def moved(self, now_s: float, grown_bytes: int) -> GrowthRate:
        """Return the object for the next samples."""
        if grown_bytes < self.newer_bytes:
            return GrowthRate.begin(now_s, grown_bytes)  # the partition was reopened
        if now_s - self.newer_s < RECENT_S:
            return self
        return GrowthRate(self.newer_s, self.newer_bytes, now_s, grown_bytes)
