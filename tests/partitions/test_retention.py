from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.base import Recompressed, SegmentInfo
from kgw.partitions.rules.retention import (
    BY_OFFSET,
    BY_SIZE,
    BY_TIME,
    Removal,
    RetentionPlan,
    RetentionRules,
    forecast_log_start,
    plan_retention,
)
from kgw.types import NO_TIMESTAMP_MS

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def segment(
    number: int, age_ms: int, *, size_bytes: int = 100, begun_age_ms: int | None = None
) -> SegmentInfo:
    """Return the number-th segment of ten records, the newest of them that old."""
    begun_ms = NOW_MS - (age_ms if begun_age_ms is None else begun_age_ms)
    return SegmentInfo(number * 10, number * 10 + 10, size_bytes, NOW_MS - age_ms, begun_ms)


def log_of(*ages_h: int) -> list[SegmentInfo]:
    """Return segments of these ages in hours, the last one active."""
    return [segment(number, age_h * HOUR_MS) for number, age_h in enumerate(ages_h)]


def plan(
    segments: list[SegmentInfo],
    rules: RetentionRules,
    *,
    log_start_offset: int = 0,
    last_stable_offset: int | None = None,
) -> RetentionPlan:
    """Plan with everything committed unless told otherwise."""
    end = segments[-1].end_offset if segments else 0
    return plan_retention(
        segments,
        rules,
        log_start_offset=log_start_offset,
        last_stable_offset=end if last_stable_offset is None else last_stable_offset,
        now_ms=NOW_MS,
    )


NOTHING = RetentionPlan(must_roll=False, removals=())


def test_without_limits_everything_is_kept() -> None:
    """The default keeps the oldest record for ever."""
    assert plan(log_of(90_000, 80_000, 0), RetentionRules()) == NOTHING
    assert not RetentionRules().removes


def test_old_segments_go_from_the_oldest_on() -> None:
    """Those whose greatest timestamp is older than retention.ms; exactly as old stays."""
    rules = RetentionRules(retention_ms=3 * HOUR_MS)
    found = plan(log_of(5, 4, 3, 1), rules)
    assert RetentionPlan(False, (Removal(BY_TIME, 20, 2, 200),)) == found


def test_a_young_segment_keeps_the_older_ones_behind_it() -> None:
    """Only a prefix goes: offsets have no hole from retention. A time in the future is young."""
    rules = RetentionRules(retention_ms=3 * HOUR_MS)
    assert NOTHING == plan(log_of(1, 5, 5, 1), rules)
    assert NOTHING == plan(log_of(-9, 5, 5, 1), rules)


def test_an_expired_active_segment_is_closed_first() -> None:
    """It is closed, and goes once another one is active, so that the log's end stays known."""
    rules = RetentionRules(retention_ms=3 * HOUR_MS)
    found = plan(log_of(6, 5), rules)
    assert RetentionPlan(True, (Removal(BY_TIME, 10, 1, 100),)) == found
    empty = SegmentInfo(20, 20, 0, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS)
    found = plan([*log_of(6, 5), empty], rules)
    assert RetentionPlan(False, (Removal(BY_TIME, 20, 2, 200),)) == found
    assert NOTHING == plan([empty], rules)


def test_size_removes_what_the_log_can_lose() -> None:
    """A segment goes as long as what is left is at least retention.bytes."""
    segments = log_of(4, 3, 2, 1)
    for limit_bytes, count in ((400, 0), (301, 0), (300, 1), (299, 1), (150, 2), (100, 3)):
        found = plan(segments, RetentionRules(retention_bytes=limit_bytes))
        removals = (Removal(BY_SIZE, 10 * count, count, 100 * count),) if count else ()
        assert RetentionPlan(False, removals) == found
    assert plan(segments, RetentionRules(retention_bytes=0)).must_roll


def test_what_is_not_committed_stays() -> None:
    """No rule reaches above the high watermark, nor closes a segment because of it."""
    rules = RetentionRules(retention_ms=1, retention_bytes=0, retention_offset=1000)
    found = plan(log_of(5, 4, 3), rules, last_stable_offset=15)
    assert (
        RetentionPlan(False, (Removal(BY_TIME, 10, 1, 100), Removal(BY_OFFSET, 15, 0, 0))) == found
    )


