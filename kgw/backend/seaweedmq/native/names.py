"""Decides which topics of SMQ's broker Kafka clients see, and their names and ids. Pure.

Topic `temperature` of namespace `sensors` is called `sensors.temperature` for Kafka clients, so
that names of two namespaces cannot collide. The topic id is made from the namespace, the name and
the creation time of its partitions. So if the partitions are created again, with offsets from 0, it
is another topic.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.topics.topic_conf import topics_directory, version_name
from kgw.types import TopicId, TopicName, format_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PARTITIONS: Final = 2520
"""The number of slots in the ring of SMQ's broker."""
_NS_PER_S: Final = 1_000_000_000


class NativePartition(NamedTuple):
    """A range of slots in the ring, as the broker identifies a partition."""

    ring_size: int
    range_start: int
    range_stop: int
    unix_time_ns: int


_FIELDS: Final = ("ringSize", "rangeStart", "rangeStop", "unixTimeNs")
"""The fields of a NativePartition in SMQ's JSON."""


class NativeTopic(NamedTuple):
    """One generation of a topic's partitions, in the order of their ranges."""

    namespace: str
    name: str
    partitions: tuple[NativePartition, ...]

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def kafka_name(self) -> TopicName:
        """The name of the topic for Kafka clients."""
        return TopicName(str(self))

    @property
    def generation_ns(self) -> int:
        """The time at which its partitions were made."""
        return self.partitions[0].unix_time_ns

    @property
    def topic_id(self) -> TopicId:
        """The topic id, which is the same in each gateway at any time."""
        for number in range(256):
            seed = f"{self.namespace}\0{self.name}\0{self.generation_ns}\0{number}"
            topic_id = sha256(b"kgw native topic\0" + seed.encode()).digest()[:16]
            # Avoid a leading dash, as in ids of new topics, because tools mistake it for an option.
            if not format_uuid(topic_id).startswith("-"):
                return TopicId(topic_id)
        raise AssertionError("256 hashes begin with the same six bits")

    @property
    def parent(self) -> str:
        """The topic's directory."""
        return f"{topics_directory(self.namespace)}/{self.name}"

    @property
    def version(self) -> str:
        """The name of the directory of its partitions."""
        return version_name(self.generation_ns // _NS_PER_S)

    def directory(self, partition: int) -> str:
        """Return the directory of a partition's log files."""
        one = self.partitions[partition]
        return f"{self.parent}/{self.version}/{one.range_start:04d}-{one.range_stop:04d}"


def may_have_topics(patterns: Iterable[str], namespace: str) -> bool:
    """Return whether a pattern's first part matches a namespace."""
    return not namespace.startswith(".") and any(
        fnmatchcase(namespace, pattern.partition(".")[0]) for pattern in patterns
    )


def is_offered(patterns: Iterable[str], namespace: str, name: str) -> bool:
    """Return whether a topic matches a pattern."""
    return not name.startswith(".") and any(
        fnmatchcase(namespace, first) and fnmatchcase(name, rest)
        for first, _, rest in (pattern.partition(".") for pattern in patterns)
    )


def read_topic_conf(namespace: str, name: str, content: bytes) -> NativeTopic:
    """Return the topic in a `topic.conf`. Raises ValueError if it is no topic of a broker."""
    try:
        rows = json.loads(content)["brokerPartitionAssignments"] or ()
        partitions = sorted(
            NativePartition(*(int(row["partition"].get(name, 0)) for name in _FIELDS))
            for row in rows
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it is not what SMQ writes: {error!r}") from error
    partitions.sort(key=lambda one: one.range_start)
    if not 0 < len(partitions) <= MAX_PARTITIONS:
        raise ValueError(f"it names {len(partitions)} partitions")
    if len({one.unix_time_ns for one in partitions}) != 1:
        raise ValueError("its partitions are of several generations")
    if len({one.range_start for one in partitions}) != len(partitions):
        raise ValueError("two of its partitions begin at the same place")
    return NativeTopic(namespace, name, tuple(partitions))
