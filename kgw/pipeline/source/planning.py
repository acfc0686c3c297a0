"""Plans the offset ranges of a batch or micro-batch; asks the cluster, without Spark."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from kgw.pipeline.errors import DamagedRecordsError, DataLossError, OptionError, PipelineError
from kgw.pipeline.options import EARLIEST, LATEST, OffsetLimitKind
from kgw.pipeline.ranges import (
    LEAST_PIECE,
    OffsetRange,
    StreamPosition,
    TopicPartition,
    check_complete,
    check_same_topics,
    cut_ranges,
    find_loss,
)
from kgw.system import processors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.client import TopicDescription
    from kgw.offsets.ranges import OffsetBounds
    from kgw.pipeline.options import OffsetLimit, SourceOptions
    from kgw.pipeline.wire import WireClient
    from kgw.types import TopicId

_log = logging.getLogger(__name__)


def check_times(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """Raise OptionError if the starting time of a batch is after its ending time. Pure.

    Without records in between, both times resolve to the same offset, and the empty result would
    hide the mistake.
    """
    if not starting.kind is ending.kind is OffsetLimitKind.TIMES:
        return
    if not starting.by_partition and not ending.by_partition:
        _check_times(starting, ending, "", starting.timestamp_ms, ending.timestamp_ms)
    for key in sorted({*starting.by_partition, *ending.by_partition}):
        start_ms = starting.by_partition.get(key, starting.timestamp_ms)
        end_ms = ending.by_partition.get(key, ending.timestamp_ms)
        _check_times(starting, ending, f"{key}: ", start_ms, end_ms)


def _check_times(
    starting: OffsetLimit, ending: OffsetLimit, where: str, start_ms: int, end_ms: int
) -> None:
    # A negative time means that the option does not name the partition; `offsets_of` raises the
    # error.
    if 0 <= end_ms < start_ms:
        raise OptionError(
            f"{where}this batch begins at time {start_ms}, behind its end at {end_ms}: "
            f"{starting.option} and {ending.option} do not go together"
        )


def _given(place: OffsetLimit) -> str:
    return place.option or f"{place.kind.value} as the default"


def _already_there(place: OffsetLimit, offset: int, bounds: OffsetBounds) -> int:
    """Return an offset limited to the records that existed when the bounds were read. Pure.

    A record that arrived after that may be the first one of its time, but does not belong to the
    batch.
    """
    return min(offset, bounds.latest) if place.kind is OffsetLimitKind.TIMES else offset


def cut(options: SourceOptions, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Cut ranges for tasks; by default there are as many tasks as processors."""
    if options.min_partitions is not None:
        return cut_ranges(
            ranges, pieces=options.min_partitions, most=options.max_records_per_partition
        )
    return cut_ranges(
        ranges,
        pieces=processors(),
        least=LEAST_PIECE,
        most=options.max_records_per_partition,
    )


