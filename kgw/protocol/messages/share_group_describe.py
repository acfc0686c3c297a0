"""ShareGroupDescribe (API key 77)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.consumer_group_describe import Assignment


class ShareGroupDescribeRequest(schema.Request, api_key=ApiKey.SHARE_GROUP_DESCRIBE):
    """Ask for the state and members of share groups (KIP-932).

    Versions:
        0: early access in Kafka 3.9, never stable
    """

    group_ids: list[str] = schema.array("string")
    include_authorized_operations: bool = schema.boolean()


class Member(schema.Struct):
    """A member and its partitions."""

    member_id: str = schema.string()
    rack_id: str | None = schema.string(nullable_since=0, default=None)
    member_epoch: int = schema.int32()
    client_id: str = schema.string()
    client_host: str = schema.string()
    subscribed_topic_names: list[str] = schema.array("string")
    assignment: Assignment = schema.struct(Assignment)


class DescribedGroup(schema.Struct):
    """A group, or the error if it cannot be described."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    group_id: str = schema.string()
    group_state: str = schema.string()
    """Empty, Stable or Dead."""
    group_epoch: int = schema.int32()
    assignment_epoch: int = schema.int32()
    """The group epoch for which the assignment was computed."""
    assignor_name: str = schema.string()
    members: list[Member] = schema.array(Member)
    authorized_operations: int = schema.int32(default=-0x8000_0000)
    """Bits of operations; the default means that they were not requested."""


class ShareGroupDescribeResponse(schema.Response, api_key=ApiKey.SHARE_GROUP_DESCRIBE):
    """The groups and their members.

    Versions:
        0: early access in Kafka 3.9, never stable
    """

    throttle_time_ms: int = schema.int32()
    groups: list[DescribedGroup] = schema.array(DescribedGroup)
