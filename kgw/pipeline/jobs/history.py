"""history: counts the records that topics received over time, from batch headers alone.

Fetch transfers whole batches; they are not decompressed.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.client import GroupClient
from kgw.client.values import MAX_TIMESTAMP
from kgw.pipeline.arrow.decode import read_batch_headers
from kgw.pipeline.errors import DamagedRecordsError, PipelineError
from kgw.pipeline.history import (
    Histogram,
    HistoryUnit,
    TimeWindow,
    bucket_for,
    count_batches,
    together,
)
from kgw.pipeline.ranges import OffsetRange, TopicPartition, cut_ranges
from kgw.pipeline.wire import Reading
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kgw.offsets.reader import FoundRecord
    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.jobs.running import Runner
    from kgw.pipeline.wire import WireClient

SPARK_OFFSETS: Final = 20_000_000
"""For fewer offsets, it is not worth starting Spark."""
_UNIT_OFFSETS: Final = 5_000_000
_LEAST_OFFSETS: Final = 100_000
_READING: Final = Reading(fail_on_data_loss=False)
"""Records that retention removes during the run are left out, without an error."""


class HistoryPlan(NamedTuple):
    """The offset ranges to read, and the time window to count."""

    window: TimeWindow
    ranges: list[OffsetRange]
    committed: Mapping[TopicPartition, int]
    """The committed offsets of the group, if one was given."""

    @property
    def length(self) -> int:
        """How many offsets there are."""
        return sum(one.length for one in self.ranges)


def plan(
    wire: WireClient,
    topics: Sequence[str],
    *,
    bucket_ms: int | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    group: str | None = None,
) -> HistoryPlan:
    """Return the offsets to read for the records between two times.

    Without `bucket_ms`, a bucket length is chosen that gives a few dozen buckets. If `group` is
    given, the plan also has its committed offsets. Raises ClientError, and PipelineError for a
    missing topic and for a group without a committed offset in any of the topics.
    """
    ranges: list[OffsetRange] = []
    times_ms: list[int] = []
    for topic in dict.fromkeys(topics):
        described = wire.find_topic(topic)
        if described is None:
            raise PipelineError(f"there is no topic {topic}")
        partitions = [one.partition for one in described.partitions]

        def find(time_ms: int) -> dict[int, FoundRecord]:
            return wire.list_offsets(topic, dict.fromkeys(partitions, time_ms))  # noqa: B023

        bounds = wire.bounds(topic, partitions)
        firsts = None if since_ms is None else find(since_ms)
        ends = None if until_ms is None else find(until_ms)
        for partition, (earliest, latest) in bounds.items():
            first, end = earliest, latest
            if firsts is not None:
                offset = firsts[partition].offset
                first = latest if offset < 0 else max(earliest, offset)
            if ends is not None and ends[partition].offset >= 0:
                end = min(latest, ends[partition].offset)
            ranges.append(OffsetRange(topic, partition, first, end, described.topic_id))
        if bucket_ms is None:
            for found in (find(0), find(MAX_TIMESTAMP)):
                times_ms += [one.timestamp_ms for one in found.values() if one.offset >= 0]
    if bucket_ms is None:
        first_ms = min(times_ms, default=0) if since_ms is None else since_ms
        last_ms = max(times_ms, default=0) if until_ms is None else until_ms
        bucket_ms = bucket_for(max(0, last_ms - first_ms))
    committed: dict[TopicPartition, int] = {}
    if group is not None:
        offsets = wire.call(GroupClient(wire.client).offsets(group))
        committed = {
            one.key: offsets[one.key].offset
            for one in ranges
            if one.key in offsets and not offsets[one.key].is_damaged
        }
        if not committed:
            told = ", ".join(dict.fromkeys(topics))
            raise PipelineError(f"group {group} has committed no offset of {told}")
    return HistoryPlan(TimeWindow(bucket_ms, since_ms, until_ms), ranges, committed)


def run(
    cluster: Cluster,
    planned: HistoryPlan,
    runner: Runner,
    *,
    on_counted: Callable[[int], object] = lambda _: None,
) -> dict[TopicPartition, Histogram]:
    """Return the histogram of each partition.

    `on_counted` is called with the number of offsets of each finished unit.

    Raises PipelineError, ClientError.
    """
    starts = {one.key: one.first for one in planned.ranges}
    units = [
        HistoryUnit(one, one.first == starts[one.key], planned.committed.get(one.key))
        for one in cut_ranges(
            planned.ranges, pieces=runner.parallelism, least=_LEAST_OFFSETS, most=_UNIT_OFFSETS
        )
    ]
    counted: dict[TopicPartition, list[Histogram]] = defaultdict(list)
    for unit, histogram in runner.run(units, partial(count_unit, cluster, planned.window)):
        counted[unit.wanted.key].append(histogram)
        on_counted(unit.wanted.length)
    return {key: together(counted[key]) for key in starts}


def count_unit(cluster: Cluster, window: TimeWindow, unit: HistoryUnit) -> Histogram:
    """Count the records of a range, in a task. Raises PipelineError, ClientError."""
    wanted = unit.wanted
    counted = []
    with cluster.client(client_id="kgw-pipeline-lag") as wire:
        for piece in wire.pieces(wanted, _READING):
            try:
                headers = read_batch_headers(
                    piece.data, first_offset=piece.first_offset, end_offset=wanted.end
                )
            except RecordError as error:
                text = f"{wanted.key}: {error}"
                raise DamagedRecordsError(text, piece.first_offset, None) from error
            counted.append(count_batches(headers, unit, window))
    return together(counted)
