"""SyncGroup (API key 14)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, byte_string, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    """What the leader gives to one member."""

    member_id: str = string()
    assignment: bytes = byte_string()
    """For consumers a `ConsumerProtocolAssignment`; the broker need not understand it."""


class SyncGroupRequest(Request):
    """Wait for the assignment of a generation; its leader brings it.

    Versions:
        1: same layout; the client reads a throttle time
        3: static membership (KIP-345)
        5: protocol type and name, to be checked (KIP-559)
    """

    api_key = ApiKey.SYNC_GROUP
    valid_versions = (0, 5)
    flexible_since = 4

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    """Null unless the member is static."""
    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """Null: not checked."""
    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """Null: not checked."""
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)
    """Empty unless this member is the leader."""


class SyncGroupResponse(Response):
    """What the leader has given to this member.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        5: protocol type and name (KIP-559)
    """

    api_key = ApiKey.SYNC_GROUP
    valid_versions = (0, 5)
    flexible_since = 4

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    assignment: bytes = byte_string()
    """As in the leader's request."""
