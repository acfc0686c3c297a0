"""Which segments of a partition are cold enough to be put into zstd. Pure.

A closed segment is when its newest record is older than kgw.cold.compression.after.ms, by the
timestamps that retention uses. A segment that is not cold keeps the segments after it from being
cold. Each segment is recompressed at most once. A compacted topic is compacted first: compaction
will rewrite the other segments anyway, and keeps the codec of each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.partitions.rules.retention import count_expired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import SegmentInfo

RUN_BYTES: Final = 1 << 30
"""A run takes no further segment once it has this many bytes, as compaction waits for it."""


class ColdRules(NamedTuple):
    """What a topic's settings say."""

    after_ms: int
    level: int


def find_cold_end(
    segments: Sequence[SegmentInfo],
    rules: ColdRules,
    *,
    done_end: int,
    upper_bound: int | None,
    now_ms: int,
) -> int:
    """Return the end offset of the next run; `done_end`, the last run's end, for no run.

    The last segment is active. Segments that end above `upper_bound`, if it is given, must wait.
    """
    end, size_bytes = done_end, 0
    for segment in segments[
        : min(count_expired(segments, rules.after_ms, now_ms), len(segments) - 1)
    ]:
        if upper_bound is not None and segment.end_offset > upper_bound:
            break
        if segment.end_offset <= done_end:
            continue
        if size_bytes >= RUN_BYTES:
            break
        size_bytes += segment.size_bytes
        end = segment.end_offset
    return end
