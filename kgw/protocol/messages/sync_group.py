"""SyncGroup (API key 14)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class SyncGroupRequestAssignment(schema.Struct):
    """The assignment of one member, from the leader."""

    member_id: str = schema.string()
    assignment: bytes = schema.byte_string()
    """For consumers a `ConsumerProtocolAssignment`; the broker need not understand it."""


class SyncGroupRequest(schema.Request, api_key=ApiKey.SYNC_GROUP):
    """Wait for the assignment of a generation; its leader brings it.

    Versions:
        1: same layout; the client reads a throttle time
        3: static membership (KIP-345)
        5: protocol type and name, to be checked (KIP-559)
    """

    group_id: str = schema.string()
    generation_id: int = schema.int32()
    member_id: str = schema.string()
    group_instance_id: str | None = schema.string(since=3, nullable_since=3, default=None)
    """Null unless the member is static."""
    protocol_type: str | None = schema.string(
        since=5, nullable_since=5, default=None, ignorable=True
    )
    """Null: not checked."""
    protocol_name: str | None = schema.string(
        since=5, nullable_since=5, default=None, ignorable=True
    )
    """Null: not checked."""
    assignments: list[SyncGroupRequestAssignment] = schema.array(SyncGroupRequestAssignment)
    """Empty unless this member is the leader."""


class SyncGroupResponse(schema.Response, api_key=ApiKey.SYNC_GROUP):
    """The assignment of this member.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        5: protocol type and name (KIP-559)
    """

    throttle_time_ms: int = schema.int32(since=1, ignorable=True)
    error_code: int = schema.int16()
    protocol_type: str | None = schema.string(
        since=5, nullable_since=5, default=None, ignorable=True
    )
    protocol_name: str | None = schema.string(
        since=5, nullable_since=5, default=None, ignorable=True
    )
    assignment: bytes = schema.byte_string()
    """As in the leader's request."""
