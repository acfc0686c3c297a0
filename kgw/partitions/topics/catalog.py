"""TopicCatalog: finds the topics of the cluster by name and id, and their partitions."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from kgw.errors import ErrorCode
from kgw.partitions.append.appending import AppendCounts, CheckThread
from kgw.partitions.topic_config import TopicConfig
from kgw.partitions.topics.hold import nothing_committed
from kgw.partitions.topics.topic import INTERNAL_TOPICS, Topic, unified_name, why_missing
from kgw.types import PartitionKey, TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.partitions.counts import CountsByPartition
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.hold import Committed
    from kgw.partitions.topics.opening import Opening
    from kgw.types import TopicId

# A constant, as every Produce reads it and an enum member is slow to look up.
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TopicCatalog:
    """The topics of the cluster, with their partitions on this node.

    `TopicManager` creates, changes and deletes topics.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = config
        """The server settings, which are the defaults of the topics' settings."""
        self._clock = clock
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_unified_name: dict[str, TopicName] = {}
        # Locks of names that are being changed. A lock is dropped when no task holds or awaits it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.topics: Mapping[str, Topic] = MappingProxyType(self._by_name)
        """Topics that clients have created, by name. Internal topics are not included."""
        self.partition_count = 0
        """Number of partitions of all topics, including topics that are being created."""
        self.openings: tuple[Opening, ...] = ()
        """Openings that are not done; `find` moves a partition to the front of them."""
        self.cluster_id = ""
        """The id from which the ids of internal topics are derived.

        Set before the topics are opened.
        """
        self._internal: dict[str, Topic] = {}
        # Names of internal topics by id; filled when the first unknown id is looked up.
        self._internal_names: dict[bytes, str] = {}
        self.committed: Committed = nothing_committed
        """Returns offsets that groups have committed, for kgw.archive.hold.

        Set by the owner of the groups.
        """
        self.check_thread = CheckThread()
        """Runs long checks and conversions of records."""
        self.recompressed = self.check_thread.recompressed
        """Counts of batches that were compressed again in their topic's codec."""
        self._appended = AppendCounts()
        self.counts: CountsByPartition | None = None
        """Counters of each partition; None unless kgw.metrics.labels asks for them."""
        if not {"topic", "partition"}.isdisjoint(config.metrics_labels):
            from kgw.partitions.counts import CountsByPartition

            self.counts = CountsByPartition()
        self.when_deleted: list[Callable[[TopicId], None]] = []
        """Called with the id of each deleted topic, once the deletion is durable."""
        self.when_gone: list[Callable[[TopicId], None]] = []
        """Called with the id of each deleted topic after `when_deleted`, and of each foreign topic
        that is served no more, which may come back under the same id."""
        self.when_retention_changed: Callable[[Topic], None] | None = None
        """Called with a topic after its retention settings have changed."""

    @property
    def appended(self) -> AppendCounts:
        """Counts of all appends by producers, in all partitions."""
        return self._appended if self.counts is None else self.counts.total()

    @property
    def listed(self) -> list[Topic]:
        """Topics in a list of all topics, including internal topics that were looked up before."""
        shown = (one for one in self._internal.values() if one.name not in self._by_name)
        return [*self._by_name.values(), *shown]

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name) or self._internal_topic(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id) or self._internal_topic(self._internal_name(topic_id))

    def colliding(self, name: str) -> TopicName | None:
        """Return the topic whose name is equal to `name` or collides with it."""
        return self._by_unified_name.get(unified_name(name))

    def _internal_topic(self, name: str) -> Topic | None:
        """Return an internal topic, unless clients have created an ordinary topic of its name."""
        if name not in INTERNAL_TOPICS or name in self._by_name:
            return None
        topic = self._internal.get(name)
        if topic is None:
            # Imported here, as few clients request internal topics.
            from kgw.partitions.topics.internal_topics import make_internal_topic

            topic = self._internal[name] = make_internal_topic(
                name, self.cluster_id, self.config, self._clock, self.check_thread, self.appended
            )
        return topic

    def _internal_name(self, topic_id: bytes) -> str:
        """Return the name of the internal topic with an id; "" for other ids."""
        if not self._internal_names:
            from kgw.partitions.topics.internal_topics import internal_topic_id

            self._internal_names = {
                internal_topic_id(self.cluster_id, name): name for name in INTERNAL_TOPICS
            }
        return self._internal_names.get(topic_id, "")

    def find(self, topic: bytes | str, index: int) -> tuple[Partition | None, ErrorCode]:
        """Return a partition by its topic's id or name, or None with the error for the answer."""
        found = self._by_name.get(topic) if isinstance(topic, str) else self._by_id.get(topic)
        partition = None if found is None else found.partitions.get(index)
        if partition is not None:
            return partition, _UNKNOWN
        if found is not None:
            self.request_open(found, index)
        else:
            found = self.get(topic) if isinstance(topic, str) else self.by_id(topic)
            partition = None if found is None else found.partitions.get(index)
            if partition is not None:
                return partition, _UNKNOWN
        return None, why_missing(found, index, by_id=not isinstance(topic, str))

    def partitions(self) -> Iterable[Partition]:
        """Yield every partition on this node."""
        for topic in list(self._by_name.values()):
            yield from topic.partitions.values()

    def holding_groups(self) -> frozenset[str]:
        """Return all groups in kgw.archive.hold of any topic."""
        return frozenset(
            group for topic in self._by_name.values() for group in topic.config.holding_groups
        )

    def request_open(self, topic: Topic, index: int) -> bool:
        """Open this partition next. Return whether it was still closed."""
        key = PartitionKey(topic.topic_id, index)
        return any(opening.request_open(key) for opening in self.openings)

    # --- changes ---------------------------------------------------------------------------------

    def add_opening(self, opening: Opening) -> None:
        """Add an opening that has begun, and forget those that are done."""
        self.openings = (*(one for one in self.openings if not one.is_done), opening)

    def lock(self, name: str) -> asyncio.Lock:
        """Return the lock of a name, which names that collide with it share."""
        return self._locks.setdefault(unified_name(name), asyncio.Lock())

    def add(self, topic: Topic) -> None:
        """Add a topic, so that it can be found. Its partitions are counted already."""
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_unified_name[unified_name(topic.name)] = topic.name

    def remove(self, topic: Topic) -> None:
        """Remove a topic, so that it is no longer found, and wake the readers of its partitions."""
        topic.is_deleted = True
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        del self._by_unified_name[unified_name(topic.name)]
        self.partition_count -= topic.partition_count
        for partition in topic.partitions.values():
            partition.retire(_UNKNOWN)

    def tell_deleted(self, topic_id: TopicId) -> None:
        """Call `when_deleted` and `when_gone`."""
        for tell in (*self.when_deleted, *self.when_gone):
            tell(topic_id)

    def tell_gone(self, topic_id: TopicId) -> None:
        """Call `when_gone`."""
        for tell in self.when_gone:
            tell(topic_id)

    def reconfigure(self, config: Config) -> None:
        """Replace the server settings; internal topics use the new ones at once."""
        self.config = config
        for topic in self._internal.values():
            topic.config = TopicConfig(topic.config.own, config)
