"""DescribeLogDirs (API key 35)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)


class DescribableLogDirTopic(Struct):
    """The partitions asked about of one topic."""

    topic: str = string()
    partitions: list[int] = array("int32")


class DescribeLogDirsRequest(Request):
    """Ask for the broker's directories and what lies in them (KIP-113).

    Versions:
        1: same layout; the answer is sent before throttling
    """

    api_key = ApiKey.DESCRIBE_LOG_DIRS
    valid_versions = (0, 5)
    flexible_since = 2

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable_since=0)
    """Null: all."""


class DescribeLogDirsPartition(Struct):
    """A replica in this directory."""

    partition_index: int = int32()
    partition_size: int = int64()
    """In bytes."""
    offset_lag: int = int64()
    """How far a future replica, or the log behind the high watermark, has to go."""
    is_future_key: bool = boolean()
    """A copy that will take the place of the replica in another directory."""


class DescribeLogDirsTopic(Struct):
    """One topic's replicas in this directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """A directory, or why it cannot be described."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1, ignorable=True)
    """-1 when unknown."""
    usable_bytes: int = int64(since=4, default=-1, ignorable=True)
    """-1 when unknown."""
    is_cordoned: bool = boolean(since=5, ignorable=True)
    """No new partitions are put here."""


class DescribeLogDirsResponse(Response):
    """The directories and their partitions.

    Versions:
        1: same layout; sent before throttling, not after
        3: an error for the whole answer (KIP-784)
        4: size of the volume (KIP-827)
        5: whether new partitions are kept out (KIP-1066)
    """

    api_key = ApiKey.DESCRIBE_LOG_DIRS
    valid_versions = (0, 5)
    flexible_since = 2

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
