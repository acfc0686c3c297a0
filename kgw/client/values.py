"""Arguments and results of the client, independent of API versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kgw.security.sasl.scram import ScramMechanism
    from kgw.types import TopicId, TopicName

REQUEST_TIMEOUT_S: Final = 30.0
"""How long the client waits for a response."""
REQUEST_TIMEOUT_MS: Final = 25_000
"""The time limit that requests give to the server: shorter than the client's, so that
REQUEST_TIMED_OUT arrives in time."""
DELETION_TIMEOUT_MS: Final = 10_000
"""The server's time limit for deleting a topic, which deletes one row; files are deleted later."""

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""Special timestamps of ListOffsets."""


class AdvertisedBroker(NamedTuple):
    """A node at its advertised address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionDescription(NamedTuple):
    """One partition in a Metadata response. `leader_id` is -1 if there is no leader."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


class TopicDescription(NamedTuple):
    """One topic in a Metadata response, with its partitions in order."""

    name: TopicName
    topic_id: TopicId
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ClusterDescription(NamedTuple):
    """The cluster to which the client is connected."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[AdvertisedBroker, ...]


class ApiSupport(NamedTuple):
    """One API: both sides' versions, and the version in use or None."""

    api_key: int
    name: str
    server_min: int
    server_max: int
    client_min: int | None
    client_max: int | None
    spoken: int | None


class Produced(NamedTuple):
    """The offset and append time of a stored batch. Both are -1 for acks=0."""

    base_offset: int
    log_append_time_ms: int


class FetchedPartition(NamedTuple):
    """Stored batches of one partition as bytes; the last batch may be incomplete."""

    partition: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    error_code: int = 0
    """OFFSET_OUT_OF_RANGE or CORRUPT_MESSAGE, if the caller asked to get errors in the result."""
    last_stable_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    """With `read_committed`, the aborted transactions that overlap the records: producer id and
    first offset."""


class EpochRange(NamedTuple):
    """A leader epoch and its end offset, which is the end of the log for the current epoch."""

    leader_epoch: int
    end_offset: int


class PartitionRange(NamedTuple):
    """The offsets of a partition, from the log start offset to the end.

    `epochs` has the newest leader epochs, the current one first. `offset_count` is the largest
    possible number of records: it includes offsets without records, which compaction or an unclean
    stop left. Both times are NO_TIMESTAMP_MS if no record has a time.
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
    """One setting in a DescribeConfigs response."""

    name: str
    value: str | None
    source: str
    read_only: bool


class ScramUserCredential(NamedTuple):
    """A user's credential for a mechanism, as a server describes it: without a secret."""

    user: str
    mechanism: ScramMechanism | None
    """None for a mechanism that this client does not know."""
    iterations: int

    @property
    def mechanism_name(self) -> str | None:
        """The name of the mechanism."""
        return None if self.mechanism is None else self.mechanism.sasl_name


class ScramUpsertion(NamedTuple):
    """A credential to set. The password itself is never sent."""

    user: str
    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        """Hide the salted password: whoever has it can log in."""
        return f"ScramUpsertion({self.user!r}, {self.mechanism.sasl_name})"
