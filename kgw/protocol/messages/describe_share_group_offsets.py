"""DescribeShareGroupOffsets (API key 90)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """The partitions asked about of one topic."""

    topic_name: str = string()
    partitions: list[int] = array("int32")


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """A group asked about."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable_since=0
    )
    """Null: all."""


class DescribeShareGroupOffsetsRequest(Request):
    """Ask where share groups begin to read (KIP-932).

    Versions:
        1: same layout; the answer tells the lag (KIP-1226)
    """

    api_key = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
    valid_versions = (0, 1)
    flexible_since = 0

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """Where the group begins in one partition."""

    partition_index: int = int32()
    start_offset: int = int64()
    """-1: not yet known."""
    leader_epoch: int = int32()
    lag: int = int64(since=1, default=-1, ignorable=True)
    """-1 when unknown."""
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """Where the group begins in one topic."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """Where one group begins."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic
    )
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


class DescribeShareGroupOffsetsResponse(Response):
    """Where they begin.

    Versions:
        1: lag (KIP-1226)
    """

    api_key = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
    valid_versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup
    )
