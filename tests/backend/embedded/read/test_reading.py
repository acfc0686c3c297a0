"""What a reader, and a search by time, may see of a log: nothing at or above its bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.embedded.read import lookups, reading
from kgw.testing.faults import FaultKind, SimulatedFs
from tests.backend.embedded.driver import JOURNALED, ROOT, SETTINGS, SMALL_SEGMENTS, Driver


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
    found = lookups.find_max_timestamp(driver.log(), lower, upper)
    between = range(lower, upper)
    expected = max(between, key=lambda at: (times_ms[at], -at), default=None)
    assert expected == (None if found is None else found.base_offset)


def test_entries_that_a_side_file_has_lost_are_missed() -> None:
    """Those that wait in memory are not taken for them: readers would skip records."""
    driver = Driver(JOURNALED)
    values = [b"%d" % number * 50 for number in range(9)]
    for number, value in enumerate(values):
        driver.append(value)
        if number == 5:
            driver.checkpoint()
    assert 6 * 40 == driver.fs.file_size(driver.segment_path(suffix="checksums"))
    del driver.fs.content(driver.segment_path(suffix="checksums"))[2 * 40 :]
    assert values == driver.values(max_bytes=300)
    assert any("rebuilt" in problem for problem in driver.store.problems)


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
