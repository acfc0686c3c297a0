"""What retention removes of a partition, and when its active segment is closed. Pure.

The rules are Kafka's. Segments go whole and from the oldest on, never one that holds something at
or above the last stable offset (in Kafka: the high watermark; the records of an open transaction
would be gone before anybody could read them):

* by time, while the greatest timestamp of the segment is older than retention.ms. A time in the
  future keeps its segment, and those after it, until it is past;
* by size, while what is left without the segment is at least retention.bytes;
* by offset (ours), below kgw.retention.offset, which may lie inside a segment.

An active segment that must go as well is closed first, so that the log goes on at the same offset.

Two things are ours. A segment without any timestamp is as old as the segment after it, where
Kafka takes the time of its file. And a segment is closed at its age whether or not something is
appended: Kafka waits for the next append, so that a quiet topic keeps what it should not.
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
"""Why records were removed; the last one is DeleteRecords."""

# Spreads neighbouring partitions over the jitter (Knuth's multiplicative hash).
_SPREAD: Final = 2_654_435_761
_SPREAD_MODULUS: Final = 1 << 32
_SHORTEST_PACE_MS: Final = 3_600_000
_NOTHING_RECOMPRESSED: Final = Recompressed()


class RetentionRules(NamedTuple):
    """What a topic's settings say; NO_LIMIT where they say nothing."""

    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    retention_offset: int = NO_LIMIT
    segment_ms: int = (1 << 63) - 1
    segment_jitter_ms: int = 0

    @property
    def removes(self) -> bool:
        """Whether there is any limit at all."""
        return self.retention_ms >= 0 or self.retention_bytes >= 0 or self.retention_offset > 0


class Removal(NamedTuple):
    """The removal of one rule: the segments below a new log start."""

    rule: str
    new_log_start: int
    segments: int
    size_bytes: int


class RetentionPlan(NamedTuple):
    """What is to be done now. The removals' log starts rise."""

    must_roll: bool
    """Close the active segment, then plan again: it must go too, or is old enough."""
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
    """Return what retention does to a log with these segments, the last of them active."""
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
            # An empty one stays as it is; any other is closed first.
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
    """Return where the log will begin once retention has run at a later time, as far as known.

    Producers are taken to go on at the pace of the segments that are there, of those that have been
    `recompressed` by what they were before, or at the recent pace where that is faster: their bytes
    push older ones out. An active segment that must go is closed and goes, as the second run of a
    plan finds.
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
    """Return how fast a log has grown since its oldest segment was begun."""
    begun_ms = next((one.begun_ms for one in segments if one.begun_ms != NO_TIMESTAMP_MS), now_ms)
    factor = 1.0
    if recompressed.bytes_after:
        factor = recompressed.bytes_before / recompressed.bytes_after
    size_bytes = sum(
        one.size_bytes * (factor if one.end_offset <= recompressed.end_offset else 1.0)
        for one in segments
    )
    # What was written in a moment says nothing about an hour.
    return size_bytes / max(_SHORTEST_PACE_MS, now_ms - begun_ms)


def _closed(segments: Sequence[SegmentInfo]) -> Sequence[SegmentInfo]:
    """Return the segments as they are once the active one has been closed."""
    end = segments[-1].end_offset if segments else 0
    return [*segments, SegmentInfo(end, end, 0, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS)]


def is_old(active: SegmentInfo, rules: RetentionRules, now_ms: int, partition_index: int) -> bool:
    """Whether an active segment that holds something has reached the age at which it is closed."""
    if active.begun_ms == NO_TIMESTAMP_MS or active.end_offset == active.base_offset:
        return False
    jitter_ms = rules.segment_jitter_ms
    share_ms = jitter_ms * (partition_index * _SPREAD % _SPREAD_MODULUS) // _SPREAD_MODULUS
    return now_ms - active.begun_ms > rules.segment_ms - min(share_ms, rules.segment_ms)


def count_expired(segments: Sequence[SegmentInfo], retention_ms: int, now_ms: int) -> int:
    """Return how many segments from the oldest on are older than that; none where it is below 0."""
    if retention_ms < 0:
        return 0
    for index, segment in enumerate(segments):
        newest_ms = segment.largest_timestamp_ms
        if newest_ms == NO_TIMESTAMP_MS and index + 1 < len(segments):
            # All of it was written by the time the next one was begun.
            newest_ms = segments[index + 1].begun_ms
        is_unknown = newest_ms == NO_TIMESTAMP_MS and segment.end_offset > segment.base_offset
        if is_unknown or now_ms - newest_ms <= retention_ms:
            return index
    return len(segments)


def _in_excess(segments: Sequence[SegmentInfo], retention_bytes: int) -> int:
    """Return how many segments from the oldest on the log can lose and still be that large."""
    if retention_bytes < 0:
        return 0
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    for index, segment in enumerate(segments):
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0:
            return index
    return len(segments)


def _committed(segments: Sequence[SegmentInfo], count: int, last_stable_offset: int) -> int:
    """Return how many of the first `count` segments hold nothing above the last stable offset."""
    while count and segments[count - 1].end_offset > last_stable_offset:
        count -= 1
    return count
