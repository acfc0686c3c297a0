"""AlterPartitionReassignments (API key 45)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class ReassignablePartition(schema.Struct):
    """The new replicas of one partition."""

    partition_index: int = schema.int32()
    replicas: list[int] | None = schema.array("int32", nullable_since=0, default=None)
    """The ids of brokers. Null: cancel the current reassignment."""


class ReassignableTopic(schema.Struct):
    """The partitions of one topic."""

    name: str = schema.string()
    partitions: list[ReassignablePartition] = schema.array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(
    schema.Request, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS
):
    """Move replicas to other brokers, or stop a move (KIP-455).

    Versions:
        1: may forbid another replication factor (KIP-860)
    """

    timeout_ms: int = schema.int32(default=60000)
    allow_replication_factor_change: bool = schema.boolean(since=1, default=True)
    topics: list[ReassignableTopic] = schema.array(ReassignableTopic)


class ReassignablePartitionResponse(schema.Struct):
    """The result for one partition."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)


class ReassignableTopicResponse(schema.Struct):
    """The results for one topic's partitions."""

    name: str = schema.string()
    partitions: list[ReassignablePartitionResponse] = schema.array(
        ReassignablePartitionResponse, may_be_encoded=True
    )


class AlterPartitionReassignmentsResponse(
    schema.Response, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS
):
    """The result for each partition.

    Versions:
        1: repeats whether another replication factor is allowed (KIP-860)
    """

    throttle_time_ms: int = schema.int32()
    allow_replication_factor_change: bool = schema.boolean(since=1, default=True, ignorable=True)
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    responses: list[ReassignableTopicResponse] = schema.array(
        ReassignableTopicResponse, may_be_encoded=True
    )
