"""Decides which partition is compacted next, and up to which offset. No I/O.

As in Kafka, segments that have been compacted are clean, and the following segments that may be
compacted are dirty. A partition is compacted once its ratio of dirty bytes exceeds
min.cleanable.dirty.ratio, or its oldest dirty record is older than max.compaction.lag.ms. The
partition with the highest ratio comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import SegmentInfo


class CompactionRules(NamedTuple):
    """The settings of a topic for compaction."""

    min_dirty_ratio: float = 0.5
    min_lag_ms: int = 0
    max_lag_ms: int = (1 << 63) - 1
    delete_retention_ms: int = 86_400_000


class Dirtiness(NamedTuple):
    """The part of a partition that has to be compacted."""

    begin_offset: int
    """The first offset of the dirty part."""
    upper_bound: int
    """The end offset of the dirty part. Records at or above it may not be compacted yet."""
    dirty_bytes: int
    clean_bytes: int
    is_overdue: bool
    """Whether a dirty record is older than max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        total_bytes = self.dirty_bytes + self.clean_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, rules: CompactionRules) -> bool:
        """Return whether the partition is dirty enough to be compacted."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > rules.min_dirty_ratio)

    @property
    def urgency(self) -> tuple[bool, float]:
        """The sort key for compaction: the highest value comes first."""
        return self.is_overdue, self.ratio


def measure_dirtiness(
    segments: Sequence[SegmentInfo],
    rules: CompactionRules,
    *,
    compacted_end: int,
    last_stable_offset: int,
    now_ms: int,
) -> Dirtiness:
    """Return how dirty a log with these segments is. The last segment is the active one.

    The bound is the beginning of the first of these segments: the active segment, the segment with
    the last stable offset, the first dirty segment with a record younger than
    min.compaction.lag.ms.
    """
    upper_bound = compacted_end
    dirty_bytes = clean_bytes = 0
    is_overdue = False
    for segment in segments[:-1]:
        if segment.end_offset <= compacted_end:
            clean_bytes += segment.size_bytes
            continue
        if segment.end_offset > last_stable_offset:
            break
        if rules.min_lag_ms > 0 and now_ms - segment.largest_timestamp_ms < rules.min_lag_ms:
            break
        if segment.begun_ms != NO_TIMESTAMP_MS and now_ms - segment.begun_ms > rules.max_lag_ms:
            is_overdue = True
        dirty_bytes += segment.size_bytes
        upper_bound = segment.end_offset
    return Dirtiness(compacted_end, upper_bound, dirty_bytes, clean_bytes, is_overdue)
