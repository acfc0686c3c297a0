"""Cutting: units of about the size that was asked for, whatever is found to be in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kgw.pipeline.jobs.archive_plan import Cutter
from kgw.pipeline.ranges import OffsetRange


@given(
    lengths=st.lists(st.integers(1, 30_000), min_size=1, max_size=4),
    guess=st.floats(0, 1e5),
    found=st.lists(st.integers(1, 1 << 12), min_size=1, max_size=4),
    shortest=st.integers(1, 3),
)
def test_each_offset_is_in_one_unit(
    lengths: list[int], guess: float, found: list[int], shortest: int
) -> None:
    """Whatever units are found to take, and however far each was read."""
    ranges = [OffsetRange("t", index, 5, 5 + length) for index, length in enumerate(lengths)]
    cutter = Cutter(
        ranges, dict.fromkeys(range(len(ranges)), guess), parallelism=4, unit_bytes=1 << 23
    )
    read: list[tuple[int, int, int]] = []
    while cutter.count:
        for unit in cutter:
            size = found[len(read) % len(found)]
            end = unit.first + -(-unit.length // shortest)
            cutter.note(unit, end, size * (end - unit.first))
            read.append((unit.partition, unit.first, end))
    for one in ranges:
        mine = sorted(each[1:] for each in read if each[0] == one.partition)
        assert [one.first, *(end for _, end in mine)] == [*(first for first, _ in mine), one.end]


def test_a_unit_is_cut_by_what_the_last_one_took() -> None:
    """A guess that was wrong by any factor costs a unit or two."""
    for guess in (5e6, 1e-6):
        cutter = Cutter(
            [OffsetRange("t", 0, 0, 1 << 30)], {0: guess}, parallelism=1, unit_bytes=1 << 28
        )
        units = []
        for unit in cutter:
            # Not more is read than twice what a unit is to have; an offset takes 100 bytes.
            end = min(unit.end, unit.first + (1 << 29) // 100)
            cutter.note(unit, end, 100 * (end - unit.first))
            units.append(end - unit.first)
        assert len(units) <= 2 + (100 << 30) // (1 << 28)
        assert (1 << 28) // 100 >= max(units[2:])


def test_an_estimate_says_how_many_units_there_are() -> None:
    """As many as are yielded when nothing else is found."""
    ranges = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 7, 27)]
    cutter = Cutter(ranges, {0: 10.0, 1: 0.0}, parallelism=2, unit_bytes=300)
    assert 5 == cutter.count
    assert [(0, 25), (25, 50), (50, 75), (75, 100), (7, 27)] == [one[2:4] for one in cutter]
