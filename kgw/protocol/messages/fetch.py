"""Fetch (API key 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kgw.protocol.primitives import RecordData


class ReplicaState(schema.Struct):
    """The replica that sends the request; a consumer leaves the defaults."""

    replica_id: int = schema.int32(default=-1)
    replica_epoch: int = schema.int64(default=-1)


class FetchPartition(schema.Struct):
    """The offset from which to read one partition, and the most bytes to return."""

    partition: int = schema.int32()
    current_leader_epoch: int = schema.int32(since=9, default=-1, ignorable=True)
    """The epoch that the client knows; -1 skips the check."""
    fetch_offset: int = schema.int64()
    last_fetched_epoch: int = schema.int32(since=12, default=-1)
    """Epoch of the record before `fetch_offset`; -1 skips the check."""
    log_start_offset: int = schema.int64(since=5, default=-1, ignorable=True)
    """The log start offset of a follower; -1 from a consumer."""
    partition_max_bytes: int = schema.int32()
    replica_directory_id: bytes = schema.uuid(since=17, tag=0, ignorable=True)
    """The directory id of a KRaft voter."""
    high_watermark: int = schema.int64(
        since=18, tag=1, default=0x7FFF_FFFF_FFFF_FFFF, ignorable=True
    )
    """The high watermark that a KRaft replica knows; the default means that it is unknown."""


class FetchTopic(schema.Struct):
    """The partitions to read of one topic."""

    topic: str = schema.string(until=12, ignorable=True)
    topic_id: bytes = schema.uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = schema.array(FetchPartition)


class ForgottenTopic(schema.Struct):
    """Partitions that leave the session."""

    topic: str = schema.string(until=12, ignorable=True)
    topic_id: bytes = schema.uuid(since=13, ignorable=True)
    partitions: list[int] = schema.array("int32")


class FetchRequest(schema.Request, api_key=ApiKey.FETCH):
    """Read record batches from partitions, and wait until there are enough.

    Versions:
        1: same layout; the client reads a throttle time
        2: record format v1 may be returned
        3: a limit for the whole response; the order of partitions counts
        4: isolation level, and record format v2 (KIP-98)
        5: log start offset of followers (KIP-107)
        6: same layout; KAFKA_STORAGE_ERROR may be returned
        7: incremental sessions (KIP-227)
        9: leader epoch, for fencing (KIP-320)
        10: zstd may be returned (KIP-110)
        11: rack, for reading from a near follower (KIP-392)
        12: epoch of the last record fetched, to find where logs diverge (KIP-595)
        13: topic ids replace names (KIP-516)
        14: same layout; OFFSET_MOVED_TO_TIERED_STORAGE may be returned (KIP-405)
        15: replica id and epoch move into a tagged field (KIP-903)
        16: same layout; the response may name a new leader (KIP-951)
        17: directory of a KRaft replica (KIP-853)
        18: high watermark of a KRaft replica (KIP-1166)
    """

    cluster_id: str | None = schema.string(
        since=12, nullable_since=12, tag=0, default=None, ignorable=True
    )
    """Only KRaft replicas check it."""
    replica_id: int = schema.int32(until=14, default=-1)
    """-1 for a consumer; anything else claims to be a follower."""
    replica_state: ReplicaState = schema.struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = schema.int32()
    """How long the broker may wait for `min_bytes`."""
    min_bytes: int = schema.int32()
    max_bytes: int = schema.int32(since=3, default=0x7FFF_FFFF, ignorable=True)
    """The limit of the whole response; the first batch is returned even if larger."""
    isolation_level: int = schema.int8(since=4, ignorable=True)
    """0: everything below the high watermark; 1: no records of open or aborted transactions."""
    session_id: int = schema.int32(since=7, ignorable=True)
    """0 without a session."""
    session_epoch: int = schema.int32(since=7, default=-1, ignorable=True)
    """-1: one full request without a session; 0: make a session; above: go on with it."""
    topics: list[FetchTopic] = schema.array(FetchTopic)
    """In a session, only partitions that were added or changed since the last request."""
    forgotten_topics_data: list[ForgottenTopic] = schema.array(ForgottenTopic, since=7)
    rack_id: str = schema.string(since=11, ignorable=True)
    """The consumer's rack; empty if it has none."""


