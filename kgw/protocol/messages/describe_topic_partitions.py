"""DescribeTopicPartitions (API key 75)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class TopicRequest(schema.Struct):
    """A requested topic."""

    name: str = schema.string()


class Cursor(schema.Struct):
    """The partition at which a page begins."""

    topic_name: str = schema.string()
    partition_index: int = schema.int32()


class DescribeTopicPartitionsRequest(schema.Request, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS):
    """Ask for topics page by page, with their eligible leader replicas (KIP-966)."""

    topics: list[TopicRequest] = schema.array(TopicRequest)
    """Empty: all topics."""
    response_partition_limit: int = schema.int32(default=2000)
    """The broker may have a lower limit."""
    cursor: Cursor | None = schema.struct(Cursor, nullable_since=0, default=None)
    """Null: from the beginning."""


class DescribeTopicPartitionsResponsePartition(schema.Struct):
    """A partition and its replicas."""

    error_code: int = schema.int16()
    partition_index: int = schema.int32()
    leader_id: int = schema.int32()
    """-1 while there is no leader."""
    leader_epoch: int = schema.int32(default=-1, ignorable=True)
    replica_nodes: list[int] = schema.array("int32")
    isr_nodes: list[int] = schema.array("int32")
    """Replicas that are in sync with the leader."""
    eligible_leader_replicas: list[int] | None = schema.array(
        "int32", nullable_since=0, default=None
    )
    """Replicas that are out of sync, but safe to elect."""
    last_known_elr: list[int] | None = schema.array("int32", nullable_since=0, default=None)
    """The last known eligible leader replicas."""
    offline_replicas: list[int] = schema.array("int32", ignorable=True)


class DescribeTopicPartitionsResponseTopic(schema.Struct):
    """A topic, or the error if it cannot be described."""

    error_code: int = schema.int16()
    name: str | None = schema.string(nullable_since=0)
    topic_id: bytes = schema.uuid(ignorable=True)
    is_internal: bool = schema.boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = schema.array(
        DescribeTopicPartitionsResponsePartition, may_be_encoded=True
    )
    topic_authorized_operations: int = schema.int32(default=-0x8000_0000)
    """Bits of operations."""


class DescribeTopicPartitionsResponse(schema.Response, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS):
    """A page of topics and partitions."""

    throttle_time_ms: int = schema.int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = schema.array(
        DescribeTopicPartitionsResponseTopic, may_be_encoded=True
    )
    next_cursor: Cursor | None = schema.struct(Cursor, nullable_since=0, default=None)
    """Null: this was the last page."""
