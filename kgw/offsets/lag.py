"""The lag of groups, and anomalies of their offsets. Pure.

Lag is the high watermark minus the committed offset (docs/native-offsets.md, rule 7). A partition's
lag may be negative. A negative lag counts as 0 in a sum, so that it does not hide the lag of other
partitions.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.types import TopicId


class LagAnomaly(Enum):
    """Anomalies of offsets. The values are their names in metrics and listings."""

    COMMITTED_AHEAD = "committed-ahead"
    """A group has committed past the high watermark: its lag is below zero."""
    COMMITTED_BELOW_START = "committed-below-start"
    """Retention or DeleteRecords removed records that a group had not read."""
    COMMITTED_DAMAGED = "committed-damaged"
    """The stored offset of a group is damaged."""
    GROUP_STANDING = "group-standing"
    """The group has members and its partitions get records, but the group commits nothing."""
    GROUP_FALLING_BEHIND = "group-falling-behind"
    """The group commits, but its lowest lag rises from each quarter of a period to the next."""
    COMMITTED_BACK = "committed-back"
    """A member committed a lower offset than before.

    The cause may be an application that seeks back, or two members that both believe to own a
    partition.
    """
    HIGH_WATERMARK_BACK = "high-watermark-back"
    """A partition's high watermark is lower than before."""
    OFFSETS_SKIPPED = "offsets-skipped"
    """An append did not begin at the end offset of the append before it."""


class PartitionLag(NamedTuple):
    """A group's committed offset in a partition, and the partition's bounds."""

    committed_offset: int
    log_start_offset: int
    high_watermark: int

    @property
    def lag(self) -> int:
        """The high watermark minus the committed offset; negative if the offset is higher."""
        return self.high_watermark - self.committed_offset

    @property
    def anomaly(self) -> LagAnomaly | None:
        """The anomaly of the committed offset, or None."""
        if self.committed_offset < 0:
            return LagAnomaly.COMMITTED_DAMAGED
        if self.committed_offset > self.high_watermark:
            return LagAnomaly.COMMITTED_AHEAD
        if self.committed_offset < self.log_start_offset:
            return LagAnomaly.COMMITTED_BELOW_START
        return None

    def lost_by(self, next_log_start_offset: int) -> int:
        """Return how many unread offsets of the group lie below a future log start offset."""
        end = min(next_log_start_offset, self.high_watermark)
        return max(0, end - max(self.committed_offset, self.log_start_offset))


class LagSum:
    """The lag of a group in several partitions: in one topic, or in all its topics.

    `known_lag` and `time_lag_ms` are None, not 0, if nothing is known.
    """

    __slots__ = (
        "anomalies",
        "committed",
        "lag",
        "partitions",
        "unknown_ages",
        "unknown_lags",
        "worst_age_ms",
    )

    def __init__(self) -> None:
        self.partitions = 0
        self.committed = 0
        """The sum of the committed offsets, which grows as fast as the group reads."""
        self.lag = 0
        self.anomalies = 0
        self.worst_age_ms = 0
        self.unknown_ages = 0
        """Number of partitions with unread records whose age is not known."""
        self.unknown_lags = 0
        """Number of partitions without a lag, as their committed offset is damaged or their high
        watermark could not be read. They do not count as 0."""

    def add(self, one: PartitionLag, age_ms: int | None) -> None:
        """Add a partition. `age_ms` is None if the age of its first unread record is not known."""
        self.partitions += 1
        anomaly = one.anomaly
        if anomaly is not None:
            self.anomalies += 1
        if anomaly is LagAnomaly.COMMITTED_DAMAGED:
            self.unknown_lags += 1
            return
        self.committed += one.committed_offset
        self.lag += max(0, one.lag)
        if age_ms is None:
            self.unknown_ages += 1
        else:
            self.worst_age_ms = max(self.worst_age_ms, age_ms)

    def add_unknown(self) -> None:
        """Add a partition whose high watermark could not be read: its lag is unknown, not 0."""
        self.partitions += 1
        self.unknown_lags += 1

    def merge(self, other: LagSum) -> None:
        """Add another sum to this one."""
        self.partitions += other.partitions
        self.committed += other.committed
        self.lag += other.lag
        self.anomalies += other.anomalies
        self.unknown_ages += other.unknown_ages
        self.unknown_lags += other.unknown_lags
        self.worst_age_ms = max(self.worst_age_ms, other.worst_age_ms)

    @property
    def known_lag(self) -> int | None:
        """The lag of the partitions with a known lag; None if there are none."""
        return None if self.partitions and self.unknown_lags == self.partitions else self.lag

    @property
    def time_lag_ms(self) -> int | None:
        """The age of the oldest unread record that is known; 0 if all records were read."""
        if self.known_lag is None or (self.unknown_ages and not self.worst_age_ms):
            return None
        return self.worst_age_ms


def record_age_ms(timestamp_ms: int, now_ms: int) -> int | None:
    """Return a record's age, at least 1; None if it has no timestamp.

    An age of 0 means that no record is unread.
    """
    return None if timestamp_ms == NO_TIMESTAMP_MS else max(1, now_ms - timestamp_ms)


class FoundAnomaly(NamedTuple):
    """One anomaly of a group in a partition; without a group id, of a partition."""

    kind: LagAnomaly
    group_id: str | None
    topic_id: TopicId
    partition: int | None
    """None for an anomaly of a group in a whole topic."""


class Occurrences:
    """The open findings. A finding is counted once, when it first appears, until it is gone.

    At most `limit` findings are kept. Further findings are neither counted nor listed, as they
    would be counted again in every round; `is_full` is set then.
    """

    __slots__ = ("_limit", "_open", "_seen", "is_full")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[FoundAnomaly, int] = {}
        self._seen: set[FoundAnomaly] = set()
        self.is_full = False

    def __len__(self) -> int:
        return len(self._open)

    def see(self, finding: FoundAnomaly, now_ms: int) -> bool:
        """Add a finding of this round. Return whether it is new and was kept."""
        if finding in self._open:
            self._seen.add(finding)
            return False
        if len(self._open) >= self._limit:
            self.is_full = True
            return False
        self._seen.add(finding)
        self._open[finding] = now_ms
        return True

    def keep(self, finding: FoundAnomaly) -> None:
        """Keep an open finding that this round could not check. Does nothing if it is not open."""
        if finding in self._open:
            self._seen.add(finding)

    def finish_look(self) -> None:
        """End the round: close the findings that were neither seen nor kept in it."""
        gone = [one for one in self._open if one not in self._seen]
        for one in gone:
            del self._open[one]
        self._seen.clear()
        if gone:
            self.is_full = False

    def __iter__(self) -> Iterator[FoundAnomaly]:
        return iter(self._open)

    def items(self) -> list[tuple[FoundAnomaly, int]]:
        """Return every open finding with the wall time in milliseconds when it was first seen."""
        return list(self._open.items())
