"""ConsumerGroupHeartbeat (API key 68)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class TopicPartitions(schema.Struct):
    """Partitions of one topic."""

    topic_id: bytes = schema.uuid()
    partitions: list[int] = schema.array("int32")


class ConsumerGroupHeartbeatRequest(schema.Request, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT):
    """Join, stay in or leave a group of the consumer protocol (KIP-848).

    A nullable field may be null if its value has not changed since the last heartbeat.

    Versions:
        1: subscription by a regular expression; the member chooses its id (KIP-1082)
    """

    group_id: str = schema.string()
    member_id: str = schema.string()
    member_epoch: int = schema.int32()
    """0: join; -1: leave; -2: a static member leaves for a while."""
    instance_id: str | None = schema.string(nullable_since=0, default=None)
    """Null unless the member is static, or unchanged."""
    rack_id: str | None = schema.string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = schema.int32(default=-1)
    """-1 when unchanged."""
    subscribed_topic_names: list[str] | None = schema.array(
        "string", nullable_since=0, default=None
    )
    subscribed_topic_regex: str | None = schema.string(since=1, nullable_since=1, default=None)
    """In RE2/J's syntax."""
    server_assignor: str | None = schema.string(nullable_since=0, default=None)
    """Null: the broker chooses."""
    topic_partitions: list[TopicPartitions] | None = schema.array(
        TopicPartitions, nullable_since=0, default=None
    )
    """The partitions that the member owns now; null when unchanged."""


class Assignment(schema.Struct):
    """The partitions that the member may own, or that a member of a share group reads."""

    topic_partitions: list[TopicPartitions] = schema.array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(schema.Response, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT):
    """The member's epoch and, when it has changed, its assignment.

    Versions:
        1: same layout; INVALID_REGULAR_EXPRESSION may be returned
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    member_id: str | None = schema.string(nullable_since=0, default=None)
    """Null unless the broker has chosen it."""
    member_epoch: int = schema.int32()
    heartbeat_interval_ms: int = schema.int32()
    assignment: Assignment | None = schema.struct(Assignment, nullable_since=0, default=None)
    """Null when unchanged."""
