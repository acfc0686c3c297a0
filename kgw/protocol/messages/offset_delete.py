"""OffsetDelete (API key 47)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class OffsetDeleteRequestPartition(schema.Struct):
    """A partition whose committed offset has to be deleted."""

    partition_index: int = schema.int32()


class OffsetDeleteRequestTopic(schema.Struct):
    """The partitions of one topic."""

    name: str = schema.string()
    partitions: list[OffsetDeleteRequestPartition] = schema.array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(schema.Request, api_key=ApiKey.OFFSET_DELETE):
    """Delete committed offsets of a group (KIP-496)."""

    group_id: str = schema.string()
    topics: list[OffsetDeleteRequestTopic] = schema.array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(schema.Struct):
    """The result for one partition."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()


class OffsetDeleteResponseTopic(schema.Struct):
    """The results for one topic's partitions."""

    name: str = schema.string()
    partitions: list[OffsetDeleteResponsePartition] = schema.array(
        OffsetDeleteResponsePartition, may_be_encoded=True
    )


class OffsetDeleteResponse(schema.Response, api_key=ApiKey.OFFSET_DELETE):
    """The result for each partition's offset."""

    error_code: int = schema.int16()
    """The error of the group; GROUP_SUBSCRIBED_TO_TOPIC is in the partitions."""
    throttle_time_ms: int = schema.int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = schema.array(
        OffsetDeleteResponseTopic, may_be_encoded=True
    )
