"""Kafka's internal topics, which can be described but have no records.

Burrow and kminion read `__consumer_offsets`, and consoles show it. kgw keeps committed offsets and
transactions in its state store, so these topics are empty. They always exist, with 50 partitions
each. They are not stored: a topic's id is computed from the id of the cluster.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from kgw.backend.append import refused_append
from kgw.backend.base import EpochEnd, PartitionLog, ReadResult
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.partitions.admission import Admission
from kgw.partitions.partition import Partition
from kgw.partitions.topic_config import TopicConfig, parse_own_settings
from kgw.partitions.topics.topic import Topic, is_plain_topic_id
from kgw.types import PartitionKey, TopicId, TopicName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kgw.backend.append import Append
    from kgw.backend.base import LogSettings, Snapshot
    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.partitions.append.appending import AppendCounts, Appended, CheckThread
    from kgw.partitions.append.transactions import TransactionMarker
    from kgw.records.batch import RecordBatch

PARTITIONS: Final = 50
"""Kafka's default of `offsets.topic.num.partitions` and `transaction.state.log.num.partitions`."""

_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
"""The settings that Kafka gives them."""


def internal_topic_id(cluster_id: str, name: str) -> TopicId:
    """Return the id of an internal topic: the same after a restart, and on every node."""
    attempt = 0
    while True:
        topic_id = sha256(f"{cluster_id} {name} {attempt}".encode()).digest()[:16]
        if is_plain_topic_id(topic_id):
            return TopicId(topic_id)
        attempt += 1


def internal_config(config: Config) -> TopicConfig:
    """Return the settings of an internal topic."""
    return TopicConfig(parse_own_settings(_SETTINGS), config)


def make_internal_topic(
    name: str,
    cluster_id: str,
    config: Config,
    clock: Clock,
    check_thread: CheckThread,
    appended: AppendCounts,
) -> Topic:
    """Return an internal topic with all of its partitions, which are not stored."""
    topic_id = internal_topic_id(cluster_id, name)
    topic = Topic(TopicName(name), topic_id, PARTITIONS, internal_config(config), is_internal=True)
    topic.partitions = {
        index: InternalPartition(
            topic, index, EmptyLog(PartitionKey(topic_id, index)), clock, check_thread, appended
        )
        for index in range(PARTITIONS)
    }
    return topic


class InternalAdmission(Admission):
    """Refuses every batch and marker."""

    __slots__ = ()

    def append(self, *_: object, **__: object) -> Appended:
        raise self._refusal()

    def append_marker(self, marker: TransactionMarker) -> Append:
        raise self._refusal()

    def _refusal(self) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{self._topic.name} is an internal topic"
        )


class InternalPartition(Partition):
    """A partition to which no client writes."""

    __slots__ = ()

    admission_type = InternalAdmission


class EmptyLog(PartitionLog):
    """A log without records."""

    log_start_offset = 0
    high_watermark = 0
    end_offset = 0
    leader_epoch = 0
    size_bytes = 0

    def __init__(self, key: PartitionKey) -> None:
        self.key = key

    def __repr__(self) -> str:
        return f"<EmptyLog {self.key}>"

    def append(self, batches: Sequence[RecordBatch]) -> Append:
        return refused_append(StorageError("an internal topic takes no records"))

    def read_hot(self, offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
        return ReadResult([], 0, offset)

    async def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
    ) -> ReadResult:
        return ReadResult([], 0, offset)

    async def find_by_time(self, *_: object) -> None:
        return None

    async def find_max_timestamp(self, lower_bound: int, upper_bound: int) -> None:
        return None

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        return EpochEnd(0, 0) if leader_epoch == 0 else None

    def epoch_at(self, offset: int) -> int:
        return 0

    async def drop_before(self, offset: int) -> None:
        return None

    async def replay(self, from_offset: int) -> AsyncIterator[RecordBatch]:
        nothing: tuple[RecordBatch, ...] = ()
        for batch in nothing:
            yield batch

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        return None

    async def load_snapshot(self) -> Snapshot | None:
        return None

    def configure(self, settings: LogSettings) -> None:
        return None
