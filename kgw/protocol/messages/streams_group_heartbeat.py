"""StreamsGroupHeartbeat (API key 88)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class KeyValue(schema.Struct):
    """A name and its value."""

    key: str = schema.string()
    value: str = schema.string()


class TopicInfo(schema.Struct):
    """An internal topic that a subtopology needs."""

    name: str = schema.string()
    partitions: int = schema.int32()
    """0: as many as the source topics have."""
    replication_factor: int = schema.int16()
    """0: the broker's default."""
    topic_configs: list[KeyValue] = schema.array(KeyValue)


class CopartitionGroup(schema.Struct):
    """Topics that must have the same partitions, as indexes into the lists of the subtopology."""

    source_topics: list[int] = schema.array("int16")
    source_topic_regex: list[int] = schema.array("int16")
    repartition_source_topics: list[int] = schema.array("int16")


class Subtopology(schema.Struct):
    """A part of the topology whose tasks are assigned together."""

    subtopology_id: str = schema.string()
    source_topics: list[str] = schema.array("string")
    source_topic_regex: list[str] = schema.array("string")
    state_changelog_topics: list[TopicInfo] = schema.array(TopicInfo)
    repartition_sink_topics: list[str] = schema.array("string")
    repartition_source_topics: list[TopicInfo] = schema.array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = schema.array(CopartitionGroup)


class Topology(schema.Struct):
    """The whole topology."""

    epoch: int = schema.int32()
    subtopologies: list[Subtopology] = schema.array(Subtopology)


class TaskIds(schema.Struct):
    """Tasks of one subtopology."""

    subtopology_id: str = schema.string()
    partitions: list[int] = schema.array("int32")


class Endpoint(schema.Struct):
    """The address at which an instance answers interactive queries."""

    host: str = schema.string()
    port: int = schema.uint16()


class TaskOffset(schema.Struct):
    """The offset that a task has reached in one partition."""

    subtopology_id: str = schema.string()
    partition: int = schema.int32()
    offset: int = schema.int64()


class StreamsGroupHeartbeatRequest(schema.Request, api_key=ApiKey.STREAMS_GROUP_HEARTBEAT):
    """Join, stay in or leave a group of Kafka Streams (KIP-1071).

    A nullable field may be null if its value has not changed since the last heartbeat.

    Versions:
        1: same layout; the response has another layout (KIP-1331)
    """

    group_id: str = schema.string()
    member_id: str = schema.string()
    member_epoch: int = schema.int32()
    """0: join; -1: leave; -2: a static member leaves for a while."""
    endpoint_information_epoch: int = schema.int32()
    """The epoch of the endpoints that the member knows."""
    instance_id: str | None = schema.string(nullable_since=0, default=None)
    rack_id: str | None = schema.string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = schema.int32(default=-1)
    """-1 when unchanged."""
    topology: Topology | None = schema.struct(Topology, nullable_since=0, default=None)
    """Null unless the member has just joined."""
    active_tasks: list[TaskIds] | None = schema.array(TaskIds, nullable_since=0, default=None)
    standby_tasks: list[TaskIds] | None = schema.array(TaskIds, nullable_since=0, default=None)
    warmup_tasks: list[TaskIds] | None = schema.array(TaskIds, nullable_since=0, default=None)
    process_id: str | None = schema.string(nullable_since=0, default=None)
    """Members of one process share its state."""
    user_endpoint: Endpoint | None = schema.struct(Endpoint, nullable_since=0, default=None)
    client_tags: list[KeyValue] | None = schema.array(KeyValue, nullable_since=0, default=None)
    task_offsets: list[TaskOffset] | None = schema.array(TaskOffset, nullable_since=0, default=None)
    task_end_offsets: list[TaskOffset] | None = schema.array(
        TaskOffset, nullable_since=0, default=None
    )
    shutdown_application: bool = schema.boolean()
    """Whether all members are asked to stop."""


class Status(schema.Struct):
    """A condition of the group that the member should know."""

    status_code: int = schema.int8()
    """0: stale topology; 1: missing source topics; 2: wrongly partitioned topics; 3: missing
    internal topics; 4: shut down; 5: assignment delayed; 6: missing client tags.
    """
    status_detail: str = schema.string()


class TopicPartition(schema.Struct):
    """Partitions of one topic."""

    topic: str = schema.string()
    partitions: list[int] = schema.array("int32")


class EndpointToPartitions(schema.Struct):
    """The partitions that the endpoint of an instance can be queried about."""

    user_endpoint: Endpoint = schema.struct(Endpoint)
    active_partitions: list[TopicPartition] = schema.array(TopicPartition)
    standby_partitions: list[TopicPartition] = schema.array(TopicPartition)


class StreamsGroupHeartbeatResponse(schema.Response, api_key=ApiKey.STREAMS_GROUP_HEARTBEAT):
    """The member's epoch and, when they have changed, its tasks.

    Versions:
        1: a lag of 64 bits, and whether the member has to describe the topology (KIP-1331)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    member_id: str = schema.string()
    member_epoch: int = schema.int32()
    heartbeat_interval_ms: int = schema.int32()
    acceptable_recovery_lag_legacy: int = schema.int32(until=0)
    task_offset_interval_ms: int = schema.int32()
    """The interval at which the member sends the offsets of its tasks."""
    acceptable_recovery_lag: int = schema.int64(since=1, default=-1, ignorable=True)
    """A warm-up task with a lower lag is ready; -1: the broker does not know."""
    status: list[Status] | None = schema.array(Status, nullable_since=0)
    """Null when unchanged."""
    active_tasks: list[TaskIds] | None = schema.array(TaskIds, nullable_since=0, default=None)
    standby_tasks: list[TaskIds] | None = schema.array(TaskIds, nullable_since=0, default=None)
    warmup_tasks: list[TaskIds] | None = schema.array(TaskIds, nullable_since=0, default=None)
    topology_description_required: bool = schema.boolean(since=1)
    """Whether the member has to send it with StreamsGroupTopologyDescriptionUpdate."""
    endpoint_information_epoch: int = schema.int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = schema.array(
        EndpointToPartitions, nullable_since=0, default=None
    )
