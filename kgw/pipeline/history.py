"""Counts records over time from the headers of batches. Pure.

All records of a batch are counted at its maximum timestamp, and by the range in which the batch
begins. Control batches have no records. Records of aborted transactions are counted, as headers do
not tell them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kgw.records.batch import CONTROL_FLAG, PREFIX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from kgw.pipeline.ranges import OffsetRange

_BUCKETS: Final = 40
_SECONDS: Final = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21600, 86400, 7 * 86400)


class Counted(NamedTuple):
    """The counts of one time bucket. `bytes` is the stored size of the batches."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    unread: int = 0
    """How many of the records the group has not consumed yet."""

    def plus(self, other: Counted) -> Counted:
        """Return the sum of two counts."""
        return Counted(*(ours + theirs for ours, theirs in zip(self, other, strict=True)))


Histogram = dict[int, Counted]
"""Counts by the start time of each bucket in milliseconds, or NO_TIME for batches without a
time."""

NO_TIME: Final = -1


class TimeWindow(NamedTuple):
    """The time window to count, and the length of its buckets.

    `until_ms` is exclusive; None means no limit.
    """

    bucket_ms: int
    since_ms: int | None = None
    until_ms: int | None = None


class HistoryUnit(NamedTuple):
    """A range of offsets that one task counts."""

    wanted: OffsetRange
    is_first: bool = True
    """Whether to count a batch that begins before the range but ends in it."""
    committed: int | None = None
    """A group's committed offset: records from this offset on are unread."""

    def __str__(self) -> str:
        return str(self.wanted)


def count_batches(headers: NDArray[Any], unit: HistoryUnit, window: TimeWindow) -> Histogram:
    """Count the batches of a range by time, from the headers that `read_batch_headers` returns."""
    bases = headers["base_offset"].astype(np.int64)
    times = headers["max_timestamp_ms"].astype(np.int64)
    chosen = (headers["attributes"] & CONTROL_FLAG) == 0
    chosen &= bases < unit.wanted.end
    if not unit.is_first:
        chosen &= bases >= unit.wanted.first
    if window.since_ms is not None:
        chosen &= times >= window.since_ms
    if window.until_ms is not None:
        chosen &= times < window.until_ms
    headers, bases, times = headers[chosen], bases[chosen], times[chosen]
    if not len(headers):
        return {}
    records = headers["record_count"].astype(np.int64)
    ends = bases + headers["last_offset_delta"] + 1
    # A batch that began before the range counts only its offsets in the range: its records are
    # compressed.
    records = np.minimum(records, ends - np.maximum(bases, unit.wanted.first))
    sizes = headers["batch_length"].astype(np.int64) + PREFIX_BYTES
    unread = np.zeros(len(headers), np.int64)
    if unit.committed is not None:
        unread = np.clip(ends - unit.committed, 0, records)
    starts = np.where(times < 0, NO_TIME, times // window.bucket_ms * window.bucket_ms)
    buckets, bucket_of = np.unique(starts, return_inverse=True)
    sums = np.zeros((4, len(buckets)), np.int64)
    for row, values in enumerate((np.ones_like(records), records, sizes, unread)):
        np.add.at(sums[row], bucket_of, values)
    return {
        int(bucket): Counted(*map(int, column))
        for bucket, column in zip(buckets, sums.T, strict=True)
    }


def together(histograms: Iterable[Mapping[int, Counted]]) -> Histogram:
    """Return the sum of several histograms."""
    found: Histogram = {}
    for histogram in histograms:
        for time_ms, counted in histogram.items():
            found[time_ms] = found.get(time_ms, Counted()).plus(counted)
    return found


def bucket_for(span_ms: int) -> int:
    """Return a bucket length, in milliseconds, that divides a span into a few dozen buckets."""
    weeks = 1000 * _SECONDS[-1] * -(-span_ms // (1000 * _SECONDS[-1] * _BUCKETS))
    return next((1000 * one for one in _SECONDS if span_ms <= 1000 * one * _BUCKETS), weeks)


def length_filled(histogram: Mapping[int, Counted], bucket_ms: int) -> int:
    """Return how many buckets `filled` would return, without making them."""
    times = histogram.keys() - {NO_TIME}
    return len(range(min(times), max(times) + 1, bucket_ms)) if times else 0


def filled(histogram: Mapping[int, Counted], bucket_ms: int) -> Histogram:
    """Return the histogram sorted by time, with the empty buckets added."""
    times = sorted(one for one in histogram if one != NO_TIME)
    every = range(times[0], times[-1] + 1, bucket_ms) if times else ()
    told = {time_ms: histogram.get(time_ms, Counted()) for time_ms in every}
    return {NO_TIME: histogram[NO_TIME], **told} if NO_TIME in histogram else told
