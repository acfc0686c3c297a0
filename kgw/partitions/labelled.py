"""Metrics by topic and by partition: `kgw.metrics.labels`.

A topic or partition has its own series permanently, or permanently belongs to the sum of the
others. Otherwise counts would move between the two, and a counter would decrease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kgw.errors import KgwError
from kgw.metrics import METRICS
from kgw.partitions.counts import PartitionCounts
from kgw.partitions.series_room import OTHERS, add
from kgw.turns import StepBudget
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kgw.metrics import Metrics
    from kgw.partitions.counts import CountsByPartition
    from kgw.partitions.partition import Partition
    from kgw.partitions.series_room import SeriesRoom
    from kgw.partitions.topics.catalog import TopicCatalog
    from kgw.turns import Turns
    from kgw.types import TopicId

_Key = TypeVar("_Key", bound="Hashable")

TOPIC_SERIES: Final = 5
PARTITION_SERIES: Final = 9
_PARTITIONS_PER_TURN: Final = 200
_COUNTERS: Final = frozenset(one.attribute for one in METRICS if one.kind == "counter")
_LABELS_OF_OTHERS: Final = frozenset({OTHERS, (OTHERS, OTHERS)})


class _Marks(NamedTuple):
    """The offsets and the size of a partition's log."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    end_offset: int
    size_bytes: int


class TopicFigures:
    """Copies the figures of topics and partitions into the metrics when `look` is called.

    Call it in the event loop's thread only.
    """

    def __init__(
        self,
        catalog: TopicCatalog,
        counts: CountsByPartition,
        metrics: Metrics,
        room: SeriesRoom,
        *,
        by_topic: bool,
        by_partition: bool,
    ) -> None:
        self._catalog = catalog
        self._counts = counts
        self._metrics = metrics
        self._room = room
        self._by_topic = by_topic
        self._by_partition = by_partition
        # By topic and by partition: whether it has its own series.
        self._topics: dict[TopicId, bool] = {}
        self._partitions: dict[PartitionKey, bool] = {}
        # Counts of deleted topics and partitions without series of their own.
        self._gone_topics = PartitionCounts()
        self._gone_partitions = PartitionCounts()

    def forget_topic(self, topic_id: TopicId) -> None:
        """Remove a deleted topic's series. Its counts in the sum of the others stay there."""
        for index, counts in self._counts.forget_topic(topic_id).items():
            if self._topics.get(topic_id) is False:
                self._gone_topics.add(counts)
            is_named = self._partitions.pop(PartitionKey(topic_id, index), None)
            if is_named:
                self._room.give_back(PARTITION_SERIES)
            elif is_named is False:
                self._gone_partitions.add(counts)
        if self._topics.pop(topic_id, None):
            self._room.give_back(TOPIC_SERIES)

    def look(self) -> Turns[None]:
        """Update the metrics. Topics get series first, then partitions."""
        budget = StepBudget(_PARTITIONS_PER_TURN)
        topics = list(self._catalog.topics.values())
        if self._by_topic:
            for topic in topics:
                # If a topic was deleted after the list was made, its series would stay for ever.
                if not topic.is_deleted:
                    self._admit(self._topics, topic.topic_id, TOPIC_SERIES)
                if budget.spend():
                    yield
        numbers = _Numbers()
        if self._by_topic and not all(self._topics.values()):
            numbers.count_topic(OTHERS, self._gone_topics)
        if self._by_partition and not all(self._partitions.values()):
            numbers.count_partition((OTHERS, OTHERS), self._gone_partitions)
        for topic in topics:
            for partition in list(topic.partitions.values()):
                if topic.is_deleted:
                    break
                self._look_at(partition, numbers)
                if budget.spend():
                    yield
        self._publish(numbers)

    def _look_at(self, partition: Partition, numbers: _Numbers) -> None:
        topic = partition.topic
        key = PartitionKey(topic.topic_id, partition.index)
        counts, marks = self._counts.of(key), _marks(partition)
        if self._by_topic:
            name = topic.name if self._topics.get(topic.topic_id) else OTHERS
            numbers.count_topic(name, counts)
            if marks is not None:
                add(numbers.topic_log_bytes, name, marks.size_bytes)
        if self._by_partition:
            self._admit(self._partitions, key, PARTITION_SERIES)
            labels = (OTHERS, OTHERS)
            if self._partitions[key]:
                labels = (topic.name, str(partition.index))
            numbers.count_partition(labels, counts)
            if marks is not None:
                numbers.mark_partition(labels, marks)

    def _admit(self, admitted: dict[_Key, bool], key: _Key, series: int) -> None:
        if key not in admitted:
            admitted[key] = self._room.take(series)

    def _publish(self, numbers: _Numbers) -> None:
        for name in _Numbers.__slots__:
            found = getattr(numbers, name)
            if name in _COUNTERS:
                # If a topic was deleted since `look` began, some of its partitions may be missing.
                before = getattr(self._metrics, name)
                for others in found.keys() & before.keys() & _LABELS_OF_OTHERS:
                    found[others] = max(found[others], before[others])
            setattr(self._metrics, name, found)
        for label, is_on, admitted in (
            ("topic", self._by_topic, [*self._topics.values()]),
            ("partition", self._by_partition, [*self._partitions.values()]),
        ):
            if is_on:
                self._room.tell(label, admitted.count(False), self._metrics)


