"""DescribeGroups (API key 15)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DescribeGroupsRequest(schema.Request, api_key=ApiKey.DESCRIBE_GROUPS):
    """Ask for the state and members of classic groups.

    Versions:
        1: same layout; the client reads a throttle time
        3: authorised operations on request (KIP-430)
        4: same layout; the response has static members (KIP-345)
        6: same layout; GROUP_ID_NOT_FOUND may be returned (KIP-1043)
    """

    groups: list[str] = schema.array("string")
    include_authorized_operations: bool = schema.boolean(since=3)


class DescribedGroupMember(schema.Struct):
    """A member and its assignment."""

    member_id: str = schema.string()
    group_instance_id: str | None = schema.string(
        since=4, nullable_since=4, default=None, ignorable=True
    )
    """Null unless the member is static."""
    client_id: str = schema.string()
    client_host: str = schema.string()
    member_metadata: bytes = schema.byte_string()
    """Empty unless the group is stable."""
    member_assignment: bytes = schema.byte_string()
    """Empty unless the group is stable."""


class DescribedGroup(schema.Struct):
    """A group, or the error if it cannot be described."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(since=6, nullable_since=6, default=None)
    group_id: str = schema.string()
    group_state: str = schema.string()
    """PreparingRebalance, CompletingRebalance, Stable, Dead or Empty."""
    protocol_type: str = schema.string()
    protocol_data: str = schema.string()
    """The assignor in use; empty unless the group is stable."""
    members: list[DescribedGroupMember] = schema.array(DescribedGroupMember)
    authorized_operations: int = schema.int32(since=3, default=-0x8000_0000)
    """Bits of operations; the default means that they were not requested."""


class DescribeGroupsResponse(schema.Response, api_key=ApiKey.DESCRIBE_GROUPS):
    """The groups and their members.

    Versions:
        1: throttle time
        2: same layout; sent before throttling, not after
        3: authorised operations (KIP-430)
        4: static membership (KIP-345)
        6: a message with each error (KIP-1043)
    """

    throttle_time_ms: int = schema.int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = schema.array(DescribedGroup, may_be_encoded=True)
