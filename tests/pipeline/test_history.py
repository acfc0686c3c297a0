from __future__ import annotations

import pytest

from kgw.pipeline.arrow.decode import read_batch_headers
from kgw.pipeline.history import (
    NO_TIME,
    Counted,
    HistoryUnit,
    TimeWindow,
    bucket_for,
    count_batches,
    filled,
    length_filled,
    together,
)
from kgw.pipeline.ranges import OffsetRange, cut_ranges
from kgw.records.batch import Compression
from kgw.records.builder import BatchBuilder

SECOND = TimeWindow(1000)


def batches(*of: tuple[int, list[int]]) -> bytes:
    """Return batches that begin at an offset and have records of these times."""
    data = b""
    for base_offset, times_ms in of:
        builder = BatchBuilder(compression=Compression.GZIP)
        for time_ms in times_ms:
            builder.add(key=None, value=b"x" * 50, timestamp_ms=time_ms, headers=())
        batch = bytearray(builder.build())
        batch[:8] = base_offset.to_bytes(8, "big")
        data += bytes(batch)
    return data


def counted(
    data: bytes,
    first: int,
    end: int,
    window: TimeWindow = SECOND,
    *,
    is_first: bool = True,
    committed: int | None = None,
) -> dict[int, Counted]:
    """Count the batches of a range."""
    headers = read_batch_headers(data, first_offset=first, end_offset=end)
    unit = HistoryUnit(OffsetRange("t", 0, first, end), is_first, committed)
    return count_batches(headers, unit, window)


def test_batches_count_at_their_latest_record() -> None:
    """With all of their records and bytes, packed as they are stored; those without a time too."""
    one, two, three = (
        batches((0, [100, 200])),
        batches((2, [900, 1001, 1000])),
        batches((5, [-1])),
    )
    assert {
        0: Counted(1, 2, len(one)),
        1000: Counted(1, 3, len(two)),
        NO_TIME: Counted(1, 1, len(three)),
    } == counted(one + two + three, 0, 6)
    assert {1000: Counted(1, 3, len(two))} == counted(
        one + two + three, 0, 6, TimeWindow(1000, 900, 1002)
    )


def test_a_time_at_the_end_of_a_window_is_in_the_next_one() -> None:
    """The beginning is inclusive, and the end exclusive: windows side by side count all once."""
    data = batches((0, [1000]), (1, [2000]), (2, [3000]))
    found = [
        counted(data, 0, 3, TimeWindow(1000, since_ms, since_ms + 1000))
        for since_ms in (1000, 2000, 3000)
    ]
    assert [[1000], [2000], [3000]] == [list(one) for one in found]


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_a_batch_counts_in_one_of_the_ranges_that_cut_it(pieces: int) -> None:
    """However a partition is cut, the sum is the same."""
    data = batches((0, [1, 2, 3]), (3, [4] * 5), (8, [1500]), (9, [5, 6]))
    whole = OffsetRange("t", 0, 0, 11)
    parts = [
        counted(data, one.first, one.end, is_first=one.first == 0, committed=5)
        for one in cut_ranges([whole], pieces=pieces)
    ]
    assert counted(data, 0, 11, committed=5) == together(parts)
    assert 11 == sum(one.records for one in together(parts).values())
    assert 6 == sum(one.unread for one in together(parts).values())


def test_what_was_deleted_of_a_batch_does_not_count() -> None:
    """A log may begin within a batch; records behind it count by their offsets."""
    data = batches((0, [1, 2, 3, 4]), (4, [5]))
    assert [(2, 2)] == [
        (one.batches, one.records) for one in counted(data, 3, 5, committed=0).values()
    ]
    assert {} == counted(data, 5, 5)


def test_times_in_which_nothing_came_are_shown() -> None:
    """Between the first and the last; batches without a time come first."""
    some, none = Counted(1, 1, 1), Counted()
    histogram = {3000: some, 0: some, NO_TIME: some}
    assert [(NO_TIME, some), (0, some), (1000, none), (2000, none), (3000, some)] == list(
        filled(histogram, 1000).items()
    )
    assert 4 == length_filled(histogram, 1000)
    assert {} == filled({}, 1000)
    assert 0 == length_filled({}, 1000)
    assert 10**15 + 1 == length_filled({0: Counted(), 10**18: Counted()}, 1000)


@pytest.mark.parametrize(
    ("span_ms", "bucket_ms"),
    [(0, 1000), (40_000, 1000), (40_001, 5000), (3_600_000, 300_000), (10**13, 414 * 604_800_000)],
)
def test_a_few_dozen_times_make_up_a_span(span_ms: int, bucket_ms: int) -> None:
    """They are as long as people count time."""
    assert bucket_ms == bucket_for(span_ms)
