"""ShareGroupHeartbeat (API key 76)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.consumer_group_heartbeat import Assignment


class ShareGroupHeartbeatRequest(schema.Request, api_key=ApiKey.SHARE_GROUP_HEARTBEAT):
    """Join, stay in or leave a share group (KIP-932).

    Versions:
        0: early access in Kafka 3.9, never stable
    """

    group_id: str = schema.string()
    member_id: str = schema.string()
    member_epoch: int = schema.int32()
    """0: join; -1: leave."""
    rack_id: str | None = schema.string(nullable_since=0, default=None)
    """Null when unchanged."""
    subscribed_topic_names: list[str] | None = schema.array(
        "string", nullable_since=0, default=None
    )
    """Null when unchanged."""


class ShareGroupHeartbeatResponse(schema.Response, api_key=ApiKey.SHARE_GROUP_HEARTBEAT):
    """The member's epoch and, when it has changed, its assignment.

    Versions:
        0: early access in Kafka 3.9, never stable
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
