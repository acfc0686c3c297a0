"""What of a sample goes into the history: sums of groups and topics, and the greatest lags."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

from kgw.state.history import LagSample as HistoryPoint
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from kgw.lag.sources import LagSample
    from kgw.offsets.lag import LagSum

ALL_TOPICS = ""
"""Stands for the topic in the sum of a whole group; no topic has an empty name."""
ALL_PARTITIONS = -1

POINTS_A_SAMPLE = 1_000
"""More would not be drawn, and writing them would show."""


def history_points(sample: LagSample) -> list[HistoryPoint]:
    """Return at most `POINTS_A_SAMPLE`: groups, then their topics, then partitions.

    Of each the greatest lags come first. A sum has its lag between the offsets 0 and that lag;
    partitions have their own offsets.
    """
    groups = nsmallest(
        POINTS_A_SAMPLE,
        sample.groups.values(),
        key=lambda one: (-one.total.lag, one.group_id),
    )
    points = [_sum(sample.taken_ms, one.group_id, ALL_TOPICS, one.total) for one in groups]
    topics = nsmallest(
        POINTS_A_SAMPLE - len(points),
        ((one.group_id, name, part) for one in groups for name, part in one.topics.items()),
        key=lambda one: (-one[2].lag, one[0], one[1]),
    )
    points += [_sum(sample.taken_ms, *one) for one in topics]
    points += [
        HistoryPoint(
            sample.taken_ms,
            group_id,
            one.topic,
            one.partition,
            one.committed_offset,
            one.lag.high_watermark,
            one.age_ms,
        )
        for group_id, one in sample.largest[: POINTS_A_SAMPLE - len(points)]
        if one.lag is not None
    ]
    return points


def _sum(taken_ms: int, group_id: str, topic: str, total: LagSum) -> HistoryPoint:
    # Without an offset a point has no lag: nothing of it is known.
    offset = NO_OFFSET if total.known_lag is None else 0
    return HistoryPoint(
        taken_ms, group_id, topic, ALL_PARTITIONS, offset, total.lag, total.time_lag_ms
    )