class ReadPlanner:
    """Plans the reads of one cluster by the options. Raises ClientError, PipelineError."""

    def __init__(self, wire: WireClient, options: SourceOptions) -> None:
        self._wire = wire
        self._options = options

    # Batch queries

    def batch_ranges(self) -> list[OffsetRange]:
        """Return the ranges of a batch query before they are cut."""
        options = self._options
        starting = options.starting or EARLIEST
        if starting.kind is OffsetLimitKind.LATEST or -1 in (
            starting.by_partition.values() if starting.kind is OffsetLimitKind.OFFSETS else ()
        ):
            raise OptionError(f"{starting.option} cannot be the latest offset in a batch query")
        check_times(starting, options.ending)
        topic_ids, bounds = self.look()
        starts = self.offsets_of(starting, bounds)
        ends = self.offsets_of(options.ending, bounds)
        ranges = []
        for key in sorted(bounds):
            first = _already_there(starting, starts[key], bounds[key])
            end = _already_there(options.ending, ends[key], bounds[key])
            if first > end:
                raise OptionError(
                    f"{key}: this batch begins at offset {first}, behind its end at {end}: "
                    f"{_given(starting)} and {_given(options.ending)} do not go together; the "
                    f"partition has offsets {bounds[key].earliest} to {bounds[key].latest - 1}"
                )
            loss = find_loss(key, first, end, bounds[key])
            if loss is not None:
                self._report(loss)
                first = min(max(first, bounds[key].earliest), bounds[key].latest)
                end = min(end, bounds[key].latest)
            ranges.append(OffsetRange(*key, first, end, topic_ids[key.topic]))
        return ranges

    # Streaming queries

    def initial(self) -> StreamPosition:
        """Return the position at which a new stream begins."""
        topic_ids, bounds = self.look()
        return StreamPosition(topic_ids, self.offsets_of(self._options.starting or LATEST, bounds))

    def latest(self, start: StreamPosition) -> tuple[dict[TopicPartition, int], StreamPosition]:
        """Return the next offsets of a stream at `start`, and the present end of each partition.

        New partitions begin at offset 0; without failOnDataLoss, at their log start offset. If the
        end of a partition has moved back, the lost offsets raise an error or are logged; then the
        stream continues at the new end. Removed offsets are reported by the task that reads them.
        """
        options = self._options
        topic_ids, bounds = self.look(known=start)
        starts = {key: offset for key, offset in start.offsets.items() if key in bounds}
        ends = {}
        for key, one in bounds.items():
            first = starts.setdefault(key, 0 if options.reading.fail_on_data_loss else one.earliest)
            if key not in start.offsets and one.earliest > first:
                self._report(
                    DataLossError(
                        *key, first, one.earliest, f"the new partition begins at {one.earliest}"
                    )
                )
            if one.latest < first:
                self._report(
                    DataLossError(
                        *key, one.latest, first, f"the partition ends at {one.latest} now"
                    )
                )
                # New records get offsets that the stream has already read: continue at the new end.
                starts[key] = one.latest
            ends[key] = one.latest
        return starts, StreamPosition(topic_ids, ends)

    def admit_bytes(
        self,
        start: Mapping[TopicPartition, int],
        end: StreamPosition,
        limit_bytes: int,
        turn: int = 0,
    ) -> dict[TopicPartition, int]:
        """Return ends such that tasks read at most `limit_bytes` of stored batches.

        The size of batches is unknown until they are fetched, so they are fetched here to be
        counted. Partitions share the bytes equally; bytes that one does not need go to the others.
        At least one batch is admitted, even if it is larger than the limit. `turn` selects the
        partition that is served first: if the limit is too low for all partitions, each is served
        in turn.
        """
        ends = {key: start[key] for key in end.offsets}
        left_bytes = limit_bytes
        waiting = sorted(key for key, last in end.offsets.items() if start[key] < last)
        if waiting:
            first = turn % len(waiting)
            waiting = [*waiting[first:], *waiting[:first]]
        has_some = False
        while waiting:
            share = max(1, left_bytes // len(waiting))
            unfinished = []
            for key in waiting:
                last = end.offsets[key]
                wanted = OffsetRange(*key, ends[key], last, end.topic_ids[key.topic])
                counted = self._count(wanted, share)
                if counted is None:
                    # Admit one offset: the task that reads it will raise the error.
                    ends[key] = max(ends[key], start[key] + 1)
                    continue
                next_offset, taken_bytes = counted
                if taken_bytes > left_bytes and has_some:
                    continue
                has_some = True
                ends[key] = min(last, next_offset)
                left_bytes -= taken_bytes
                if left_bytes <= 0:
                    return ends
                if ends[key] < last:
                    unfinished.append(key)
            waiting = unfinished
        return ends

    def _count(self, wanted: OffsetRange, most_bytes: int) -> tuple[int, int] | None:
        """Return the end and the bytes of a range's first batches; None if they are unreadable.

        The bytes exceed `most_bytes` only if the first batch is larger.
        """
        reading = self._options.reading
        counting = reading._replace(
            max_fetch_bytes=min(most_bytes, reading.max_fetch_bytes), max_bytes_per_s=None
        )
        try:
            piece = self._wire.first_piece(wanted, counting)
        except (DamagedRecordsError, DataLossError):
            return None
        if piece is None:
            return wanted.end, 0
        return piece.next_offset, piece.bytes_before(wanted.end)

    # The present topics and offsets

    def look(
        self, known: StreamPosition | None = None
    ) -> tuple[dict[str, TopicId], dict[TopicPartition, OffsetBounds]]:
        """Return the topics' ids, and the present bounds of each partition to read."""
        topics = self._subscribed(known)
        topic_ids = {str(one.name): one.topic_id for one in topics}
        if known is not None:
            before = known.topic_ids
            if not self._options.reading.fail_on_data_loss:
                before = {name: one for name, one in before.items() if name in topic_ids}
            check_same_topics(before, topic_ids)
        assigned = self._options.subscription.assigned
        bounds: dict[TopicPartition, OffsetBounds] = {}
        for topic in topics:
            there = [one.partition for one in topic.partitions]
            asked = [one.partition for one in assigned if one.topic == topic.name] or there
            missing = sorted(set(asked) - set(there))
            if missing:
                raise OptionError(
                    f"assign names partition {missing[0]} of topic {topic.name}, which has "
                    f"{len(there)}: 0 to {len(there) - 1}"
                )
            found = self._wire.bounds(
                topic.name, asked, read_committed=self._options.reading.read_committed
            )
            bounds |= {TopicPartition(topic.name, index): one for index, one in found.items()}
        return topic_ids, bounds

    def _subscribed(self, known: StreamPosition | None) -> list[TopicDescription]:
        subscription = self._options.subscription
        if subscription.pattern:
            wanted = re.compile(subscription.pattern)
            topics = self._wire.topics()
            return [one for one in topics if not one.is_internal and wanted.fullmatch(one.name)]
        names = subscription.topics or dict.fromkeys(one.topic for one in subscription.assigned)
        found = {name: self._wire.find_topic(name) for name in names}
        for name, topic in found.items():
            if topic is None and (known is None or name not in known.topic_ids):
                raise PipelineError(f"there is no topic {name}")
        return [one for one in found.values() if one is not None]

    def offsets_of(
        self, place: OffsetLimit, bounds: Mapping[TopicPartition, OffsetBounds]
    ) -> dict[TopicPartition, int]:
        """Return for each partition the offset that a start or end in the options resolves to."""
        if place.kind is OffsetLimitKind.EARLIEST:
            return {key: one.earliest for key, one in bounds.items()}
        if place.kind is OffsetLimitKind.LATEST:
            return {key: one.latest for key, one in bounds.items()}
        if place.by_partition:
            check_complete(place.option, place.by_partition, list(bounds))
        if place.kind is OffsetLimitKind.OFFSETS:
            special = {-2: 0, -1: 1}
            return {
                key: bounds[key][special[offset]] if offset in special else offset
                for key, offset in place.by_partition.items()
            }
        times = place.by_partition or dict.fromkeys(bounds, place.timestamp_ms)
        found = self._find_by_time(times)
        for key, offset in found.items():
            if offset < 0 and not place.latest_without_match:
                raise PipelineError(
                    f"{place.option}: {key} has no record of time {times[key]} or later; "
                    "startingOffsetsByTimestampStrategy=latest takes the end instead"
                )
        return {key: bounds[key].latest if one < 0 else one for key, one in found.items()}

    def _find_by_time(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for topic in dict.fromkeys(key.topic for key in times_ms):
            asked = {key.partition: time for key, time in times_ms.items() if key.topic == topic}
            answers = self._wire.list_offsets(
                topic, asked, read_committed=self._options.reading.read_committed
            )
            found |= {TopicPartition(topic, index): one.offset for index, one in answers.items()}
        return found

    def _report(self, loss: DataLossError) -> None:
        if self._options.reading.fail_on_data_loss:
            raise loss
        _log.warning("%s", loss)
