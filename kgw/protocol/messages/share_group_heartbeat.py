"""ShareGroupHeartbeat (API key 76)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, string, struct, uuid


class ShareGroupHeartbeatRequest(Request):
    """Join, stay in or leave a share group (KIP-932).

    Versions:
        0: early access in Kafka 3.9, never stable
    """

    api_key = ApiKey.SHARE_GROUP_HEARTBEAT
    valid_versions = (0, 1)
    flexible_since = 0

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    """0: join; -1: leave."""
    rack_id: str | None = string(nullable_since=0, default=None)
    """Null when unchanged."""
    subscribed_topic_names: list[str] | None = array("string", nullable_since=0, default=None)
    """Null when unchanged."""


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    """The partitions to fetch from."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Response):
    """The member's epoch and, when it has changed, its assignment.

    Versions:
        0: early access in Kafka 3.9, never stable
    """

    api_key = ApiKey.SHARE_GROUP_HEARTBEAT
    valid_versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0, default=None)
    """Null unless the broker has chosen it."""
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable_since=0, default=None)
    """Null when unchanged."""
