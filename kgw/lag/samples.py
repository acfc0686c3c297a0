"""What a look at lag finds, and what of it goes into the history.

The history keeps sums of groups and topics, and the greatest lags.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kgw.state.history import LagSample as HistoryPoint
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.offsets.lag import LagSum, PartitionLag
    from kgw.types import PartitionKey


ALL_TOPICS = ""
"""Stands for the topic in the sum of a whole group; no topic has an empty name."""
ALL_PARTITIONS = -1

POINTS_A_SAMPLE = 1_000
"""More would not be drawn, and writing them would show."""

Forecast: TypeAlias = "Callable[[PartitionKey, int, float], Awaitable[int]]"
"""Returns where a partition's log would begin if retention ran at a time (wall milliseconds), which
is today's log start where nothing would go. The last argument is how fast it grows now, in bytes
a millisecond. Raises StorageError."""


class AtRisk(NamedTuple):
    """A group that has yet to read what retention is about to remove."""

    group_id: str
    topic: str
    partition: int
    standing: PartitionLag
    next_log_start_offset: int

    @property
    def lost_count(self) -> int:
        """How many offsets the group would miss."""
        return self.standing.lost_by(self.next_log_start_offset)


class Standing(NamedTuple):
    """One partition of a group. `lag` is None where the high watermark could not be had."""

    topic: str
    partition: int
    committed_offset: int
    lag: PartitionLag | None
    age_ms: int | None
    """Age of the first unread record: 0 when there is none, None when it is not known."""


class GroupSample(NamedTuple):
    """One group's sums."""

    group_id: str
    total: LagSum
    topics: dict[str, LagSum]


class LagSample(NamedTuple):
    """Every group's lag at one time."""

    taken_ms: int
    took_s: float
    groups: dict[str, GroupSample]
    at_risk: tuple[AtRisk, ...]
    """At most `at_risk_listed` of the monitor; `at_risk_count` has them all."""
    at_risk_count: int
    largest: tuple[tuple[str, Standing], ...]
    """Group id and place of the partitions with the greatest lags."""


class Event(NamedTuple):
    """An anomaly that happened, rather than one that lasts."""

    at_ms: int
    kind: str
    group_id: str | None
    topic: str
    partition: int
    detail: str


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
