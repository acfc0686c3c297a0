"""DescribeTopicPartitions (API key 75)."""

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


class TopicRequest(Struct):
    """A topic asked about."""

    name: str = string()


class Cursor(Struct):
    """The partition at which a page begins."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Request):
    """Ask for topics page by page, with their eligible leader replicas (KIP-966)."""

    api_key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    valid_versions = (0, 0)
    flexible_since = 0

    topics: list[TopicRequest] = array(TopicRequest)
    """Empty: all topics."""
    response_partition_limit: int = int32(default=2000)
    """The broker may have a lower limit."""
    cursor: Cursor | None = struct(Cursor, nullable_since=0, default=None)
    """Null: from the beginning."""


class DescribeTopicPartitionsResponsePartition(Struct):
    """A partition and its replicas."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    """-1 while there is no leader."""
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array("int32")
    isr_nodes: list[int] = array("int32")
    """Replicas that are in sync with the leader."""
    eligible_leader_replicas: list[int] | None = array("int32", nullable_since=0, default=None)
    """Out of sync, yet safe to elect."""
    last_known_elr: list[int] | None = array("int32", nullable_since=0, default=None)
    """The last of those known."""
    offline_replicas: list[int] = array("int32", ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    """A topic, or why it cannot be described."""

    error_code: int = int16()
    name: str | None = string(nullable_since=0)
    topic_id: bytes = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, may_be_encoded=True
    )
    topic_authorized_operations: int = int32(default=-0x8000_0000)
    """Bits of operations."""


class DescribeTopicPartitionsResponse(Response):
    """A page of topics and partitions."""

    api_key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    valid_versions = (0, 0)
    flexible_since = 0

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(
        DescribeTopicPartitionsResponseTopic, may_be_encoded=True
    )
    next_cursor: Cursor | None = struct(Cursor, nullable_since=0, default=None)
    """Null: this was the last page."""
