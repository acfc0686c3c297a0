from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kgw.offsets.manager import MAX_OFFSET, OffsetInvariantError, PartitionOffsetManager


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (6, 5), (0, MAX_OFFSET + 1)])
def test_impossible_bounds_are_refused(start: int, end: int) -> None:
    """A log does not begin below 0 or after its end, or pass int64."""
    with pytest.raises(OffsetInvariantError):
        PartitionOffsetManager(start, end)


@pytest.mark.parametrize("count", [0, -1, MAX_OFFSET, 1 << 70])
def test_counts_that_cannot_be_are_refused_whole(count: int) -> None:
    """Neither nothing nor more than int64 holds; what was assigned stays as it was."""
    manager = PartitionOffsetManager(0, 10)

    with pytest.raises(OffsetInvariantError):
        manager.assign(count)
    with pytest.raises(OffsetInvariantError):
        manager.assign_many([2, count])

    assert manager.next_offset == 10


def test_the_last_offset_is_assigned_and_none_behind_it() -> None:
    """The largest int64 can be a next offset; one more would not fit into any message."""
    for one_by_one in (True, False):
        manager = PartitionOffsetManager(0, MAX_OFFSET - 3)
        for count in (4, 1 << 63):
            with pytest.raises(OffsetInvariantError):
                manager.assign(count)
            with pytest.raises(OffsetInvariantError):
                manager.assign_many([1, count - 1])

        first = (
            [manager.assign(1), manager.assign(2)] if one_by_one else manager.assign_many([1, 2])
        )

        assert [MAX_OFFSET - 3, MAX_OFFSET - 2] == first
        assert manager.next_offset == MAX_OFFSET
        with pytest.raises(OffsetInvariantError):
            manager.assign(1)
        with pytest.raises(OffsetInvariantError):
            manager.assign_many([1])
        assert manager.advance_durable(MAX_OFFSET)
        assert manager.high_watermark == MAX_OFFSET


class OffsetsNeverComeBack(RuleBasedStateMachine):
    """Any order of calls, allowed or not: rules 2, 3 and 6 hold."""

    @initialize(start=st.integers(0, 50), length=st.integers(0, 50))
    def begin(self, start: int, length: int) -> None:
        """Recover anywhere."""
        self.manager = PartitionOffsetManager(start, start + length)
        self.seen_end = self.manager.high_watermark
        self.seen_start = self.manager.log_start_offset
        self.assigned_end = self.manager.next_offset
        self.durable_end = self.seen_end

    @rule(count=st.integers(-1, 5))
    def assign(self, count: int) -> None:
        """Dense from where the last one ended, or refused."""
        if count < 1:
            with pytest.raises(OffsetInvariantError):
                self.manager.assign(count)
        else:
            assert self.assigned_end == self.manager.assign(count)
            self.assigned_end += count

    @rule(counts=st.lists(st.integers(1, 4), max_size=4))
    def assign_many(self, counts: list[int]) -> None:
        """As one after the other."""
        expected = [self.assigned_end + sum(counts[:index]) for index in range(len(counts))]
        assert expected == self.manager.assign_many(counts)
        self.assigned_end += sum(counts)

    @rule(distance=st.integers(-3, 10))
    def advance(self, distance: int) -> None:
        """Up to what was assigned, or refused."""
        end = self.durable_end + distance
        if 0 <= distance and end <= self.assigned_end:
            assert (end > self.seen_end) == self.manager.advance_durable(end)
            self.durable_end = end
            self.seen_end = max(self.seen_end, end)
        else:
            with pytest.raises(OffsetInvariantError):
                self.manager.advance_durable(end)

    @rule(distance=st.integers(-3, 10))
    def advance_written(self, distance: int) -> None:
        """Up to what was assigned and never back, or refused."""
        end = self.seen_end + distance
        if 0 <= distance and end <= self.assigned_end:
            assert (distance > 0) == self.manager.advance_written(end)
            self.seen_end = end
        else:
            with pytest.raises(OffsetInvariantError):
                self.manager.advance_written(end)

    @rule(distance=st.integers(-3, 10))
    def rewind(self, distance: int) -> None:
        """Down to what is seen, or refused."""
        next_offset = self.assigned_end - distance
        if self.seen_end <= next_offset <= self.assigned_end:
            self.manager.rewind(next_offset)
            self.assigned_end = next_offset
        else:
            with pytest.raises(OffsetInvariantError):
                self.manager.rewind(next_offset)

    @rule(distance=st.integers(-5, 20))
    def raise_log_start(self, distance: int) -> None:
        """Up to what is seen, or refused."""
        offset = self.seen_start + distance
        if offset > self.seen_end:
            with pytest.raises(OffsetInvariantError):
                self.manager.raise_log_start(offset)
        else:
            assert (distance > 0) == self.manager.raise_log_start(offset)
            self.seen_start = max(self.seen_start, offset)

    @invariant()
    def bounds_are_in_order(self) -> None:
        """Log start, durable end <= high watermark <= next offset, as the model has them."""
        if not hasattr(self, "manager"):
            return
        manager = self.manager
        assert (self.seen_start, self.durable_end, self.seen_end, self.assigned_end) == (
            manager.log_start_offset,
            manager.durable_end,
            manager.high_watermark,
            manager.next_offset,
        )
        assert max(manager.log_start_offset, manager.durable_end) <= manager.high_watermark
        assert manager.high_watermark <= manager.next_offset


OffsetsNeverComeBack.TestCase.settings = settings(max_examples=60, deadline=None)
TestOffsetsNeverComeBack = pytest.mark.slow(OffsetsNeverComeBack.TestCase)
