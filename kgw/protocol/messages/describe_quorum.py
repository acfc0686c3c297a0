"""DescribeQuorum (API key 55)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class DescribeQuorumRequestPartitionData(Struct):
    """A partition asked about."""

    partition_index: int = int32()


class DescribeQuorumRequestTopicData(Struct):
    """The partitions asked about of one topic."""

    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartitionData] = array(DescribeQuorumRequestPartitionData)


class DescribeQuorumRequest(Request):
    """Ask for the state of the KRaft quorum (KIP-595).

    Versions:
        1: same layout; the answer tells when replicas last fetched (KIP-836)
        2: same layout; the answer tells directories and nodes (KIP-853)
    """

    api_key = ApiKey.DESCRIBE_QUORUM
    valid_versions = (0, 2)
    flexible_since = 0

    topics: list[DescribeQuorumRequestTopicData] = array(DescribeQuorumRequestTopicData)


class ReplicaState(Struct):
    """A replica's progress."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    """-1 when unknown."""
    last_fetch_timestamp: int = int64(since=1, default=-1, ignorable=True)
    """In milliseconds; -1 when unknown."""
    last_caught_up_timestamp: int = int64(since=1, default=-1, ignorable=True)
    """In milliseconds; -1 when unknown."""


class DescribeQuorumResponsePartitionData(Struct):
    """The quorum of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable_since=2, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class DescribeQuorumResponseTopicData(Struct):
    """The quorums of one topic."""

    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartitionData] = array(
        DescribeQuorumResponsePartitionData
    )


class Listener(Struct):
    """Where a node is reached."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(Struct):
    """A node of the quorum."""

    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


class DescribeQuorumResponse(Response):
    """The quorum's leader, voters and observers.

    Versions:
        1: when each replica last fetched and was up to date (KIP-836)
        2: messages, directories and nodes (KIP-853)
    """

    api_key = ApiKey.DESCRIBE_QUORUM
    valid_versions = (0, 2)
    flexible_since = 0

    error_code: int = int16()
    error_message: str | None = string(since=2, nullable_since=2, ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = array(DescribeQuorumResponseTopicData)
    nodes: list[Node] = array(Node, since=2)
