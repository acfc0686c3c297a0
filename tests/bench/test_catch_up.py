from __future__ import annotations

from bench.scenarios.catch_up import windows


def test_others_are_compared_over_the_same_time() -> None:
    """The time of the read and as much before it, but never of what was no live traffic yet."""
    assert {"alone": (700, 1_000), "beside": (1_000, 1_300)} == windows(200, 1_000, 1_300)
    assert {"alone": (200, 1_000), "beside": (1_000, 9_000)} == windows(200, 1_000, 9_000)
