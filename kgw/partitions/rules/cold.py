"""Decides which segments of a partition are cold and get compressed with zstd. No I/O.

A closed segment is cold if its newest record is older than kgw.cold.compression.after.ms, by the
timestamps that retention uses, and if all earlier segments are cold. Each segment is recompressed
at most once. In a compacted topic only compacted segments are recompressed: compaction rewrites the
others anyway, and keeps the codec of each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.partitions.rules.retention import count_expired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import SegmentInfo

RUN_BYTES: Final = 1 << 30
"""A run takes no further segment when it has this many bytes, as compaction waits for its end."""


class ColdRules(NamedTuple):
    """The settings of a topic for recompression."""

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
    """Return the end offset of the next run; `done_end`, the end of the last run, for no run.

    The last segment is the active one. Segments that end above `upper_bound` must wait, if it is
    given.
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
