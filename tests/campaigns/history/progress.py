"""Judges whether everybody went on after each fault."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from tests.campaigns.history.events import NO_PARTITION, Anomaly, AnomalyKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def check_progress(
    healed_s: Sequence[float], progressed_s: Mapping[str, Sequence[float]], within_s: float
) -> list[Anomaly]:
    """Return who did nothing that succeeded within a time after everything was healed.

    `progressed_s` says of each process when its operations succeeded, in order; both are times of
    one clock, in seconds. A healing after which the faults began again within that time is none to
    ask about.
    """
    anomalies = []
    for process, times in progressed_s.items():
        for healed in healed_s:
            after = bisect_right(times, healed)
            if after == len(times) or times[after] > healed + within_s:
                detail = f"{process} did nothing within {within_s:g} s of {healed:.1f} s"
                anomalies.append(Anomaly(AnomalyKind.STUCK, NO_PARTITION, detail))
    return anomalies
