"""StreamsGroupDescribe (API key 89)."""

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
    int64,
    string,
    struct,
    uint16,
)


class StreamsGroupDescribeRequest(Request):
    """Ask for the state and members of groups of Kafka Streams (KIP-1071)."""

    api_key = ApiKey.STREAMS_GROUP_DESCRIBE
    valid_versions = (0, 0)
    flexible_since = 0

    group_ids: list[str] = array("string")
    include_authorized_operations: bool = boolean()


class KeyValue(Struct):
    """A name and its value."""

    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    """An internal topic of a subtopology."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Subtopology(Struct):
    """A part of the topology whose tasks are assigned together."""

    subtopology_id: str = string()
    source_topics: list[str] = array("string")
    repartition_sink_topics: list[str] = array("string")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class Topology(Struct):
    """The whole topology."""

    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable_since=0, default=None)
    """Null while the topology has not been checked."""


class Endpoint(Struct):
    """Where an instance answers interactive queries."""

    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    """How far a task has come."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Struct):
    """Tasks of one subtopology."""

    subtopology_id: str = string()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    """Tasks by what they are for."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class Member(Struct):
    """A member, what it has and what it shall have."""

    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable_since=0, default=None)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    """What it runs now."""
    target_assignment: Assignment = struct(Assignment)
    """What it shall run in the end."""
    is_classic: bool = boolean()
    """It speaks the classic protocol."""


class DescribedGroup(Struct):
    """A group, or why it cannot be described."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    """The group epoch for which the target was computed."""
    topology: Topology | None = struct(Topology, nullable_since=0, default=None)
    """Null if the group has none yet."""
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-0x8000_0000)
    """Bits of operations; the default says that they were not asked for."""


class StreamsGroupDescribeResponse(Response):
    """The groups, their topology and their members."""

    api_key = ApiKey.STREAMS_GROUP_DESCRIBE
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
