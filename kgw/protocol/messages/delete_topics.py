"""DeleteTopics (API key 20)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    """A topic to delete, by name or by id."""

    name: str | None = string(nullable_since=6, default=None)
    """Null when the id is given."""
    topic_id: bytes = uuid()


class DeleteTopicsRequest(Request):
    """Delete topics.

    Versions:
        1: same layout; the client reads a throttle time
        3: same layout; TOPIC_DELETION_DISABLED may come back
        5: same layout; errors come with a message (KIP-599)
        6: topics by name or by id (KIP-516)
    """

    api_key = ApiKey.DELETE_TOPICS
    valid_versions = (0, 6)
    flexible_since = 4

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array("string", until=5, ignorable=True)
    timeout_ms: int = int32()
    """How long to wait until the topics are gone."""


class DeletableTopicResult(Struct):
    """A deleted topic, or why it was not."""

    name: str | None = string(nullable_since=6)
    """Null when an unknown id was asked for."""
    topic_id: bytes = uuid(since=6, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)


class DeleteTopicsResponse(Response):
    """What became of each topic.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        5: a message beside each error (KIP-599)
        6: topic id; the name may be null (KIP-516)
    """

    api_key = ApiKey.DELETE_TOPICS
    valid_versions = (0, 6)
    flexible_since = 4

    throttle_time_ms: int = int32(since=1, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
