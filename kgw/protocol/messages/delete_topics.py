"""DeleteTopics (API key 20)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DeleteTopicState(schema.Struct):
    """A topic to delete, by name or by id."""

    name: str | None = schema.string(nullable_since=6, default=None)
    """Null when the id is given."""
    topic_id: bytes = schema.uuid()


class DeleteTopicsRequest(schema.Request, api_key=ApiKey.DELETE_TOPICS):
    """Delete topics.

    Versions:
        1: same layout; the client reads a throttle time
        3: same layout; TOPIC_DELETION_DISABLED may be returned
        5: same layout; errors have a message (KIP-599)
        6: topics by name or by id (KIP-516)
    """

    topics: list[DeleteTopicState] = schema.array(DeleteTopicState, since=6)
    topic_names: list[str] = schema.array("string", until=5, ignorable=True)
    timeout_ms: int = schema.int32()
    """How long to wait until the topics are gone."""


class DeletableTopicResult(schema.Struct):
    """A deleted topic, or the error if it was not deleted."""

    name: str | None = schema.string(nullable_since=6)
    """Null when an unknown id was requested."""
    topic_id: bytes = schema.uuid(since=6, ignorable=True)
    error_code: int = schema.int16()
    error_message: str | None = schema.string(
        since=5, nullable_since=5, default=None, ignorable=True
    )


class DeleteTopicsResponse(schema.Response, api_key=ApiKey.DELETE_TOPICS):
    """The result for each topic.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        5: a message with each error (KIP-599)
        6: topic id; the name may be null (KIP-516)
    """

    throttle_time_ms: int = schema.int32(since=1, ignorable=True)
    responses: list[DeletableTopicResult] = schema.array(DeletableTopicResult, may_be_encoded=True)
