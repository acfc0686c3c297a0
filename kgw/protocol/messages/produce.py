"""Produce (API key 0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kgw.protocol.primitives import RecordData


class PartitionProduceData(schema.Struct):
    """The records for one partition."""

    index: int = schema.int32()
    records: RecordData | None = schema.record_data(nullable_since=0)
    """From version 3 on exactly one batch; a message set before."""


class TopicProduceData(schema.Struct):
    """The records for the partitions of one topic."""

    name: str = schema.string(until=12, ignorable=True)
    topic_id: bytes = schema.uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = schema.array(PartitionProduceData)


class ProduceRequest(schema.Request, api_key=ApiKey.PRODUCE):
    """Append record batches to partitions.

    Versions:
        1: same layout; the client reads a throttle time
        2: record format v1 may be sent
        3: transactional id, and record format v2 only (KIP-98)
        4: same layout; KAFKA_STORAGE_ERROR may be returned
        7: zstd may be used (KIP-110)
        8: same layout; the response explains refused records (KIP-467)
        10: same layout; the response may name a new leader (KIP-951)
        11: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
        12: same layout; producing adds the partition to the transaction (KIP-890)
        13: topic ids replace names (KIP-516)
    """

    transactional_id: str | None = schema.string(since=3, nullable_since=3, default=None)
    """Null unless the producer is transactional."""
    acks: int = schema.int16()
    """0: no response at all; 1: the leader has the records; -1: all in-sync replicas have them."""
    timeout_ms: int = schema.int32()
    """How long the broker may wait for the acknowledgements."""
    topic_data: list[TopicProduceData] = schema.array(TopicProduceData)


class BatchIndexAndErrorMessage(schema.Struct):
    """The reason why one record of a batch was refused."""

    batch_index: int = schema.int32()
    """The index of the record in its batch."""
    batch_index_error_message: str | None = schema.string(nullable_since=8, default=None)


class LeaderIdAndEpoch(schema.Struct):
    """The leader of the partition, as far as this broker knows."""

    leader_id: int = schema.int32(default=-1)
    """-1 when unknown."""
    leader_epoch: int = schema.int32(default=-1)
    """-1 when unknown."""


class PartitionProduceResponse(schema.Struct):
    """The result for one partition's batch."""

    index: int = schema.int32()
    error_code: int = schema.int16()
    base_offset: int = schema.int64()
    """The offset of the first record. For a duplicate batch, that of the batch stored before."""
    log_append_time_ms: int = schema.int64(since=2, default=-1, ignorable=True)
    """-1 unless the topic stamps records with the broker's time."""
    log_start_offset: int = schema.int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = schema.array(
        BatchIndexAndErrorMessage, since=8, ignorable=True
    )
    """The records because of which the whole batch was refused."""
    error_message: str | None = schema.string(
        since=8, nullable_since=8, default=None, ignorable=True
    )
    current_leader: LeaderIdAndEpoch = schema.struct(LeaderIdAndEpoch, since=10, tag=0)
    """Set with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""


class TopicProduceResponse(schema.Struct):
    """The results for one topic's partitions."""

    name: str = schema.string(until=12, ignorable=True)
    topic_id: bytes = schema.uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = schema.array(
        PartitionProduceResponse, may_be_encoded=True
    )


class NodeEndpoint(schema.Struct):
    """The address of a broker that this response names as a leader."""

    node_id: int = schema.int32()
    host: str = schema.string()
    port: int = schema.int32()
    rack: str | None = schema.string(nullable_since=10, default=None)


class ProduceResponse(schema.Response, api_key=ApiKey.PRODUCE):
    """The offsets of the stored batches, or the errors.

    Versions:
        1: throttle time
        2: log append time
        5: log start offset, by which a client sees whether retention has removed its producer id
        8: the refused records, and the reasons (KIP-467)
        10: the current leader, if it is another broker (KIP-951)
        13: topic ids replace names (KIP-516)
    """

    responses: list[TopicProduceResponse] = schema.array(TopicProduceResponse, may_be_encoded=True)
    throttle_time_ms: int = schema.int32(since=1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = schema.array(NodeEndpoint, since=10, tag=0)
