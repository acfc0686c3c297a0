"""Decides which segments retention removes, and when the active segment is closed. No I/O.

The rules are Kafka's. Whole segments are removed, the oldest first, and none with an offset at or
above the last stable offset (in Kafka: the high watermark, so that records of an open transaction
may be removed before consumers can read them):

* by time, while the greatest timestamp of the segment is older than retention.ms. A timestamp in
  the future keeps its segment and all later segments until it is past;
* by size, while the log without the segment has at least retention.bytes;
* by offset (not in Kafka), below kgw.retention.offset, which may lie inside a segment.

If the active segment must be removed as well, it is closed first, and the log continues in a new
segment at the same offset.

Two rules differ from Kafka's. For a segment without timestamps, the time at which the next segment
was begun counts; Kafka uses the modification time of the file. A segment that is old enough is
closed at once: Kafka waits for the next append, so that a topic without appends keeps expired
records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import Recompressed, SegmentInfo
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Sequence


NO_LIMIT: Final = -1

BY_TIME: Final = "time"
BY_SIZE: Final = "size"
BY_OFFSET: Final = "offset"
BY_REQUEST: Final = "request"
"""The reasons for a removal of records; the last one is DeleteRecords."""

# Spreads neighbouring partitions over the jitter, by Knuth's multiplicative hash.
_SPREAD: Final = 2_654_435_761
_SPREAD_MODULUS: Final = 1 << 32
_SHORTEST_PACE_MS: Final = 3_600_000
_NOTHING_RECOMPRESSED: Final = Recompressed()


class RetentionRules(NamedTuple):
    """The settings of a topic for retention; NO_LIMIT if there is none."""

    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    retention_offset: int = NO_LIMIT
    segment_ms: int = (1 << 63) - 1
    segment_jitter_ms: int = 0

    @property
    def removes(self) -> bool:
        """Whether there is any limit."""
        return self.retention_ms >= 0 or self.retention_bytes >= 0 or self.retention_offset > 0


class Removal(NamedTuple):
    """A removal by one rule: all segments below a new log start offset."""

    rule: str
    new_log_start: int
    segments: int
    size_bytes: int


class RetentionPlan(NamedTuple):
    """The next steps of retention. The log start offsets of the removals rise."""

    must_roll: bool
    """Whether to close the active segment and plan again: it must be removed, or is old enough."""
    removals: tuple[Removal, ...]


def plan_retention(
    segments: Sequence[SegmentInfo],
    rules: RetentionRules,
    *,
    log_start_offset: int,
    last_stable_offset: int,
    now_ms: int,
    partition_index: int = 0,
) -> RetentionPlan:
    """Return what retention does to a log with these segments, of which the last is active."""
    must_roll = bool(segments) and is_old(segments[-1], rules, now_ms, partition_index)
    removals: list[Removal] = []
    start = log_start_offset
    gone = 0
    for rule, wanted in (
        (BY_TIME, count_expired(segments, rules.retention_ms, now_ms)),
        (BY_SIZE, _in_excess(segments, rules.retention_bytes)),
    ):
        count = _committed(segments, wanted, last_stable_offset)
        if count and count == len(segments):
            # An empty segment is left; any other segment is closed first.
            must_roll = must_roll or segments[-1].end_offset > segments[-1].base_offset
            count -= 1
        if count > gone:
            removed = segments[gone:count]
            end = max(start, removed[-1].end_offset)
            size_bytes = sum(segment.size_bytes for segment in removed)
            removals.append(Removal(rule, end, len(removed), size_bytes))
            start, gone = end, count
    floor = min(rules.retention_offset, last_stable_offset)
    if floor > start:
        whole = [segment for segment in segments[gone:-1] if segment.end_offset <= floor]
        size_bytes = sum(segment.size_bytes for segment in whole)
        removals.append(Removal(BY_OFFSET, floor, len(whole), size_bytes))
    return RetentionPlan(must_roll, tuple(removals))


def forecast_log_start(
    segments: Sequence[SegmentInfo],
    rules: RetentionRules,
    *,
    log_start_offset: int,
    last_stable_offset: int,
    now_ms: int,
    at_ms: int,
    recompressed: Recompressed = _NOTHING_RECOMPRESSED,
    recent_bytes_a_ms: float = 0.0,
) -> int:
    """Return the estimated log start offset after retention has run at a later time.

    With retention.bytes, new records cause the removal of old ones. The forecast assumes that the
    log grows as fast as it has grown since its oldest segment was begun, or at `recent_bytes_a_ms`
    if that is faster; `recompressed` segments count with their size before recompression. If the
    active segment must be removed, a second plan is made as if it had been closed.
    """
    if rules.retention_bytes >= 0:
        pace = max(_bytes_a_ms(segments, now_ms, recompressed), recent_bytes_a_ms)
        grown_bytes = int(pace * (at_ms - now_ms))
        rules = rules._replace(retention_bytes=max(0, rules.retention_bytes - grown_bytes))
    start = log_start_offset
    for known in (segments, _closed(segments)):
        plan = plan_retention(
            known,
            rules,
            log_start_offset=start,
            last_stable_offset=last_stable_offset,
            now_ms=at_ms,
        )
        if plan.removals:
            start = plan.removals[-1].new_log_start
        if not plan.must_roll:
            break
    return start


def _bytes_a_ms(segments: Sequence[SegmentInfo], now_ms: int, recompressed: Recompressed) -> float:
    """Return the growth of a log since its oldest segment was begun, in bytes per millisecond."""
    begun_ms = next((one.begun_ms for one in segments if one.begun_ms != NO_TIMESTAMP_MS), now_ms)
    factor = 1.0
    if recompressed.bytes_after:
        factor = recompressed.bytes_before / recompressed.bytes_after
    size_bytes = sum(
        one.size_bytes * (factor if one.end_offset <= recompressed.end_offset else 1.0)
        for one in segments
    )
    # The rate of a short time is no estimate for an hour.
    return size_bytes / max(_SHORTEST_PACE_MS, now_ms - begun_ms)


def _closed(segments: Sequence[SegmentInfo]) -> Sequence[SegmentInfo]:
    """Return the segments as if the active one had been closed."""
    end = segments[-1].end_offset if segments else 0
    return [*segments, SegmentInfo(end, end, 0, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS)]


def is_old(active: SegmentInfo, rules: RetentionRules, now_ms: int, partition_index: int) -> bool:
    """Return whether the active segment is old enough to be closed. An empty segment never is."""
    if active.begun_ms == NO_TIMESTAMP_MS or active.end_offset == active.base_offset:
        return False
    jitter_ms = rules.segment_jitter_ms
    share_ms = jitter_ms * (partition_index * _SPREAD % _SPREAD_MODULUS) // _SPREAD_MODULUS
    return now_ms - active.begun_ms > rules.segment_ms - min(share_ms, rules.segment_ms)


def count_expired(segments: Sequence[SegmentInfo], retention_ms: int, now_ms: int) -> int:
    """Return how many of the oldest segments have expired; 0 if there is no limit."""
    if retention_ms < 0:
        return 0
    for index, segment in enumerate(segments):
        newest_ms = segment.largest_timestamp_ms
        if newest_ms == NO_TIMESTAMP_MS and index + 1 < len(segments):
            # All records of the segment were written before the next segment was begun.
            newest_ms = segments[index + 1].begun_ms
        is_unknown = newest_ms == NO_TIMESTAMP_MS and segment.end_offset > segment.base_offset
        if is_unknown or now_ms - newest_ms <= retention_ms:
            return index
    return len(segments)


def _in_excess(segments: Sequence[SegmentInfo], retention_bytes: int) -> int:
    """Return how many of the oldest segments can be removed so that the log still has this size."""
    if retention_bytes < 0:
        return 0
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    for index, segment in enumerate(segments):
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0:
            return index
    return len(segments)


def _committed(segments: Sequence[SegmentInfo], count: int, last_stable_offset: int) -> int:
    """Return how many of the first `count` segments are completely below the last stable offset."""
    while count and segments[count - 1].end_offset > last_stable_offset:
        count -= 1
    return count
