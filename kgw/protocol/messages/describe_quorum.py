"""DescribeQuorum (API key 55)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DescribeQuorumRequestPartitionData(schema.Struct):
    """A requested partition."""

    partition_index: int = schema.int32()


class DescribeQuorumRequestTopicData(schema.Struct):
    """The requested partitions of one topic."""

    topic_name: str = schema.string()
    partitions: list[DescribeQuorumRequestPartitionData] = schema.array(
        DescribeQuorumRequestPartitionData
    )


class DescribeQuorumRequest(schema.Request, api_key=ApiKey.DESCRIBE_QUORUM):
    """Ask for the state of the KRaft quorum (KIP-595).

    Versions:
        1: same layout; the response has the times of the replicas' last fetches (KIP-836)
        2: same layout; the response has directories and nodes (KIP-853)
    """

    topics: list[DescribeQuorumRequestTopicData] = schema.array(DescribeQuorumRequestTopicData)


class ReplicaState(schema.Struct):
    """A replica's progress."""

    replica_id: int = schema.int32()
    replica_directory_id: bytes = schema.uuid(since=2)
    log_end_offset: int = schema.int64()
    """-1 when unknown."""
    last_fetch_timestamp: int = schema.int64(since=1, default=-1, ignorable=True)
    """In milliseconds; -1 when unknown."""
    last_caught_up_timestamp: int = schema.int64(since=1, default=-1, ignorable=True)
    """In milliseconds; -1 when unknown."""


class DescribeQuorumResponsePartitionData(schema.Struct):
    """The quorum of one partition."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(since=2, nullable_since=2, ignorable=True)
    leader_id: int = schema.int32()
    leader_epoch: int = schema.int32()
    high_watermark: int = schema.int64()
    current_voters: list[ReplicaState] = schema.array(ReplicaState)
    observers: list[ReplicaState] = schema.array(ReplicaState)


class DescribeQuorumResponseTopicData(schema.Struct):
    """The quorums of one topic."""

    topic_name: str = schema.string()
    partitions: list[DescribeQuorumResponsePartitionData] = schema.array(
        DescribeQuorumResponsePartitionData
    )


class Listener(schema.Struct):
    """An address of a node."""

    name: str = schema.string()
    host: str = schema.string()
    port: int = schema.uint16()


class Node(schema.Struct):
    """A node of the quorum."""

    node_id: int = schema.int32()
    listeners: list[Listener] = schema.array(Listener)


class DescribeQuorumResponse(schema.Response, api_key=ApiKey.DESCRIBE_QUORUM):
    """The quorum's leader, voters and observers.

    Versions:
        1: the times at which each replica last fetched and was up to date (KIP-836)
        2: messages, directories and nodes (KIP-853)
    """

    error_code: int = schema.int16()
    error_message: str | None = schema.string(since=2, nullable_since=2, ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = schema.array(DescribeQuorumResponseTopicData)
    nodes: list[Node] = schema.array(Node, since=2)
