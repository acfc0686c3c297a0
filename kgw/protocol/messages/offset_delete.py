"""OffsetDelete (API key 47)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, string


class OffsetDeleteRequestPartition(Struct):
    """A partition whose offset to delete."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Request):
    """Delete committed offsets of a group (KIP-496)."""

    api_key = ApiKey.OFFSET_DELETE
    valid_versions = (0, 0)
    flexible_since = None

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """What became of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    """What became of one topic's partitions."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Response):
    """What became of each partition's offset."""

    api_key = ApiKey.OFFSET_DELETE
    valid_versions = (0, 0)
    flexible_since = None

    error_code: int = int16()
    """Of the group; GROUP_SUBSCRIBED_TO_TOPIC is with the partitions."""
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
