"""DeleteShareGroupOffsets (API key 92)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DeleteShareGroupOffsetsRequestTopic(schema.Struct):
    """A topic to forget."""

    topic_name: str = schema.string()


class DeleteShareGroupOffsetsRequest(schema.Request, api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS):
    """Delete the offsets of an empty share group in topics (KIP-932)."""

    group_id: str = schema.string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = schema.array(
        DeleteShareGroupOffsetsRequestTopic
    )


class DeleteShareGroupOffsetsResponseTopic(schema.Struct):
    """A topic whose offsets were deleted, or the error if they were not."""

    topic_name: str = schema.string()
    topic_id: bytes = schema.uuid()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)


class DeleteShareGroupOffsetsResponse(schema.Response, api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS):
    """The result for each topic."""

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = schema.array(
        DeleteShareGroupOffsetsResponseTopic
    )
