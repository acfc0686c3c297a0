"""DescribeProducers (API key 61)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class TopicRequest(Struct):
    """The partitions asked about of one topic."""

    name: str = string()
    partition_indexes: list[int] = array("int32")


class DescribeProducersRequest(Request):
    """Ask which producers have written to partitions (KIP-664)."""

    api_key = ApiKey.DESCRIBE_PRODUCERS
    valid_versions = (0, 0)
    flexible_since = 0

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Struct):
    """A producer as the partition knows it."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    """-1: none."""
    last_timestamp: int = int64(default=-1)
    """In milliseconds; -1: none."""
    coordinator_epoch: int = int32()
    """Of the coordinator that wrote the last marker."""
    current_txn_start_offset: int = int64(default=-1)
    """-1: no transaction is open."""


class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    """The producers of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Response):
    """The producers that the partitions remember."""

    api_key = ApiKey.DESCRIBE_PRODUCERS
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