def test_an_offset_is_a_floor() -> None:
    """The log begins at kgw.retention.offset, inside a segment or at the high watermark."""
    segments = log_of(3, 2, 1)
    found = plan(segments, RetentionRules(retention_offset=15))
    assert RetentionPlan(False, (Removal(BY_OFFSET, 15, 1, 100),)) == found
    assert NOTHING == plan(segments, RetentionRules(retention_offset=15), log_start_offset=15)
    found = plan(segments, RetentionRules(retention_offset=99))
    assert (Removal(BY_OFFSET, 30, 2, 200),) == found.removals
    found = plan([], RetentionRules(retention_offset=5), last_stable_offset=9)
    assert (Removal(BY_OFFSET, 5, 0, 0),) == found.removals


def test_each_rule_counts_what_it_takes_beyond_the_ones_before() -> None:
    """Time first, then size, then offset: no segment is counted twice."""
    rules = RetentionRules(retention_ms=4 * HOUR_MS, retention_bytes=200, retention_offset=35)
    found = plan(log_of(6, 5, 3, 2, 1), rules)
    assert (
        Removal(BY_TIME, 20, 2, 200),
        Removal(BY_SIZE, 30, 1, 100),
        Removal(BY_OFFSET, 35, 0, 0),
    ) == found.removals


def test_records_without_a_time_are_as_old_as_what_follows() -> None:
    """Their segment's age counts from when the next one was begun; without one it stays."""
    rules = RetentionRules(retention_ms=3 * HOUR_MS)
    timeless = [one._replace(largest_timestamp_ms=NO_TIMESTAMP_MS) for one in log_of(9, 4, 1)]
    found = plan(timeless, rules)
    assert (Removal(BY_TIME, 10, 1, 100),) == found.removals
    assert NOTHING == plan(timeless[:1], rules)


def test_an_old_segment_is_closed() -> None:
    """After segment.ms, less the partition's share of the jitter; an empty one never."""
    rules = RetentionRules(segment_ms=2 * HOUR_MS)
    assert not plan([segment(0, 0, begun_age_ms=2 * HOUR_MS)], rules).must_roll
    old = segment(0, 0, begun_age_ms=2 * HOUR_MS + 1)
    assert plan([old], rules).must_roll
    assert not plan([old._replace(end_offset=0, begun_ms=NO_TIMESTAMP_MS)], rules).must_roll


