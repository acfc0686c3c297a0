"""CreatePartitions (API key 37)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class CreatePartitionsAssignment(schema.Struct):
    """The replicas of one new partition."""

    broker_ids: list[int] = schema.array("int32")


class CreatePartitionsTopic(schema.Struct):
    """A topic and its new number of partitions."""

    name: str = schema.string()
    count: int = schema.int32()
    """The new total, not the increase."""
    assignments: list[CreatePartitionsAssignment] | None = schema.array(
        CreatePartitionsAssignment, nullable_since=0
    )
    """One for each new partition; null: the broker chooses."""


class CreatePartitionsRequest(schema.Request, api_key=ApiKey.CREATE_PARTITIONS):
    """Give topics more partitions.

    Versions:
        1: same layout; the response is sent before throttling
        3: same layout; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
    """

    topics: list[CreatePartitionsTopic] = schema.array(CreatePartitionsTopic)
    timeout_ms: int = schema.int32()
    """How long to wait until the partitions are usable."""
    validate_only: bool = schema.boolean()
    """Check everything, create nothing."""


class CreatePartitionsTopicResult(schema.Struct):
    """A topic that has new partitions, or the error if it has not."""

    name: str = schema.string()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)


class CreatePartitionsResponse(schema.Response, api_key=ApiKey.CREATE_PARTITIONS):
    """The result for each topic.

    Versions:
        1: same layout; sent before throttling, not after
    """

    throttle_time_ms: int = schema.int32()
    results: list[CreatePartitionsTopicResult] = schema.array(
        CreatePartitionsTopicResult, may_be_encoded=True
    )
