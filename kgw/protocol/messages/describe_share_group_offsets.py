"""DescribeShareGroupOffsets (API key 90)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DescribeShareGroupOffsetsRequestTopic(schema.Struct):
    """The requested partitions of one topic."""

    topic_name: str = schema.string()
    partitions: list[int] = schema.array("int32")


class DescribeShareGroupOffsetsRequestGroup(schema.Struct):
    """A requested group."""

    group_id: str = schema.string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = schema.array(
        DescribeShareGroupOffsetsRequestTopic, nullable_since=0
    )
    """Null: all."""


class DescribeShareGroupOffsetsRequest(schema.Request, api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS):
    """Ask for the start offsets of share groups (KIP-932).

    Versions:
        1: same layout; the response has the lag (KIP-1226)
    """

    groups: list[DescribeShareGroupOffsetsRequestGroup] = schema.array(
        DescribeShareGroupOffsetsRequestGroup
    )


class DescribeShareGroupOffsetsResponsePartition(schema.Struct):
    """The start offset of the group in one partition."""

    partition_index: int = schema.int32()
    start_offset: int = schema.int64()
    """-1: not yet known."""
    leader_epoch: int = schema.int32()
    lag: int = schema.int64(since=1, default=-1, ignorable=True)
    """-1 when unknown."""
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)


class DescribeShareGroupOffsetsResponseTopic(schema.Struct):
    """The start offsets of the group in one topic."""

    topic_name: str = schema.string()
    topic_id: bytes = schema.uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = schema.array(
        DescribeShareGroupOffsetsResponsePartition
    )


class DescribeShareGroupOffsetsResponseGroup(schema.Struct):
    """The start offsets of one group."""

    group_id: str = schema.string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = schema.array(
        DescribeShareGroupOffsetsResponseTopic
    )
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)


class DescribeShareGroupOffsetsResponse(
    schema.Response, api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
):
    """The start offsets of the groups.

    Versions:
        1: lag (KIP-1226)
    """

    throttle_time_ms: int = schema.int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = schema.array(
        DescribeShareGroupOffsetsResponseGroup
    )
