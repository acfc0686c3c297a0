"""ListPartitionReassignments (API key 46)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class ListPartitionReassignmentsTopics(schema.Struct):
    """The requested partitions of one topic."""

    name: str = schema.string()
    partition_indexes: list[int] = schema.array("int32")


class ListPartitionReassignmentsRequest(
    schema.Request, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS
):
    """Ask which replicas are being moved (KIP-455)."""

    timeout_ms: int = schema.int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = schema.array(
        ListPartitionReassignmentsTopics, nullable_since=0, default=None
    )
    """Null: all."""


class OngoingPartitionReassignment(schema.Struct):
    """One partition's move."""

    partition_index: int = schema.int32()
    replicas: list[int] = schema.array("int32")
    adding_replicas: list[int] = schema.array("int32")
    removing_replicas: list[int] = schema.array("int32")


class OngoingTopicReassignment(schema.Struct):
    """The reassignments of one topic."""

    name: str = schema.string()
    partitions: list[OngoingPartitionReassignment] = schema.array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(
    schema.Response, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS
):
    """The current reassignments."""

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0)
    topics: list[OngoingTopicReassignment] = schema.array(OngoingTopicReassignment)
