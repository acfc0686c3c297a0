"""What a reader, and a search by time, may see of a log: nothing at or above its bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.embedded import reading
from tests.backend.embedded.driver import SETTINGS, SMALL_SEGMENTS, Driver


def test_damage_above_the_bound_is_no_readers_concern() -> None:
    """Who stands at the bound gets nothing, whatever is behind it."""
    driver = Driver()
    driver.append(b"shown")
    size_bytes = driver.fs.file_size(driver.segment_path())
    driver.append(b"behind the bound")
    driver.flip(driver.segment_path(), size_bytes + 65)
    assert ([], 0, 1) == reading.read(driver.log(), 1, 1 << 20, 1)[:3]


@pytest.mark.slow
@given(
    times_ms=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    bounds=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    small=st.booleans(),
)
def test_the_newest_record_between_two_bounds_is_found(
    times_ms: list[int], bounds: tuple[int, int], small: bool
) -> None:
    """The first of those with the greatest timestamp, of what is neither below nor above."""
    driver = Driver(settings=SMALL_SEGMENTS if small else SETTINGS)
    for time_ms in times_ms:
        driver.append(b"v" * 50, timestamp_ms=time_ms)
    lower, upper = sorted(min(bound, len(times_ms)) for bound in bounds)
    found = reading.find_max_timestamp(driver.log(), lower, upper)
    between = range(lower, upper)
    expected = max(between, key=lambda at: (times_ms[at], -at), default=None)
    assert expected == (None if found is None else found.base_offset)
