"""AlterShareGroupOffsets (API key 91)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class AlterShareGroupOffsetsRequestPartition(schema.Struct):
    """The new start offset of one partition."""

    partition_index: int = schema.int32()
    start_offset: int = schema.int64()


class AlterShareGroupOffsetsRequestTopic(schema.Struct):
    """The new start offsets of one topic."""

    topic_name: str = schema.string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = schema.array(
        AlterShareGroupOffsetsRequestPartition
    )


class AlterShareGroupOffsetsRequest(schema.Request, api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS):
    """Set the offsets from which an empty share group reads (KIP-932)."""

    group_id: str = schema.string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = schema.array(
        AlterShareGroupOffsetsRequestTopic
    )


class AlterShareGroupOffsetsResponsePartition(schema.Struct):
    """The result for one partition."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)


class AlterShareGroupOffsetsResponseTopic(schema.Struct):
    """The results for one topic's partitions."""

    topic_name: str = schema.string()
    topic_id: bytes = schema.uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = schema.array(
        AlterShareGroupOffsetsResponsePartition
    )


class AlterShareGroupOffsetsResponse(schema.Response, api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS):
    """The result for each partition."""

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = schema.array(
        AlterShareGroupOffsetsResponseTopic
    )
