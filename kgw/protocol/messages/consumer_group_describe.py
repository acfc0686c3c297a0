"""ConsumerGroupDescribe (API key 69)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class ConsumerGroupDescribeRequest(Request):
    """Ask for the state and members of groups of the consumer protocol (KIP-848).

    Versions:
        1: same layout; the answer tells the kind of member (KIP-1099)
    """

    api_key = ApiKey.CONSUMER_GROUP_DESCRIBE
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
    """A member, what it has and what it shall have."""

    member_id: str = string()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    subscribed_topic_regex: str | None = string(nullable_since=0, default=None)
    assignment: Assignment = struct(Assignment)
    """What it may own now."""
    target_assignment: Assignment = struct(Assignment)
    """What it shall own in the end."""
    member_type: int = int8(since=1, default=-1, ignorable=True)
    """0: classic protocol; 1: consumer protocol; -1 when unknown."""


class DescribedGroup(Struct):
    """A group, or why it cannot be described."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    group_id: str = string()
    group_state: str = string()
    """Empty, Assigning, Reconciling, Stable or Dead."""
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    """The group epoch for which the target was computed."""
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-0x8000_0000)
    """Bits of operations; the default says that they were not asked for."""


class ConsumerGroupDescribeResponse(Response):
    """The groups and their members.

    Versions:
        1: kind of member (KIP-1099)
    """

    api_key = ApiKey.CONSUMER_GROUP_DESCRIBE
    valid_versions = (0, 1)
    flexible_since = 0

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
