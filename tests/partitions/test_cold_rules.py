from __future__ import annotations

from kgw.backend.base import SegmentInfo
from kgw.partitions.rules.cold import RUN_BYTES, ColdRules, find_cold_end
from kgw.types import NO_TIMESTAMP_MS

RULES = ColdRules(after_ms=1_000, level=3)


def segment(number: int, largest_ms: int, size_bytes: int = 100) -> SegmentInfo:
    """Return the segment of ten offsets with this number."""
    return SegmentInfo(10 * number, 10 * number + 10, size_bytes, largest_ms, largest_ms)


def cold_end(
    segments: list[SegmentInfo],
    *,
    done_end: int = 0,
    upper_bound: int | None = None,
    now_ms: int = 5_000,
) -> int:
    """Return up to where a run may go by `RULES`."""
    return find_cold_end(segments, RULES, done_end=done_end, upper_bound=upper_bound, now_ms=now_ms)


def test_a_segment_is_cold_when_its_newest_record_is_old_enough() -> None:
    """To the millisecond."""
    segments = [segment(0, 3_999), segment(1, 4_000), segment(2, 4_500)]
    assert 10 == cold_end(segments)
    assert 20 == cold_end(segments, now_ms=5_001)


def test_the_active_segment_is_never_cold() -> None:
    """However old it is."""
    assert 10 == cold_end([segment(0, 0), segment(1, 0)])
    assert 0 == cold_end([segment(0, 0)])
    assert 0 == cold_end([])


def test_a_segment_from_the_future_keeps_those_behind_it() -> None:
    """As retention has it."""
    assert 10 == cold_end([segment(0, 0), segment(1, 9_000), segment(2, 0), segment(3, 0)])


def test_a_segment_without_times_is_as_old_as_the_one_behind_it() -> None:
    """As retention has it."""
    unknown = SegmentInfo(0, 10, 100, NO_TIMESTAMP_MS, 0)
    assert 0 == cold_end([unknown, segment(1, 4_500), segment(2, 4_600)])
    assert 20 == cold_end([unknown, segment(1, 3_000), segment(2, 4_600)])


def test_what_was_tried_is_not_tried_again() -> None:
    """But for a segment that compaction has joined with what was not."""
    segments = [segment(0, 0), segment(1, 0), segment(2, 0)]
    assert 20 == cold_end(segments, done_end=20)
    assert 20 == cold_end(segments, done_end=15)


def test_in_a_compacted_topic_compaction_comes_first() -> None:
    """A segment that it has not wholly seen has to wait."""
    segments = [segment(0, 0), segment(1, 0), segment(2, 0)]
    assert 10 == cold_end(segments, upper_bound=19)
    assert 20 == cold_end(segments, upper_bound=20)


def test_a_run_ends_when_it_has_much() -> None:
    """One segment at least; then compaction has its turn."""
    half = RUN_BYTES // 2
    segments = [segment(number, 0, half) for number in range(5)] + [segment(5, 0)]
    assert 20 == cold_end(segments)
    assert 40 == cold_end(segments, done_end=20)
    assert 50 == cold_end(segments, done_end=40)
    assert 10 == cold_end([segment(0, 0, 3 * RUN_BYTES), *segments[1:]])
