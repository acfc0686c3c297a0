"""The results of sampling lag, and the points that go into the history.

The history keeps sums of groups and topics, and the greatest lags.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kgw.state.history import LagHistoryPoint
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.offsets.lag import LagSum, PartitionLag
    from kgw.types import PartitionKey


ALL_TOPICS = ""
"""The topic name of sums over a whole group; no real topic has an empty name."""
ALL_PARTITIONS = -1

POINTS_A_SAMPLE = 1_000
"""With more points writing would take noticeable time, and charts would not draw them."""

Forecast: TypeAlias = "Callable[[PartitionKey, int, float], Awaitable[int]]"
"""Returns the offset at which a partition's log would begin if retention ran at a time (in wall
milliseconds): today's log start offset if retention would remove nothing. The last argument is how
fast the log grows now, in bytes a millisecond. Raises StorageError."""


class AtRisk(NamedTuple):
    """A group that has not yet read records that retention will soon remove."""

    group_id: str
    topic: str
    partition: int
    standing: PartitionLag
    next_log_start_offset: int

    @property
    def lost_count(self) -> int:
        """How many offsets the group would miss."""
        return self.standing.lost_by(self.next_log_start_offset)


class PartitionSample(NamedTuple):
    """A group's lag in one partition. `lag` is None if the high watermark could not be read."""

    topic: str
    partition: int
    committed_offset: int
    lag: PartitionLag | None
    age_ms: int | None
    """Age of the first unread record: 0 when all is read, None when it is not known."""


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
    """At most `at_risk_listed` of the monitor; `at_risk_count` counts all of them."""
    at_risk_count: int
    largest: tuple[tuple[str, PartitionSample], ...]
    """The partitions with the greatest lags, each with its group id."""


class Event(NamedTuple):
    """An anomaly that is an event, rather than a state that lasts."""

    at_ms: int
    kind: str
    group_id: str | None
    topic: str
    partition: int
    detail: str


def history_points(sample: LagSample) -> list[LagHistoryPoint]:
    """Return at most `POINTS_A_SAMPLE` points: first groups, then their topics, then partitions.

    Each of the three is sorted by lag, the greatest first. A sum is written as the committed offset
    0 and a high watermark equal to the lag; partitions have their own offsets.
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
        LagHistoryPoint(
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


def _sum(taken_ms: int, group_id: str, topic: str, total: LagSum) -> LagHistoryPoint:
    # NO_OFFSET as the committed offset says that the lag is unknown.
    offset = NO_OFFSET if total.known_lag is None else 0
    return LagHistoryPoint(
        taken_ms, group_id, topic, ALL_PARTITIONS, offset, total.lag, total.time_lag_ms
    )
