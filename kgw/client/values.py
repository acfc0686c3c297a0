"""What the client is asked for and returns: small values, whatever versions were spoken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kgw.types import TopicId, TopicName

REQUEST_TIMEOUT_S: Final = 30.0
"""How long the client waits for an answer."""
REQUEST_TIMEOUT_MS: Final = 25_000
"""How long the server may take: less, so that its REQUEST_TIMED_OUT arrives before that."""
DELETION_TIMEOUT_MS: Final = 10_000
"""How long the server may take to delete a topic: one row, and the files in the background."""

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""Special timestamps of ListOffsets."""


class Broker(NamedTuple):
    """A node as the server advertises it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionDescription(NamedTuple):
    """One partition as Metadata tells it. `leader_id` is -1 when there is none."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


class TopicDescription(NamedTuple):
    """One topic as Metadata tells it, partitions in order."""

    name: TopicName
    topic_id: TopicId
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ClusterDescription(NamedTuple):
    """Whom one is connected to."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]


class ApiSupport(NamedTuple):
    """One API: the versions on both sides, and the one that will be spoken (None: none)."""

    api_key: int
    name: str
    server_min: int
    server_max: int
    client_min: int | None
    client_max: int | None
    spoken: int | None


class Produced(NamedTuple):
    """Where a batch was stored. Both are -1 for acks=0."""

    base_offset: int
    log_append_time_ms: int


class FetchedPartition(NamedTuple):
    """Stored batches of one partition, opaque; the last one may be cut short."""

    partition: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    error_code: int = 0
    """OFFSET_OUT_OF_RANGE or CORRUPT_MESSAGE, where the caller wants to be told so."""
    last_stable_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    """Transactions that were aborted and overlap the records, where committed ones are asked for:
    producer id and first offset."""


class EpochRange(NamedTuple):
    """A leader epoch, and the offset at which it ended: where the log ends for the current one."""

    leader_epoch: int
    end_offset: int


class PartitionRange(NamedTuple):
    """What a partition holds, from its first offset to its end.

    `epochs` are the newest leader epochs, the current one first. Offsets that compaction or an
    unclean stop left empty count as well: `offset_count` is the most records there can be. Both
    times are NO_TIMESTAMP_MS where no record has one.
    """

    partition: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    end_offset: int
    first_timestamp_ms: int
    greatest_timestamp_ms: int
    epochs: tuple[EpochRange, ...]

    @property
    def offset_count(self) -> int:
        return self.high_watermark - self.log_start_offset


class TopicSettingValue(NamedTuple):
    """One row of DescribeConfigs."""

    name: str
    value: str | None
    source: str
    read_only: bool
