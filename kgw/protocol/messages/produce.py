"""Produce (API key 0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uuid,
)

if TYPE_CHECKING:
    from kgw.protocol.primitives import RecordData


class PartitionProduceData(Struct):
    """What goes into one partition."""

    index: int = int32()
    records: RecordData | None = record_data(nullable_since=0)
    """From version 3 on exactly one batch; a message set before."""


class TopicProduceData(Struct):
    """What goes into the partitions of one topic."""

    name: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request):
    """Append record batches to partitions.

    Versions:
        1: same layout; the client reads a throttle time
        2: record format v1 may be sent
        3: transactional id, and record format v2 only (KIP-98)
        4: same layout; KAFKA_STORAGE_ERROR may come back
        7: zstd may be used (KIP-110)
        8: same layout; the answer explains refused records (KIP-467)
        10: same layout; the answer may name a new leader (KIP-951)
        11: same layout; TRANSACTION_ABORTABLE may come back (KIP-890)
        12: same layout; producing adds the partition to the transaction (KIP-890)
        13: topic ids take the place of names (KIP-516)
    """

    api_key = ApiKey.PRODUCE
    valid_versions = (0, 13)
    flexible_since = 9

    transactional_id: str | None = string(since=3, nullable_since=3, default=None)
    """Null unless the producer is transactional."""
    acks: int = int16()
    """0: no answer at all; 1: the leader has it; -1: all in-sync replicas have it."""
    timeout_ms: int = int32()
    """How long the broker may wait for the acknowledgements."""
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """Why one record of a batch was refused."""

    batch_index: int = int32()
    """Place of the record within its batch."""
    batch_index_error_message: str | None = string(nullable_since=8, default=None)


class LeaderIdAndEpoch(Struct):
    """Who leads the partition, as far as this broker knows."""

    leader_id: int = int32(default=-1)
    """-1 when unknown."""
    leader_epoch: int = int32(default=-1)
    """-1 when unknown."""


class PartitionProduceResponse(Struct):
    """What became of one partition's batch."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    """Offset of the first record; of the first copy when this one was a duplicate."""
    log_append_time_ms: int = int64(since=2, default=-1, ignorable=True)
    """-1 unless the topic stamps records with the broker's time."""
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, ignorable=True
    )
    """The records that made the broker refuse all of the batch."""
    error_message: str | None = string(since=8, nullable_since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=10, tag=0)
    """Set with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""


class TopicProduceResponse(Struct):
    """What became of one topic's partitions."""

    name: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(
        PartitionProduceResponse, may_be_encoded=True
    )


class NodeEndpoint(Struct):
    """Where a broker named as leader can be reached."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=10, default=None)


class ProduceResponse(Response):
    """Where the batches went, or why they did not.

    Versions:
        1: throttle time
        2: log append time
        5: log start offset, with which an idempotent client judges a lost producer id
        8: which records were refused, and why (KIP-467)
        10: the current leader, when this broker is not (KIP-951)
        13: topic ids take the place of names (KIP-516)
    """

    api_key = ApiKey.PRODUCE
    valid_versions = (0, 13)
    flexible_since = 9

    responses: list[TopicProduceResponse] = array(TopicProduceResponse, may_be_encoded=True)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)
