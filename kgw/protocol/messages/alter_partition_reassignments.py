"""AlterPartitionReassignments (API key 45)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string


class ReassignablePartition(Struct):
    """Where one partition's replicas shall be."""

    partition_index: int = int32()
    replicas: list[int] | None = array("int32", nullable_since=0, default=None)
    """Null: stop what is going on."""


class ReassignableTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Request):
    """Move replicas to other brokers, or stop a move (KIP-455).

    Versions:
        1: may forbid another replication factor (KIP-860)
    """

    api_key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    valid_versions = (0, 1)
    flexible_since = 0

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """What became of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class ReassignableTopicResponse(Struct):
    """What became of one topic's partitions."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Response):
    """What became of each partition.

    Versions:
        1: repeats whether another replication factor is allowed (KIP-860)
    """

    api_key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    valid_versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
