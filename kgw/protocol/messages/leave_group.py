"""LeaveGroup (API key 13)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    """A member that leaves."""

    member_id: str = string()
    """Empty to remove a static member by its instance id."""
    group_instance_id: str | None = string(nullable_since=3, default=None)
    """Null unless the member is static."""
    reason: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """For the log."""


class LeaveGroupRequest(Request):
    """Leave a classic group, or have members removed from it.

    Versions:
        1: same layout; the client reads a throttle time
        3: several members at once, static ones too (KIP-345)
        5: reason (KIP-800)
    """

    api_key = ApiKey.LEAVE_GROUP
    valid_versions = (0, 5)
    flexible_since = 4

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Struct):
    """A member that left, or why it did not."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable_since=3)
    error_code: int = int16()


class LeaveGroupResponse(Response):
    """What became of each member.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        3: an answer for each member (KIP-345)
    """

    api_key = ApiKey.LEAVE_GROUP
    valid_versions = (0, 5)
    flexible_since = 4

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
