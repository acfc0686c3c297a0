"""ConsumerGroupDescribe (API key 69)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class ConsumerGroupDescribeRequest(schema.Request, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE):
    """Ask for the state and members of groups of the consumer protocol (KIP-848).

    Versions:
        1: same layout; the response has the kind of member (KIP-1099)
    """

    group_ids: list[str] = schema.array("string")
    include_authorized_operations: bool = schema.boolean()


class TopicPartitions(schema.Struct):
    """Partitions of one topic."""

    topic_id: bytes = schema.uuid()
    topic_name: str = schema.string()
    partitions: list[int] = schema.array("int32")


class Assignment(schema.Struct):
    """Partitions by topic."""

    topic_partitions: list[TopicPartitions] = schema.array(TopicPartitions)


class Member(schema.Struct):
    """A member, with its current and its target assignment."""

    member_id: str = schema.string()
    instance_id: str | None = schema.string(nullable_since=0, default=None)
    rack_id: str | None = schema.string(nullable_since=0, default=None)
    member_epoch: int = schema.int32()
    client_id: str = schema.string()
    client_host: str = schema.string()
    subscribed_topic_names: list[str] = schema.array("string")
    subscribed_topic_regex: str | None = schema.string(nullable_since=0, default=None)
    assignment: Assignment = schema.struct(Assignment)
    """The partitions that the member may own now."""
    target_assignment: Assignment = schema.struct(Assignment)
    """The partitions that the member will own after the rebalance."""
    member_type: int = schema.int8(since=1, default=-1, ignorable=True)
    """0: classic protocol; 1: consumer protocol; -1 when unknown."""


class DescribedGroup(schema.Struct):
    """A group, or the error if it cannot be described."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    group_id: str = schema.string()
    group_state: str = schema.string()
    """Empty, Assigning, Reconciling, Stable or Dead."""
    group_epoch: int = schema.int32()
    assignment_epoch: int = schema.int32()
    """The group epoch for which the target assignments were computed."""
    assignor_name: str = schema.string()
    members: list[Member] = schema.array(Member)
    authorized_operations: int = schema.int32(default=-0x8000_0000)
    """Bits of operations; the default means that they were not requested."""


class ConsumerGroupDescribeResponse(schema.Response, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE):
    """The groups and their members.

    Versions:
        1: kind of member (KIP-1099)
    """

    throttle_time_ms: int = schema.int32()
    groups: list[DescribedGroup] = schema.array(DescribedGroup, may_be_encoded=True)
