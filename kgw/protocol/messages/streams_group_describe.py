"""StreamsGroupDescribe (API key 89)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from kgw.protocol.messages.streams_group_topology_description_update import TopologyDescription


class StreamsGroupDescribeRequest(schema.Request, api_key=ApiKey.STREAMS_GROUP_DESCRIBE):
    """Ask for the state and members of groups of Kafka Streams (KIP-1071).

    Versions:
        1: whether the topology is to be described (KIP-1331)
    """

    group_ids: list[str] = schema.array("string")
    include_authorized_operations: bool = schema.boolean()
    include_topology_description: bool = schema.boolean(since=1)


class Subtopology(schema.Struct):
    """A part of the topology whose tasks are assigned together."""

    subtopology_id: str = schema.string()
    source_topics: list[str] = schema.array("string")
    repartition_sink_topics: list[str] = schema.array("string")
    state_changelog_topics: list[TopicInfo] = schema.array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = schema.array(TopicInfo)


class Topology(schema.Struct):
    """The whole topology."""

    epoch: int = schema.int32()
    subtopologies: list[Subtopology] | None = schema.array(
        Subtopology, nullable_since=0, default=None
    )
    """Null while the topology has not been checked."""


class Assignment(schema.Struct):
    """Active, standby and warm-up tasks."""

    active_tasks: list[TaskIds] = schema.array(TaskIds)
    standby_tasks: list[TaskIds] = schema.array(TaskIds)
    warmup_tasks: list[TaskIds] = schema.array(TaskIds)


class Member(schema.Struct):
    """A member, with its current and its target assignment."""

    member_id: str = schema.string()
    member_epoch: int = schema.int32()
    instance_id: str | None = schema.string(nullable_since=0, default=None)
    rack_id: str | None = schema.string(nullable_since=0, default=None)
    client_id: str = schema.string()
    client_host: str = schema.string()
    topology_epoch: int = schema.int32()
    process_id: str = schema.string()
    user_endpoint: Endpoint | None = schema.struct(Endpoint, nullable_since=0, default=None)
    client_tags: list[KeyValue] = schema.array(KeyValue)
    task_offsets: list[TaskOffset] = schema.array(TaskOffset)
    task_end_offsets: list[TaskOffset] = schema.array(TaskOffset)
    assignment: Assignment = schema.struct(Assignment)
    """The tasks that the member runs now."""
    target_assignment: Assignment = schema.struct(Assignment)
    """The tasks that the member will run after the rebalance."""
    is_classic: bool = schema.boolean()
    """Whether the member uses the classic protocol."""


class DescribedGroup(schema.Struct):
    """A group, or the error if it cannot be described."""

    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    group_id: str = schema.string()
    group_state: str = schema.string()
    group_epoch: int = schema.int32()
    assignment_epoch: int = schema.int32()
    """The group epoch for which the target assignments were computed."""
    topology: Topology | None = schema.struct(Topology, nullable_since=0, default=None)
    """Null if the group has none yet."""
    members: list[Member] = schema.array(Member)
    authorized_operations: int = schema.int32(default=-0x8000_0000)
    """Bits of operations; the default means that they were not requested."""
    topology_description: TopologyDescription | None = schema.struct(
        TopologyDescription, since=1, nullable_since=1, default=None
    )
    topology_description_status: int = schema.int8(since=1)
    """0: not requested; 1: there is none; 2: the broker could not get it; 3: present."""
    assignor_name: str | None = schema.string(
        since=1, nullable_since=1, default=None, ignorable=True
    )
    """The assignor that computes the next assignment."""


class StreamsGroupDescribeResponse(schema.Response, api_key=ApiKey.STREAMS_GROUP_DESCRIBE):
    """The groups, their topology and their members.

    Versions:
        1: the topology described (KIP-1331), and the assignor (KIP-1357)
    """

    throttle_time_ms: int = schema.int32()
    groups: list[DescribedGroup] = schema.array(DescribedGroup)
