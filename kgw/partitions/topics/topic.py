"""A topic: its name, id, settings and partitions."""

from __future__ import annotations

import json
import re
from os import urandom
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode, KafkaError
from kgw.types import TopicId, TopicName, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.backend.base import ForeignTopic
    from kgw.partitions.partition import Partition
    from kgw.partitions.topic_config import TopicConfig
    from kgw.turns import StepBudget, Turns


MAX_NAME_LENGTH = 249

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Kafka's own topics that always exist and are empty: see `internal_topics`."""

UNCREATED_TOPICS: Final = frozenset({"__share_group_state", "__cluster_metadata"})
"""Kafka's own topics that do not exist in kgw and that clients cannot create."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


class TopicRow(NamedTuple):
    """A stored topic: one row of kind `topic`, keyed by the text of its id."""

    name: TopicName
    topic_id: TopicId
    partitions: int
    configs: Mapping[str, str]

    @property
    def key(self) -> str:
        return format_uuid(self.topic_id)

    def encode(self) -> bytes:
        return json.dumps(
            {
                "name": self.name,
                "topic_id": self.key,
                "partitions": self.partitions,
                "configs": dict(self.configs),
            }
        ).encode()

    @classmethod
    def decode(cls, value: bytes) -> TopicRow:
        """Decode the output of `encode`. Raises ValueError for other bytes."""
        try:
            fields = json.loads(value)
            return cls(
                TopicName(str(fields["name"])),
                TopicId(parse_uuid(fields["topic_id"])),
                int(fields["partitions"]),
                {str(name): str(text) for name, text in fields["configs"].items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a topic's row: {error!r}") from error


class Topic:
    """A topic of the cluster. After a deletion, a new topic of its name has a new object and id.

    `partition_count` counts all of its partitions. `partitions` has those on this node, ordered by
    index once all are open.
    """

    __slots__ = (
        "config",
        "encoded",
        "is_deleted",
        "is_internal",
        "name",
        "next_epochs",
        "partition_count",
        "partitions",
        "topic_id",
    )

    def __init__(
        self,
        name: TopicName,
        topic_id: TopicId,
        partition_count: int,
        config: TopicConfig,
        *,
        is_internal: bool = False,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_count = partition_count
        self.config = config
        self.partitions: Mapping[int, Partition] = {}
        self.next_epochs: Mapping[int, int] = {}
        """The next leader epoch of each partition that has moved to another node."""
        self.is_internal = is_internal
        """Whether this is an internal topic of Kafka, which is empty and cannot be changed."""
        self.is_deleted = False
        self.encoded: dict[tuple[int, int, bool], bytes] = {}
        """The cache of Metadata: encoded descriptions by placement version, layout and options.
        Replaced when the partitions change."""

    def __repr__(self) -> str:
        return f"<Topic {self.name} {format_uuid(self.topic_id)} x{self.partition_count}>"

    def partition(self, index: int) -> Partition | None:
        """Return a partition on this node; None for any other index."""
        return self.partitions.get(index)

    def add_partitions(self, partitions: Mapping[int, Partition]) -> None:
        """Add partitions that have been opened on this node."""
        # Other tasks may be iterating over the old dictionary.
        every = {**self.partitions, **partitions}
        if len(partitions) > 1 or len(every) == self.partition_count:
            # Only once, not for each of thousands that are opened one after the other.
            every = dict(sorted(every.items()))
        self.partitions = every
        self.encoded = {}

    def remove_partitions(self, partitions: Mapping[int, Partition]) -> None:
        """Remove partitions that other nodes lead now."""
        self.partitions = {i: one for i, one in self.partitions.items() if i not in partitions}
        begun = {index: one.log.next_leader_epoch for index, one in partitions.items()}
        self.next_epochs = {**self.next_epochs, **begun}
        self.encoded = {}

    def has_partition(self, index: int) -> bool:
        """Return whether the topic has this partition, on any node."""
        return 0 <= index < self.partition_count

    def configure(self, config: TopicConfig, budget: StepBudget) -> Turns[None]:
        """Use new settings from the next append on, and pass them to the logs.

        Overlapping calls pass on the topic's latest settings, so that all logs get the settings of
        the last call.
        """
        before, self.config = self.config, config
        if config.log_settings != before.log_settings:
            yield from self.configure_logs(self.partitions.values(), budget)

    def configure_logs(self, partitions: Iterable[Partition], budget: StepBudget) -> Turns[None]:
        """Pass the topic's settings to the logs of `partitions`, which may be added to it later."""
        for partition in partitions:
            partition.log.configure(self.config.log_settings)
            if budget.spend():
                yield

    @property
    def foreign(self) -> ForeignTopic | None:
        """The foreign topic that this topic mirrors, or None.

        Such a topic has no row and is not changed.
        """
        return self.config.foreign

    def check_own(self, code: ErrorCode) -> None:
        """Raise KafkaError with this code for a foreign or internal topic."""
        if self.is_internal:
            raise KafkaError(code, f"{self.name} is an internal topic: no client changes it")
        if self.foreign is not None:
            raise KafkaError(code, f"topic {self.name!r} is changed by {self.foreign.leader} alone")

    def row(self) -> TopicRow:
        return TopicRow(self.name, self.topic_id, self.partition_count, self.config.own_texts())


def why_missing(topic: Topic | None, index: int, *, by_id: bool = False) -> ErrorCode:
    """Return the error for a partition that is not on this node.

    The request has the topic's name or its id.
    """
    if topic is None and by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic is not None and topic.has_partition(index):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def name_problem(name: str) -> str | None:
    """Return the reason why a topic name is invalid in Kafka; None for a valid name."""
    if not name:
        return "a topic name cannot be empty"
    if name in {".", ".."}:
        return f"a topic cannot be called {name!r}"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic name has at most {MAX_NAME_LENGTH} characters, not {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"{name!r}: a topic name is made of letters, digits, '.', '_' and '-'"
    return None


def why_unknown(name: str | None) -> ErrorCode:
    """Return the error for a missing topic; `name` is None if the request has an id.

    The name must be valid.
    """
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if name_problem(name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def unified_name(name: str) -> str:
    """Return the name with '.' and '_' unified: such names collide in metrics (KAFKA-495)."""
    return name.replace(".", "_")


def new_topic_id() -> TopicId:
    """Return a random id that no tool takes for an option or for a reserved id of Kafka."""
    while True:
        topic_id = urandom(16)
        if is_plain_topic_id(topic_id):
            return TopicId(topic_id)


def is_plain_topic_id(topic_id: bytes) -> bool:
    """Return whether no tool takes an id for an option or for a reserved id of Kafka."""
    return bool(topic_id[:12].strip(b"\0")) and not format_uuid(topic_id).startswith("-")