class EpochEndOffset(schema.Struct):
    """The last epoch that both logs have in common, and its end offset."""

    epoch: int = schema.int32(default=-1)
    end_offset: int = schema.int64(default=-1)


class LeaderIdAndEpoch(schema.Struct):
    """The leader of the partition, as far as this broker knows."""

    leader_id: int = schema.int32(default=-1)
    leader_epoch: int = schema.int32(default=-1)


class SnapshotId(schema.Struct):
    """The KRaft snapshot that a replica has to fetch instead."""

    end_offset: int = schema.int64(default=-1)
    epoch: int = schema.int32(default=-1)


class AbortedTransaction(schema.Struct):
    """A transaction whose records a read-committed consumer must skip."""

    producer_id: int = schema.int64()
    first_offset: int = schema.int64()
    """The offset of the first record of the transaction."""


class PartitionData(schema.Struct):
    """The records of one partition, or the error."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()
    high_watermark: int = schema.int64()
    last_stable_offset: int = schema.int64(since=4, default=-1, ignorable=True)
    """Records from this offset on may belong to open transactions; -1 when unknown."""
    log_start_offset: int = schema.int64(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = schema.struct(EpochEndOffset, since=12, tag=0)
    """Set when `last_fetched_epoch` differs from the epoch in this log."""
    current_leader: LeaderIdAndEpoch = schema.struct(LeaderIdAndEpoch, since=12, tag=1)
    """Set when this broker does not lead the partition."""
    snapshot_id: SnapshotId = schema.struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = schema.array(
        AbortedTransaction, since=4, nullable_since=4, ignorable=True
    )
    """Null for a read-uncommitted request."""
    preferred_read_replica: int = schema.int32(since=11, default=-1)
    """The replica to read from instead; -1: this one."""
    records: RecordData | None = schema.record_data(nullable_since=0)
    """Whole batches; the first may begin before the fetch offset, the last may be cut."""


class FetchableTopicResponse(schema.Struct):
    """The records of one topic."""

    topic: str = schema.string(until=12, ignorable=True)
    topic_id: bytes = schema.uuid(since=13, ignorable=True)
    partitions: list[PartitionData] = schema.array(PartitionData, may_be_encoded=True)


class NodeEndpoint(schema.Struct):
    """The address of a broker that this response names as a leader."""

    node_id: int = schema.int32()
    host: str = schema.string()
    port: int = schema.int32()
    rack: str | None = schema.string(nullable_since=16, default=None)


class FetchResponse(schema.Response, api_key=ApiKey.FETCH):
    """Record batches as they are stored, partition by partition.

    Versions:
        1: throttle time
        4: last stable offset and aborted transactions (KIP-98)
        5: log start offset (KIP-107)
        6: same layout; KAFKA_STORAGE_ERROR may be returned
        7: incremental sessions (KIP-227)
        8: same layout; sent before throttling, not after
        10: zstd may be returned (KIP-110)
        11: the replica to read from (KIP-392)
        12: diverging epoch, current leader and snapshot, all tagged (KIP-595)
        13: topic ids replace names (KIP-516)
        14: same layout; OFFSET_MOVED_TO_TIERED_STORAGE may be returned (KIP-405)
        16: the addresses of the leaders in the response (KIP-951)
    """

    throttle_time_ms: int = schema.int32(since=1, ignorable=True)
    error_code: int = schema.int16(since=7, ignorable=True)
    """The error of the session; the errors of partitions are in the partitions."""
    session_id: int = schema.int32(since=7)
    """0 if the broker keeps no session."""
    responses: list[FetchableTopicResponse] = schema.array(
        FetchableTopicResponse, may_be_encoded=True
    )
    node_endpoints: list[NodeEndpoint] = schema.array(NodeEndpoint, since=16, tag=0)
