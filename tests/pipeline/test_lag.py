from __future__ import annotations

import pytest

from kgw.pipeline.lag import ArchiveLag, written_end


@pytest.mark.parametrize(
    ("ranges", "end"),
    [
        ([], 10),
        ([(0, 9), (10, 14)], 15),
        ([(15, 19), (10, 14)], 20),
        ([(12, 14)], 10),
        ([(5, 12), (11, 13)], 14),
    ],
)
def test_files_count_as_far_as_they_follow_each_other(
    ranges: list[tuple[int, int]], end: int
) -> None:
    """From what is committed on; a file behind a gap does not."""
    assert end == written_end(10, ranges)


@pytest.mark.parametrize(
    ("committed", "bounds", "mark"),
    [
        (5, (0, 9), ""),
        (5, (5, 5), ""),
        (5, (6, 9), "records-gone"),
        (5, (0, 4), "past-end"),
        (None, (0, 9), "not-archived"),
        (5, (None, None), "topic-gone"),
    ],
)
def test_what_waiting_does_not_mend_is_marked(
    committed: int | None, bounds: tuple[int | None, int | None], mark: str
) -> None:
    """Everything else is a lag."""
    assert mark == ArchiveLag("t", 0, committed, committed, *bounds).mark


def test_read_lag_does_not_count_what_the_log_has_no_more() -> None:
    """And commit lag is what was written and not committed."""
    row = ArchiveLag("t", 0, 5, 8, 10, 30)
    assert (20, 3) == (row.read_lag, row.commit_lag)
