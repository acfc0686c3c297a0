"""The recent pace of a log, from a few looks at how much it has grown."""

from __future__ import annotations

import pytest

from kgw.lag.growth_rate import GrowthRate


def paces(looks: list[tuple[float, int]]) -> list[int]:
    """Return the pace that each look finds, in bytes a second."""
    found = []
    pace = GrowthRate.begin(*looks[0])
    for look in looks:
        found.append(round(pace.bytes_a_ms(*look) * 1000))
        pace = pace.moved(*look)
    return found


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        # One look knows nothing.
        ([(0, 5_000)], [0]),
        # A look a minute: the pace of the minute, and of the last two where that is faster.
        ([(0, 0), (60, 6_000), (120, 6_000), (180, 6_000)], [0, 100, 50, 0]),
        ([(0, 0), (60, 6_000), (120, 12_000), (180, 18_000)], [0, 100, 100, 100]),
        ([(0, 0), (60, 600), (120, 6_600)], [0, 10, 100]),
        # A moment counts as a minute.
        ([(0, 0), (1, 6_000), (2, 6_000)], [0, 100, 100]),
        # Looks that are far apart: the mean between them.
        ([(0, 0), (600, 6_000), (1200, 6_000)], [0, 10, 5]),
        # Marks that were moved just now do not hide a burst.
        ([(0, 0), (60, 0), (65, 3_000), (121, 6_600), (124, 6_900)], [0, 0, 50, 108, 108]),
        # Opened anew, it has grown by nothing yet.
        ([(0, 9_000), (60, 9_000), (120, 0), (180, 600)], [0, 0, 0, 10]),
        # What it grows by from then on is seen at once.
        ([(0, 9_000), (60, 9_000), (65, 0), (70, 6_000)], [0, 0, 0, 100]),
    ],
)
def test_pace(looks: list[tuple[float, int]], expected: list[int]) -> None:
    """The faster of two means, neither of less than a minute."""
    assert expected == [max(0, one) for one in paces(looks)]
