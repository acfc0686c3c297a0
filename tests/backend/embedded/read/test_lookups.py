"""What is found by time in a log, between two bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.embedded.read import lookups
from tests.backend.embedded.driver import ROOT, SETTINGS, SMALL_SEGMENTS, Driver
from tests.simulated_fs import FaultKind, SimulatedFs


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
    found = lookups.find_max_timestamp(driver.log(), lower, upper)
    between = range(lower, upper)
    expected = max(between, key=lambda at: (times_ms[at], -at), default=None)
    assert expected == (None if found is None else found.base_offset)


def test_the_newest_record_is_not_of_the_segment_that_begins_at_the_bound() -> None:
    """With no open transaction above, say: what is there is not to be seen yet."""
    driver = Driver(settings=SMALL_SEGMENTS)
    for time_ms in range(40):
        driver.append(b"v" * 50, timestamp_ms=time_ms)
    log = driver.log()
    for segment in log.segments[1:]:
        found = lookups.find_max_timestamp(log, 0, segment.base_offset)
        assert found is not None
        assert segment.base_offset - 1 == found.base_offset


def test_a_look_up_by_time_reads_one_batch() -> None:
    """Where times rise the side file tells which; no header is read before it."""
    looked: list[str] = []

    class Watched(SimulatedFs):
        def strike(self, call: str, path: str) -> FaultKind | None:
            if call == "read" and path.endswith(".log"):
                looked.append(path)
            return super().strike(call, path)

    fs = Watched()
    fs.make_directory_durably(ROOT)
    driver = Driver(fs=fs)
    for number in range(40):
        driver.append(b"v", timestamp_ms=number)
    log = driver.log()
    looked.clear()
    for number in range(40):
        found = lookups.find_by_time(log, number, 0, 40, lambda batch: batch.base_offset)
        assert number == found
    assert 40 == len(looked)
