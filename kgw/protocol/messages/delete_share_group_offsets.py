"""DeleteShareGroupOffsets (API key 92)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    """A topic to forget."""

    topic_name: str = string()


class DeleteShareGroupOffsetsRequest(Request):
    """Forget where an empty share group was in topics (KIP-932)."""

    api_key = ApiKey.DELETE_SHARE_GROUP_OFFSETS
    valid_versions = (0, 0)
    flexible_since = 0

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponseTopic(Struct):
    """A forgotten topic, or why it was not."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


class DeleteShareGroupOffsetsResponse(Response):
    """What became of each topic."""

    api_key = ApiKey.DELETE_SHARE_GROUP_OFFSETS
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )
