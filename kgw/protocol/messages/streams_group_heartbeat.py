"""StreamsGroupHeartbeat (API key 88)."""

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
    int64,
    string,
    struct,
    uint16,
)


class KeyValue(Struct):
    """A name and its value."""

    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    """An internal topic that a subtopology needs."""

    name: str = string()
    partitions: int = int32()
    """0: as many as the source topics have."""
    replication_factor: int = int16()
    """0: the broker's default."""
    topic_configs: list[KeyValue] = array(KeyValue)


class CopartitionGroup(Struct):
    """Topics that must have the same partitions, as places in the lists beside it."""

    source_topics: list[int] = array("int16")
    source_topic_regex: list[int] = array("int16")
    repartition_source_topics: list[int] = array("int16")


class Subtopology(Struct):
    """A part of the topology whose tasks are assigned together."""

    subtopology_id: str = string()
    source_topics: list[str] = array("string")
    source_topic_regex: list[str] = array("string")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array("string")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class Topology(Struct):
    """The whole topology."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


class TaskIds(Struct):
    """Tasks of one subtopology."""

    subtopology_id: str = string()
    partitions: list[int] = array("int32")


class Endpoint(Struct):
    """Where an instance answers interactive queries."""

    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    """How far a task has come."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class StreamsGroupHeartbeatRequest(Request):
    """Join, stay in or leave a group of Kafka Streams (KIP-1071).

    What has not changed since the last heartbeat may be left null.
    """

    api_key = ApiKey.STREAMS_GROUP_HEARTBEAT
    valid_versions = (0, 0)
    flexible_since = 0

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    """0: join; -1: leave; -2: a static member leaves for a while."""
    endpoint_information_epoch: int = int32()
    """Of the endpoints that the member knows."""
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    """-1 when unchanged."""
    topology: Topology | None = struct(Topology, nullable_since=0, default=None)
    """Null unless the member has just joined."""
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    process_id: str | None = string(nullable_since=0, default=None)
    """Members of one process share its state."""
    user_endpoint: Endpoint | None = struct(Endpoint, nullable_since=0, default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, nullable_since=0, default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable_since=0, default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable_since=0, default=None)
    shutdown_application: bool = boolean()
    """Asks all members to stop."""


class Status(Struct):
    """A condition of the group that the member should know."""

    status_code: int = int8()
    """0: stale topology; 1: missing source topics; 2: wrongly partitioned topics; 3: missing
    internal topics; 4: shut down; 5: assignment delayed.
    """
    status_detail: str = string()


class TopicPartition(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array("int32")


class EndpointToPartitions(Struct):
    """What an instance can be asked about."""

    user_endpoint: Endpoint = struct(Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


class StreamsGroupHeartbeatResponse(Response):
    """The member's epoch and, when they have changed, its tasks."""

    api_key = ApiKey.STREAMS_GROUP_HEARTBEAT
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    """Below it a warm-up task is ready."""
    task_offset_interval_ms: int = int32()
    """How often to tell offsets of tasks."""
    status: list[Status] | None = array(Status, nullable_since=0)
    """Null when unchanged."""
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, nullable_since=0, default=None
    )
