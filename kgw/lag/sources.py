"""The values that looks at lag are made of, and what foretells retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kgw.offsets.lag import LagSum, PartitionLag
    from kgw.types import PartitionKey


Forecast: TypeAlias = "Callable[[PartitionKey, int], Awaitable[int]]"
"""Returns where a partition's log would begin if retention ran at a time (wall milliseconds), which
is today's log start where nothing would go. Raises StorageError."""


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
