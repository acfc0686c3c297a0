"""The benchmark that compares native offsets with timestamps compares what it says."""

from __future__ import annotations

from itertools import pairwise

from bench.micro.offsets import TimestampManager, interval


def test_timestamps_rise_and_never_overlap() -> None:
    """The build without offsets hands out places that are as good as a timestamp's can be."""
    manager = TimestampManager()
    counts = [1, 100, 3, 1_000, 1]

    bases = [manager.assign(count) for count in counts] + manager.assign_many(counts)

    ends = [base + count for base, count in zip(bases, counts * 2, strict=True)]
    assert all(end <= following for end, (_, following) in zip(ends, pairwise(bases), strict=False))
    assert manager.advance_durable(ends[-1])
    assert ends[-1] == manager.high_watermark == manager.next_offset


def test_an_interval_holds_its_median() -> None:
    """And is as wide as its pairs are apart."""
    same = interval([2.0] * 30)
    apart = interval([float(number) for number in range(-50, 51)])

    assert {"median_percent": 2.0, "low_percent": 2.0, "high_percent": 2.0} == same
    assert apart["low_percent"] < apart["median_percent"] == 0 < apart["high_percent"]
