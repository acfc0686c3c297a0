from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kgw.offsets.lag import (
    FoundAnomaly,
    LagAnomaly,
    LagSum,
    Occurrences,
    PartitionLag,
    record_age_ms,
)
from kgw.types import TopicId

TOPIC = TopicId(bytes(16))


def total(*parts: tuple[PartitionLag, int | None]) -> LagSum:
    """Return the sum of partitions, each with the age of its first unread record."""
    found = LagSum()
    for one, age_ms in parts:
        found.add(one, age_ms)
    return found


class TestPartitionLag:
    def test_lag_is_the_high_watermark_minus_the_committed_offset(self) -> None:
        """Nothing is rounded: a group ahead of the log has a lag below zero."""
        assert 7 == PartitionLag(3, 0, 10).lag
        assert -2 == PartitionLag(12, 0, 10).lag

    def test_anomalies(self) -> None:
        """The ends of the log are no anomalies, one beyond either of them is."""
        assert None is PartitionLag(10, 2, 10).anomaly
        assert None is PartitionLag(2, 2, 10).anomaly
        assert LagAnomaly.COMMITTED_AHEAD is PartitionLag(11, 2, 10).anomaly
        assert LagAnomaly.COMMITTED_BELOW_START is PartitionLag(1, 2, 10).anomaly
        assert LagAnomaly.COMMITTED_DAMAGED is PartitionLag(-1, 2, 10).anomaly

    def test_what_a_later_log_start_costs(self) -> None:
        """Only what has not been read and is still there can be lost."""
        one = PartitionLag(5, 3, 10)
        assert [0, 0, 2, 5, 5] == [one.lost_by(start) for start in (3, 5, 7, 10, 99)]
        assert 2 == PartitionLag(1, 3, 10).lost_by(5)
        assert 0 == PartitionLag(12, 3, 10).lost_by(10)

    @given(*[st.integers(0, 50)] * 4)
    def test_nobody_loses_more_than_there_is_to_read(
        self, committed: int, start: int, size: int, next_start: int
    ) -> None:
        """A forecast never exceeds the unread records, and grows with the log start."""
        one = PartitionLag(committed, start, start + size)
        unread_count = max(0, one.high_watermark - max(committed, start))
        assert 0 <= one.lost_by(next_start) <= unread_count
        assert one.lost_by(next_start) <= one.lost_by(next_start + 1)


class TestLagSum:
    def test_no_partition_hides_another(self) -> None:
        """A lag below zero counts as an anomaly, and takes nothing from the others."""
        found = total((PartitionLag(5, 0, 10), 40), (PartitionLag(99, 0, 10), 0))
        assert (5, 1, 2) == (found.lag, found.anomalies, found.partitions)

    def test_what_is_unknown_is_not_zero(self) -> None:
        """Damaged offsets and failed look-ups are told apart from having nothing to read."""
        found = total((PartitionLag(-1, 0, 10), None))
        found.add_unknown()
        assert (0, 2, 2) == (found.lag, found.unknown_lags, found.partitions)
        assert (None, None) == (found.known_lag, found.time_lag_ms)
        found.add(PartitionLag(3, 0, 10), 5)
        assert (7, 5) == (found.known_lag, found.time_lag_ms)
        assert 0 == LagSum().known_lag

    def test_time_lag_is_the_oldest_known(self) -> None:
        """Ages that are not known do not hide one that is; alone they make it unknown."""
        assert 70 == total((PartitionLag(1, 0, 9), 70), (PartitionLag(1, 0, 9), None)).time_lag_ms
        assert None is total((PartitionLag(1, 0, 9), None)).time_lag_ms
        assert 0 == total((PartitionLag(9, 0, 9), 0)).time_lag_ms

    @given(st.lists(st.tuples(*[st.integers(0, 9)] * 3, st.none() | st.integers(0, 9))))
    def test_sums_of_sums(self, parts: list[tuple[int, int, int, int | None]]) -> None:
        """A group's sum over its topics is its sum over its partitions."""
        lags = [
            (PartitionLag(offset, start, start + size), age) for offset, start, size, age in parts
        ]
        merged = total(*lags[::2])
        merged.merge(total(*lags[1::2]))
        whole = total(*lags)
        assert all(getattr(whole, name) == getattr(merged, name) for name in LagSum.__slots__)


def test_record_age() -> None:
    """A record of now or the future is hardly old, but unread; one without a time has no age."""
    assert [5, 1, 1, None] == [record_age_ms(time_ms, 10) for time_ms in (5, 10, 11, -1)]


class TestOccurrences:
    def finding(self, partition: int = 0) -> FoundAnomaly:
        """Return a finding of its own for each partition."""
        return FoundAnomaly(LagAnomaly.COMMITTED_AHEAD, "group", TOPIC, partition)

    def test_since_when(self) -> None:
        """A finding keeps the time of the look that found it."""
        book = Occurrences(10)
        for now_ms in (5, 6):
            book.see(self.finding(), now_ms)
            book.finish_look()
        assert [(self.finding(), 5)] == book.items()

    def test_bounded(self) -> None:
        """What does not fit is not counted at every look, and that is said."""
        book = Occurrences(2)
        assert [True, True, False] == [book.see(self.finding(one), 5) for one in range(3)]
        book.finish_look()
        assert (True, 2) == (book.is_full, len(book))
        book.see(self.finding(0), 6)
        book.finish_look()
        assert (False, [self.finding(0)]) == (book.is_full, list(book))
