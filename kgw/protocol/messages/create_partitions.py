"""CreatePartitions (API key 37)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string


class CreatePartitionsAssignment(Struct):
    """Where one new partition's replicas shall be."""

    broker_ids: list[int] = array("int32")


class CreatePartitionsTopic(Struct):
    """A topic and how many partitions it shall have."""

    name: str = string()
    count: int = int32()
    """The new total, not the increase."""
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable_since=0
    )
    """One for each new partition; null: the broker chooses."""


class CreatePartitionsRequest(Request):
    """Give topics more partitions.

    Versions:
        1: same layout; the answer is sent before throttling
        3: same layout; THROTTLING_QUOTA_EXCEEDED may come back (KIP-599)
    """

    api_key = ApiKey.CREATE_PARTITIONS
    valid_versions = (0, 3)
    flexible_since = 2

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    """How long to wait until the partitions are usable."""
    validate_only: bool = boolean()
    """Check everything, create nothing."""


class CreatePartitionsTopicResult(Struct):
    """A grown topic, or why it is not."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


class CreatePartitionsResponse(Response):
    """What became of each topic.

    Versions:
        1: same layout; sent before throttling, not after
    """

    api_key = ApiKey.CREATE_PARTITIONS
    valid_versions = (0, 3)
    flexible_since = 2

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