def test_jitter_spreads_partitions() -> None:
    """Partitions of one age are closed at different times, each always at the same."""
    rules = RetentionRules(segment_ms=10 * HOUR_MS, segment_jitter_ms=5 * HOUR_MS)
    old = segment(0, 0, begun_age_ms=7 * HOUR_MS + HOUR_MS // 2)
    closed = [
        plan_retention(
            [old],
            rules,
            log_start_offset=0,
            last_stable_offset=10,
            now_ms=NOW_MS,
            partition_index=index,
        ).must_roll
        for index in range(100)
    ]
    assert 30 < sum(closed) < 70


@given(
    ages_h=st.lists(st.integers(-3, 12), min_size=1, max_size=8),
    retention_ms=st.integers(-1, 12 * HOUR_MS),
    retention_bytes=st.integers(-1, 900),
    retention_offset=st.integers(-1, 100),
    start=st.integers(0, 80),
    committed=st.integers(0, 80),
)
def test_no_plan_breaks_a_promise(
    ages_h: list[int],
    retention_ms: int,
    retention_bytes: int,
    retention_offset: int,
    start: int,
    committed: int,
) -> None:
    """Log starts rise, never above the high watermark; time takes nothing young."""
    segments = log_of(*ages_h)
    end = segments[-1].end_offset
    last_stable_offset = min(end, max(start, committed))
    start = min(start, last_stable_offset)
    rules = RetentionRules(retention_ms, retention_bytes, retention_offset)
    found = plan(segments, rules, log_start_offset=start, last_stable_offset=last_stable_offset)
    starts = [start, *(one.new_log_start for one in found.removals)]
    assert sorted(starts) == starts
    assert starts[-1] <= last_stable_offset
    for removal in found.removals:
        if removal.rule == BY_TIME:
            below = [one for one in segments if start < one.end_offset <= removal.new_log_start]
            assert all(NOW_MS - one.largest_timestamp_ms > retention_ms >= 0 for one in below)


class TestForecast:
    def start(
        self,
        segments: list[SegmentInfo],
        rules: RetentionRules,
        in_h: int = 0,
        recompressed: Recompressed | None = None,
        recent_bytes_a_ms: float = 0.0,
    ) -> int:
        """Return the log start that is foreseen for a time."""
        return forecast_log_start(
            segments,
            rules,
            log_start_offset=0,
            last_stable_offset=segments[-1].end_offset if segments else 0,
            now_ms=NOW_MS,
            at_ms=NOW_MS + in_h * HOUR_MS,
            recompressed=recompressed or Recompressed(),
            recent_bytes_a_ms=recent_bytes_a_ms,
        )

    def test_as_time_goes_by(self) -> None:
        """Each segment goes in its time, the active one, closed by then, as well."""
        rules = RetentionRules(retention_ms=3 * HOUR_MS)
        segments = log_of(4, 2, 1)
        assert [10, 10, 20, 30] == [self.start(segments, rules, in_h) for in_h in (0, 1, 2, 3)]

    def test_by_size(self) -> None:
        """What is appended at the log's own pace pushes out what is there."""
        # 400 bytes in four hours, and room for 500: the first segment goes after two more.
        segments, rules = log_of(4, 3, 2, 1), RetentionRules(retention_bytes=500)
        assert [0, 0, 10, 20] == [self.start(segments, rules, in_h) for in_h in (0, 1, 2, 3)]
        assert 40 == self.start(segments, rules, 99)

    def test_what_was_recompressed_is_no_pace(self) -> None:
        """New records take the room that the old ones had before they were made smaller."""
        cold = [
            segment(number, age_h * HOUR_MS, size_bytes=25)
            for number, age_h in enumerate((4, 3, 2))
        ]
        segments, rules = [*cold, segment(3, HOUR_MS)], RetentionRules(retention_bytes=300)
        done = Recompressed(30, 300, 75)
        assert [0, 0, 30] == [self.start(segments, rules, in_h, done) for in_h in (0, 1, 2)]

    def test_a_burst_is_no_pace(self) -> None:
        """A log that was just begun is not taken to grow as fast for an hour."""
        segments = [segment(0, 60_000), segment(1, 0)]
        assert 0 == self.start(segments, RetentionRules(retention_bytes=400), 1)

    def test_the_faster_pace_counts(self) -> None:
        """The recent one where producers have become faster, else that of the whole log."""
        segments, rules = log_of(4, 3, 2, 1), RetentionRules(retention_bytes=500)
        paces = [0.0, 100 / HOUR_MS, 199 / HOUR_MS, 200 / HOUR_MS, 400 / HOUR_MS, 9.0]
        found = [self.start(segments, rules, 1, recent_bytes_a_ms=one) for one in paces]
        assert [0, 0, 0, 10, 30, 40] == found
        assert 40 == self.start(segments, rules, 99, recent_bytes_a_ms=1 / HOUR_MS)

    def test_by_offset(self) -> None:
        """What would go now is foreseen for later too."""
        assert 7 == self.start(log_of(2, 1, 0), RetentionRules(retention_offset=7), 9)

    def test_nothing(self) -> None:
        """Without rules, or without segments, a log begins where it does."""
        assert 0 == self.start(log_of(2, 1, 0), RetentionRules(), 9)
        assert 0 == self.start([], RetentionRules(retention_ms=1))

    @given(
        st.lists(st.integers(0, 9), min_size=1, max_size=6),
        st.integers(1, 9),
        st.integers(-1, 700),
    )
    def test_is_what_runs_of_retention_come_to(
        self, ages_h: list[int], retention_h: int, retention_bytes: int
    ) -> None:
        """Two runs at that time, the active segment closed between them, end at the same start."""
        rules = RetentionRules(
            retention_ms=retention_h * HOUR_MS, retention_bytes=retention_bytes or -1
        )
        segments = log_of(*ages_h)
        first = plan(segments, rules)
        start = first.removals[-1].new_log_start if first.removals else 0
        if first.must_roll:
            end = segments[-1].end_offset
            segments.append(SegmentInfo(end, end, 0, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS))
            left = [one for one in segments if one.end_offset > start or one is segments[-1]]
            second = plan(left, rules, log_start_offset=start)
            start = second.removals[-1].new_log_start if second.removals else start
        assert start == self.start(log_of(*ages_h), rules)
