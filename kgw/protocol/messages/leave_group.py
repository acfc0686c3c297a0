"""LeaveGroup (API key 13)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class MemberIdentity(schema.Struct):
    """A member that leaves."""

    member_id: str = schema.string()
    """Empty to remove a static member by its instance id."""
    group_instance_id: str | None = schema.string(nullable_since=3, default=None)
    """Null unless the member is static."""
    reason: str | None = schema.string(since=5, nullable_since=5, default=None, ignorable=True)
    """For the log."""


class LeaveGroupRequest(schema.Request, api_key=ApiKey.LEAVE_GROUP):
    """Leave a classic group, or remove members from it.

    Versions:
        1: same layout; the client reads a throttle time
        3: several members at once, static ones too (KIP-345)
        5: reason (KIP-800)
    """

    group_id: str = schema.string()
    member_id: str = schema.string(until=2)
    members: list[MemberIdentity] = schema.array(MemberIdentity, since=3)


class MemberResponse(schema.Struct):
    """A member that left, or the error if it did not."""

    member_id: str = schema.string()
    group_instance_id: str | None = schema.string(nullable_since=3)
    error_code: int = schema.int16()


class LeaveGroupResponse(schema.Response, api_key=ApiKey.LEAVE_GROUP):
    """The result for each member.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        3: a result for each member (KIP-345)
    """

    throttle_time_ms: int = schema.int32(since=1, ignorable=True)
    error_code: int = schema.int16()
    members: list[MemberResponse] = schema.array(MemberResponse, since=3)
