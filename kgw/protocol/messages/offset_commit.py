"""OffsetCommit (API key 8)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class OffsetCommitRequestPartition(schema.Struct):
    """The offset of one partition."""

    partition_index: int = schema.int32()
    committed_offset: int = schema.int64()
    """The offset of the next record to read."""
    committed_leader_epoch: int = schema.int32(since=6, default=-1, ignorable=True)
    """Epoch of the last record read; -1 when unknown."""
    commit_timestamp: int = schema.int64(since=1, until=1, default=-1)
    """-1: now."""
    committed_metadata: str | None = schema.string(nullable_since=0)
    """Text that the client stores with the offset."""


class OffsetCommitRequestTopic(schema.Struct):
    """The offsets of one topic."""

    name: str = schema.string(until=9, ignorable=True)
    topic_id: bytes = schema.uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = schema.array(OffsetCommitRequestPartition)


class OffsetCommitRequest(schema.Request, api_key=ApiKey.OFFSET_COMMIT):
    """Store the committed offsets of a group.

    Versions:
        1: membership and a timestamp; offsets are stored in Kafka, not in ZooKeeper
        2: retention time instead of the timestamp
        3: same layout; the client reads a throttle time
        5: no retention time: only the broker's setting applies (KIP-211)
        6: leader epoch (KIP-320)
        7: static membership (KIP-345)
        9: same layout; groups of the consumer protocol may use it (KIP-848)
        10: topic ids replace names (KIP-848)
    """

    group_id: str = schema.string()
    generation_id_or_member_epoch: int = schema.int32(since=1, default=-1, ignorable=True)
    """-1 with an empty member id: the client is no member of the group."""
    member_id: str = schema.string(since=1, ignorable=True)
    group_instance_id: str | None = schema.string(since=7, nullable_since=7, default=None)
    """Null unless the member is static."""
    retention_time_ms: int = schema.int64(since=2, until=4, default=-1, ignorable=True)
    """-1: as the broker is configured."""
    topics: list[OffsetCommitRequestTopic] = schema.array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(schema.Struct):
    """The result for one partition's offset."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()


class OffsetCommitResponseTopic(schema.Struct):
    """The results for one topic's offsets."""

    name: str = schema.string(until=9, ignorable=True)
    topic_id: bytes = schema.uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = schema.array(
        OffsetCommitResponsePartition, may_be_encoded=True
    )


class OffsetCommitResponse(schema.Response, api_key=ApiKey.OFFSET_COMMIT):
    """The result for each partition's offset.

    Versions:
        3: throttle time
        4: same layout; sent before throttling, not after
        7: same layout; FENCED_INSTANCE_ID may be returned (KIP-345)
        9: same layout; STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND may be returned (KIP-848)
        10: topic ids replace names (KIP-848)
    """

    throttle_time_ms: int = schema.int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = schema.array(
        OffsetCommitResponseTopic, may_be_encoded=True
    )
