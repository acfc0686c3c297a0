"""How far consumers are behind, and what cannot be right about it. Pure.

Lag is the high watermark minus the committed offset (docs/native-offsets.md, rule 7). Numbers come
in as they are, a lag below zero among them; sums never let one partition's impossible lag hide
another's.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.types import TopicId


class LagAnomaly(Enum):
    """What should not be seen of offsets, as metrics and listings name it."""

    COMMITTED_AHEAD = "committed-ahead"
    """A group has committed past the high watermark: its lag is below zero."""
    COMMITTED_BELOW_START = "committed-below-start"
    """Retention or DeleteRecords removed records that a group had not read."""
    COMMITTED_DAMAGED = "committed-damaged"
    """The stored offset of a group cannot be read any more."""
    GROUP_STANDING = "group-standing"
    """Members are there and records come, and the group commits nothing."""
    GROUP_FALLING_BEHIND = "group-falling-behind"
    """A group commits, and has more to read from quarter to quarter of a period."""
    COMMITTED_BACK = "committed-back"
    """A member committed less than was committed before. An application that seeks back does so;
    two members that both believe to own a partition do too."""
    HIGH_WATERMARK_BACK = "high-watermark-back"
    """A partition's high watermark is lower than it was seen before."""
    OFFSETS_SKIPPED = "offsets-skipped"
    """An append did not begin where the one before it had ended."""


class PartitionLag(NamedTuple):
    """Where a group stands in one partition."""

    committed_offset: int
    log_start_offset: int
    high_watermark: int

    @property
    def lag(self) -> int:
        """The high watermark minus the committed offset; below zero when that is ahead of it."""
        return self.high_watermark - self.committed_offset

    @property
    def anomaly(self) -> LagAnomaly | None:
        """What is wrong with the committed offset; None when nothing is."""
        if self.committed_offset < 0:
            return LagAnomaly.COMMITTED_DAMAGED
        if self.committed_offset > self.high_watermark:
            return LagAnomaly.COMMITTED_AHEAD
        if self.committed_offset < self.log_start_offset:
            return LagAnomaly.COMMITTED_BELOW_START
        return None

    def lost_by(self, next_log_start_offset: int) -> int:
        """How many offsets the group has yet to read lie below a log start that is to come."""
        end = min(next_log_start_offset, self.high_watermark)
        return max(0, end - max(self.committed_offset, self.log_start_offset))


class LagSum:
    """The lag of several partitions: of a topic in a group, or of a group.

    `known_lag` and `time_lag_ms` are None rather than 0 where nothing is known.
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
        """All committed offsets added up: how fast it grows is how fast is read."""
        self.lag = 0
        self.anomalies = 0
        self.worst_age_ms = 0
        self.unknown_ages = 0
        """Partitions with unread records whose age is not known."""
        self.unknown_lags = 0
        """Partitions without a lag: damaged, or where the look-up failed. They are not 0."""

    def add(self, one: PartitionLag, age_ms: int | None) -> None:
        """Count a partition in; `age_ms` is None where the first unread record's is not known."""
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
        """Count a partition in whose high watermark could not be had: a failure is no zero."""
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
        """The lag as far as known; None when nothing of it is."""
        return None if self.partitions and self.unknown_lags == self.partitions else self.lag

    @property
    def time_lag_ms(self) -> int | None:
        """Age of the oldest unread record as far as known; 0 when everything has been read."""
        if self.known_lag is None or (self.unknown_ages and not self.worst_age_ms):
            return None
        return self.worst_age_ms


def record_age_ms(timestamp_ms: int, now_ms: int) -> int | None:
    """Return how old a record is: None without a time, 1 for one of now or from the future.

    0 is the age of what has been read.
    """
    return None if timestamp_ms == NO_TIMESTAMP_MS else max(1, now_ms - timestamp_ms)


class Finding(NamedTuple):
    """One anomaly at one place. A group's id is None where it is the partition's own."""

    kind: LagAnomaly
    group_id: str | None
    topic_id: TopicId
    partition: int | None
    """None where it is of a group in a topic as a whole."""


class Occurrences:
    """Which findings are open, so that each counts once from when it appears until it has gone.

    `limit` bounds what is remembered. What does not fit is neither counted nor listed, for it would
    be counted at each look; `is_full` says so.
    """

    __slots__ = ("_limit", "_open", "_seen", "is_full")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[Finding, int] = {}
        self._seen: set[Finding] = set()
        self.is_full = False

    def __len__(self) -> int:
        return len(self._open)

    def see(self, finding: Finding, now_ms: int) -> bool:
        """Note that a finding is there in this look; whether it is new."""
        if finding in self._open:
            self._seen.add(finding)
            return False
        if len(self._open) >= self._limit:
            self.is_full = True
            return False
        self._seen.add(finding)
        self._open[finding] = now_ms
        return True

    def keep(self, finding: Finding) -> None:
        """Let a finding stay open where this look could not tell; nothing when it is not open."""
        if finding in self._open:
            self._seen.add(finding)

    def finish_look(self) -> None:
        """Close what was not seen since the last look ended."""
        gone = [one for one in self._open if one not in self._seen]
        for one in gone:
            del self._open[one]
        self._seen.clear()
        if gone:
            self.is_full = False

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._open)

    def items(self) -> list[tuple[Finding, int]]:
        """Return every open finding, and since when it is known (wall time in milliseconds)."""
        return list(self._open.items())
