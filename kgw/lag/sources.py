"""What lag is read from: narrow views of groups and partitions, and the values that come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kgw.backend.base import PartitionLog
    from kgw.offsets.lag import LagSum, PartitionLag
    from kgw.offsets.table import OffsetTable
    from kgw.types import PartitionKey, TopicId


class TopicIdentity(Protocol):
    """Which topic a partition is of."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> TopicId: ...


class WatchedTopic(TopicIdentity, Protocol):
    """A topic, as far as lag goes."""

    def partition(self, index: int) -> WatchedPartition | None: ...


class WatchedPartition(Protocol):
    """A partition, as far as lag goes."""

    @property
    def topic(self) -> TopicIdentity: ...

    @property
    def index(self) -> int: ...

    @property
    def log(self) -> PartitionLog:
        """Whose marks may raise StorageError where they are not at hand."""

    @property
    def skip_count(self) -> int:
        """Appends that did not begin where the one before had ended."""


class Topics(Protocol):
    """Every topic that is served. None means that there is no such topic, and nothing else."""

    def by_id(self, topic_id: TopicId) -> WatchedTopic | None: ...

    def partitions(self) -> Iterable[WatchedPartition]: ...


class Groups(Protocol):
    """Every group, by its durable offsets."""

    def ids(self) -> list[str]: ...

    def offsets(self, group_id: str) -> OffsetTable | None: ...


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
