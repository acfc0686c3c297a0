"""ShareGroupDescribe (API key 77)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class ShareGroupDescribeRequest(Request):
    """Ask for the state and members of share groups (KIP-932).

    Versions:
        0: early access in Kafka 3.9, never stable
    """

    api_key = ApiKey.SHARE_GROUP_DESCRIBE
    valid_versions = (0, 1)
    flexible_since = 0

    group_ids: list[str] = array("string")
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    """Partitions by topic."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    """A member and its partitions."""

    member_id: str = string()
    rack_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    assignment: Assignment = struct(Assignment)


class DescribedGroup(Struct):
    """A group, or why it cannot be described."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    group_id: str = string()
    group_state: str = string()
    """Empty, Stable or Dead."""
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    """The group epoch for which the assignment was computed."""
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-0x8000_0000)
    """Bits of operations; the default says that they were not asked for."""


class ShareGroupDescribeResponse(Response):
    """The groups and their members.

    Versions:
        0: early access in Kafka 3.9, never stable
    """

    api_key = ApiKey.SHARE_GROUP_DESCRIBE
    valid_versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
