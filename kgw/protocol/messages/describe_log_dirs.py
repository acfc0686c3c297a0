"""DescribeLogDirs (API key 35)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DescribableLogDirTopic(schema.Struct):
    """The requested partitions of one topic."""

    topic: str = schema.string()
    partitions: list[int] = schema.array("int32")


class DescribeLogDirsRequest(schema.Request, api_key=ApiKey.DESCRIBE_LOG_DIRS):
    """Ask for the broker's log directories and the replicas in them (KIP-113).

    Versions:
        1: same layout; the response is sent before throttling
    """

    topics: list[DescribableLogDirTopic] | None = schema.array(
        DescribableLogDirTopic, nullable_since=0
    )
    """Null: all."""


class DescribeLogDirsPartition(schema.Struct):
    """A replica in this directory."""

    partition_index: int = schema.int32()
    partition_size: int = schema.int64()
    """In bytes."""
    offset_lag: int = schema.int64()
    """The number of offsets by which the log is behind the high watermark.

    For a future replica, by which it is behind the log of the current one.
    """
    is_future_key: bool = schema.boolean()
    """Whether this is a copy that will replace the replica in another directory."""


class DescribeLogDirsTopic(schema.Struct):
    """One topic's replicas in this directory."""

    name: str = schema.string()
    partitions: list[DescribeLogDirsPartition] = schema.array(
        DescribeLogDirsPartition, may_be_encoded=True
    )


class DescribeLogDirsResult(schema.Struct):
    """A directory, or the error if it cannot be described."""

    error_code: int = schema.int16()
    log_dir: str = schema.string()
    topics: list[DescribeLogDirsTopic] = schema.array(DescribeLogDirsTopic, may_be_encoded=True)
    total_bytes: int = schema.int64(since=4, default=-1, ignorable=True)
    """-1 when unknown."""
    usable_bytes: int = schema.int64(since=4, default=-1, ignorable=True)
    """-1 when unknown."""
    is_cordoned: bool = schema.boolean(since=5, ignorable=True)
    """Whether no new partitions are created in this directory."""


class DescribeLogDirsResponse(schema.Response, api_key=ApiKey.DESCRIBE_LOG_DIRS):
    """The directories and their partitions.

    Versions:
        1: same layout; sent before throttling, not after
        3: an error for the whole response (KIP-784)
        4: size of the volume (KIP-827)
        5: whether new partitions are kept out (KIP-1066)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = schema.array(DescribeLogDirsResult, may_be_encoded=True)
