"""DescribeProducers (API key 61)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class TopicRequest(schema.Struct):
    """The requested partitions of one topic."""

    name: str = schema.string()
    partition_indexes: list[int] = schema.array("int32")


class DescribeProducersRequest(schema.Request, api_key=ApiKey.DESCRIBE_PRODUCERS):
    """Ask which producers have written to partitions (KIP-664)."""

    topics: list[TopicRequest] = schema.array(TopicRequest)


class ProducerState(schema.Struct):
    """A producer as the partition knows it."""

    producer_id: int = schema.int64()
    producer_epoch: int = schema.int32()
    last_sequence: int = schema.int32(default=-1)
    """-1: none."""
    last_timestamp: int = schema.int64(default=-1)
    """In milliseconds; -1: none."""
    coordinator_epoch: int = schema.int32()
    """The epoch of the coordinator that wrote the last marker."""
    current_txn_start_offset: int = schema.int64(default=-1)
    """-1: no transaction is open."""


class PartitionResponse(schema.Struct):
    """The producers of one partition."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    active_producers: list[ProducerState] = schema.array(ProducerState, may_be_encoded=True)


class TopicResponse(schema.Struct):
    """The producers of one topic."""

    name: str = schema.string()
    partitions: list[PartitionResponse] = schema.array(PartitionResponse, may_be_encoded=True)


class DescribeProducersResponse(schema.Response, api_key=ApiKey.DESCRIBE_PRODUCERS):
    """The producers that the partitions remember."""

    throttle_time_ms: int = schema.int32()
    topics: list[TopicResponse] = schema.array(TopicResponse, may_be_encoded=True)