class _Numbers:
    """The values that one call of `look` collects, under the attribute names of `Metrics`."""

    __slots__ = (
        "partition_appended_bytes",
        "partition_appended_records",
        "partition_end_offset",
        "partition_fetched_bytes",
        "partition_fetched_records",
        "partition_high_watermark",
        "partition_last_stable_offset",
        "partition_log_bytes",
        "partition_log_start_offset",
        "topic_appended_bytes",
        "topic_appended_records",
        "topic_fetched_bytes",
        "topic_fetched_records",
        "topic_log_bytes",
    )

    def __init__(self) -> None:
        self.topic_appended_records: dict[str, int] = {}
        self.topic_appended_bytes: dict[str, int] = {}
        self.topic_fetched_records: dict[str, int] = {}
        self.topic_fetched_bytes: dict[str, int] = {}
        self.topic_log_bytes: dict[str, int] = {}
        self.partition_appended_records: dict[tuple[str, ...], int] = {}
        self.partition_appended_bytes: dict[tuple[str, ...], int] = {}
        self.partition_fetched_records: dict[tuple[str, ...], int] = {}
        self.partition_fetched_bytes: dict[tuple[str, ...], int] = {}
        self.partition_log_bytes: dict[tuple[str, ...], int] = {}
        self.partition_log_start_offset: dict[tuple[str, ...], int] = {}
        self.partition_high_watermark: dict[tuple[str, ...], int] = {}
        self.partition_last_stable_offset: dict[tuple[str, ...], int] = {}
        self.partition_end_offset: dict[tuple[str, ...], int] = {}

    def count_topic(self, name: str, counts: PartitionCounts) -> None:
        add(self.topic_appended_records, name, counts.records)
        add(self.topic_appended_bytes, name, counts.size_bytes)
        add(self.topic_fetched_records, name, counts.fetched_records)
        add(self.topic_fetched_bytes, name, counts.fetched_bytes)

    def count_partition(self, labels: tuple[str, ...], counts: PartitionCounts) -> None:
        add(self.partition_appended_records, labels, counts.records)
        add(self.partition_appended_bytes, labels, counts.size_bytes)
        add(self.partition_fetched_records, labels, counts.fetched_records)
        add(self.partition_fetched_bytes, labels, counts.fetched_bytes)

    def mark_partition(self, labels: tuple[str, ...], marks: _Marks) -> None:
        add(self.partition_log_start_offset, labels, marks.log_start_offset)
        add(self.partition_high_watermark, labels, marks.high_watermark)
        add(self.partition_last_stable_offset, labels, marks.last_stable_offset)
        add(self.partition_end_offset, labels, marks.end_offset)
        add(self.partition_log_bytes, labels, marks.size_bytes)


def _marks(partition: Partition) -> _Marks | None:
    """Return a log's offsets and size; None if they cannot be read, so that it gets no series."""
    log = partition.log
    try:
        bounds = partition.view().bounds()
        return _Marks(
            bounds.log_start_offset,
            bounds.high_watermark,
            bounds.last_stable_offset,
            log.end_offset,
            log.size_bytes,
        )
    except KgwError:
        return None
