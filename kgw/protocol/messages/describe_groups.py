"""DescribeGroups (API key 15)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    byte_string,
    int16,
    int32,
    string,
)


class DescribeGroupsRequest(Request):
    """Ask for the state and members of classic groups.

    Versions:
        1: same layout; the client reads a throttle time
        3: authorised operations on request (KIP-430)
        4: same layout; the answer tells static members (KIP-345)
        6: same layout; GROUP_ID_NOT_FOUND may come back (KIP-1043)
    """

    api_key = ApiKey.DESCRIBE_GROUPS
    valid_versions = (0, 6)
    flexible_since = 5

    groups: list[str] = array("string")
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Struct):
    """A member and what it has been given."""

    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable_since=4, default=None, ignorable=True)
    """Null unless the member is static."""
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = byte_string()
    """Empty unless the group is stable."""
    member_assignment: bytes = byte_string()
    """Empty unless the group is stable."""


class DescribedGroup(Struct):
    """A group, or why it cannot be described."""

    error_code: int = int16()
    error_message: str | None = string(since=6, nullable_since=6, default=None)
    group_id: str = string()
    group_state: str = string()
    """PreparingRebalance, CompletingRebalance, Stable, Dead or Empty."""
    protocol_type: str = string()
    protocol_data: str = string()
    """The assignor in use; empty unless the group is stable."""
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-0x8000_0000)
    """Bits of operations; the default says that they were not asked for."""


class DescribeGroupsResponse(Response):
    """The groups and their members.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        3: authorised operations (KIP-430)
        4: static membership (KIP-345)
        6: a message beside each error (KIP-1043)
    """

    api_key = ApiKey.DESCRIBE_GROUPS
    valid_versions = (0, 6)
    flexible_since = 5

    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, may_be_encoded=True)
