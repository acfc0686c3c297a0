from __future__ import annotations

from kgw.backend.base import SegmentInfo
from kgw.partitions.rules.compaction import CompactionRules, Dirtiness, measure_dirtiness
from kgw.types import NO_TIMESTAMP_MS

NOW_MS = 1_700_000_000_000
RULES = CompactionRules()


def log_of(*sizes: int, age_ms: int = 1000) -> list[SegmentInfo]:
    """Return segments of ten records and these sizes, the last one active."""
    return [
        SegmentInfo(number * 10, number * 10 + 10, size, NOW_MS - age_ms, NOW_MS - age_ms)
        for number, size in enumerate(sizes)
    ]


def measure(
    segments: list[SegmentInfo],
    rules: CompactionRules = RULES,
    *,
    compacted_end: int = 0,
    last_stable_offset: int = 1000,
) -> Dirtiness:
    """Measure with everything stable unless told otherwise."""
    return measure_dirtiness(
        segments,
        rules,
        compacted_end=compacted_end,
        last_stable_offset=last_stable_offset,
        now_ms=NOW_MS,
    )


def test_what_was_compacted_is_clean_and_the_active_segment_does_not_count() -> None:
    """The share is of what could be compacted."""
    found = measure(log_of(100, 100, 300, 999), compacted_end=20)
    assert Dirtiness(20, 30, 300, 200, is_overdue=False) == found
    assert 0.6 == found.ratio
    assert found.is_due(RULES)
    assert not found.is_due(CompactionRules(min_dirty_ratio=0.6))


def test_nothing_to_compact_is_never_due() -> None:
    """An empty log, one with an active segment alone, one that is clean."""
    for segments, compacted_end in (([], 0), (log_of(100), 0), (log_of(100, 100, 9), 20)):
        found = measure(segments, compacted_end=compacted_end)
        assert (0, compacted_end) == (found.dirty_bytes, found.upper_bound)
        assert not found.is_due(CompactionRules(min_dirty_ratio=0, max_lag_ms=1))


def test_the_bound_keeps_to_the_last_stable_offset() -> None:
    """The segment that holds it is left whole."""
    segments = log_of(100, 100, 100, 100)
    assert 30 == measure(segments, last_stable_offset=30).upper_bound
    found = measure(segments, last_stable_offset=29)
    assert (20, 200) == (found.upper_bound, found.dirty_bytes)


def test_young_records_are_left() -> None:
    """From the first segment on with a record younger than min.compaction.lag.ms."""
    segments = log_of(100, 100, 100, 100)
    segments[1] = segments[1]._replace(largest_timestamp_ms=NOW_MS - 999)
    rules = CompactionRules(min_lag_ms=1000)
    found = measure(segments, rules)
    assert (10, 100) == (found.upper_bound, found.dirty_bytes)
    assert 30 == measure(segments).upper_bound


def test_a_timestamp_in_the_future_is_young() -> None:
    """Only where a lag is asked for."""
    segments = log_of(100, 100, age_ms=-5000)
    assert 0 == measure(segments, CompactionRules(min_lag_ms=1)).dirty_bytes
    assert 100 == measure(segments).dirty_bytes


def test_what_has_waited_too_long_goes_first() -> None:
    """Past max.compaction.lag.ms the share of bytes no longer matters."""
    rules = CompactionRules(max_lag_ms=999)
    overdue = measure(log_of(900, 100, 50), rules, compacted_end=10)
    assert overdue.is_overdue
    assert overdue.is_due(rules)
    assert 0.1 == overdue.ratio
    assert overdue.urgency > measure(log_of(1, 999, 50), compacted_end=10).urgency
    assert not measure(log_of(900, 100, 50), CompactionRules(max_lag_ms=1000)).is_overdue
    unknown = [one._replace(begun_ms=NO_TIMESTAMP_MS) for one in log_of(900, 100, 50)]
    assert not measure(unknown, rules).is_overdue
