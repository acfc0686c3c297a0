from __future__ import annotations

import pytest

from kgw.pipeline.jobs.executors import ExecutorsError, aside, check_version, settled
from tests import patience


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([2] * 5, 2),
        ([2, 2, 2, 8, 8, 8, 8, 8], 8),
        ([*range(50)], 40),
    ],
)
def test_processors_are_counted_when_no_more_are_coming(counts: list[int], expected: int) -> None:
    """The same number for a while, and no longer than a longer while."""
    coming = iter(counts)
    assert expected == settled(lambda: next(coming), lambda: None)


def test_executors_run_the_drivers_kgw() -> None:
    """Another version is named."""
    check_version("1.0", "1.0")
    with pytest.raises(ExecutorsError, match=r"executors have kgw 0\.9, and this is kgw 1\.0"):
        check_version("0.9", "1.0")


def test_what_is_done_aside_gives_its_result_or_its_error() -> None:
    """Where the result is taken."""

    def fail() -> None:
        raise OSError("no Java")

    assert 7 == aside(lambda: 7).result(patience.seconds(10))
    with pytest.raises(OSError, match="no Java"):
        aside(fail).result(patience.seconds(10))
