"""Metadata (API key 3)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class MetadataRequestTopic(schema.Struct):
    """A requested topic, by name or by id."""

    topic_id: bytes = schema.uuid(since=10, ignorable=True)
    name: str | None = schema.string(nullable_since=10)
    """Null when the id is given."""


class MetadataRequest(schema.Request, api_key=ApiKey.METADATA):
    """Ask for brokers, topics and their leaders.

    Versions:
        1: null requests all topics, an empty array none
        4: whether missing topics may be created
        8: authorised operations on request (KIP-430)
        10: topic id and null name exist, but no broker uses them (KIP-516)
        11: cluster operations move to DescribeCluster (KIP-700)
        12: topics may be named by id (KIP-516)
        13: same layout; the response has an error of its own (KIP-1102)
    """

    topics: list[MetadataRequestTopic] | None = schema.array(MetadataRequestTopic, nullable_since=1)
    """Null: all topics. In version 0 an empty array has this meaning."""
    allow_auto_topic_creation: bool = schema.boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = schema.boolean(since=8, until=10)
    include_topic_authorized_operations: bool = schema.boolean(since=8)


class MetadataResponseBroker(schema.Struct):
    """A broker and its address."""

    node_id: int = schema.int32()
    host: str = schema.string()
    port: int = schema.int32()
    rack: str | None = schema.string(since=1, nullable_since=1, default=None, ignorable=True)


class MetadataResponsePartition(schema.Struct):
    """A partition and its replicas."""

    error_code: int = schema.int16()
    partition_index: int = schema.int32()
    leader_id: int = schema.int32()
    """-1 while there is no leader."""
    leader_epoch: int = schema.int32(since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = schema.array("int32")
    isr_nodes: list[int] = schema.array("int32")
    """Replicas that are in sync with the leader."""
    offline_replicas: list[int] = schema.array("int32", since=5, ignorable=True)


class MetadataResponseTopic(schema.Struct):
    """A topic, or the error if it cannot be described."""

    error_code: int = schema.int16()
    name: str | None = schema.string(nullable_since=12)
    topic_id: bytes = schema.uuid(since=10, ignorable=True)
    is_internal: bool = schema.boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = schema.array(
        MetadataResponsePartition, may_be_encoded=True
    )
    topic_authorized_operations: int = schema.int32(since=8, default=-0x8000_0000)
    """Bits of operations; the default means that they were not requested."""


class MetadataResponse(schema.Response, api_key=ApiKey.METADATA):
    """Brokers, topics, partitions and leaders.

    Versions:
        1: racks, controller, internal topics
        2: cluster id (KIP-78)
        3: throttle time
        5: offline replicas (KIP-112)
        6: same layout; sent before throttling, not after
        7: leader epoch (KIP-320)
        8: authorised operations (KIP-430)
        10: topic ids (KIP-516)
        11: cluster operations move to DescribeCluster (KIP-700)
        12: name may be null, for an unknown id
        13: an error for the whole response (KIP-1102)
    """

    throttle_time_ms: int = schema.int32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = schema.array(MetadataResponseBroker)
    cluster_id: str | None = schema.string(since=2, nullable_since=2, default=None, ignorable=True)
    controller_id: int = schema.int32(since=1, default=-1, ignorable=True)
    """-1 when unknown."""
    topics: list[MetadataResponseTopic] = schema.array(MetadataResponseTopic, may_be_encoded=True)
    cluster_authorized_operations: int = schema.int32(since=8, until=10, default=-0x8000_0000)
    """Bits of operations; the default means that they were not requested."""
    error_code: int = schema.int16(since=13, ignorable=True)
    """REBOOTSTRAP_REQUIRED makes the client connect to its bootstrap servers again."""
