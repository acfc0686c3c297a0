"""OffsetFetch (API key 9)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class OffsetFetchRequestTopic(schema.Struct):
    """The requested partitions of one topic."""

    name: str = schema.string()
    partition_indexes: list[int] = schema.array("int32")


class OffsetFetchRequestTopics(schema.Struct):
    """The requested partitions of one topic."""

    name: str = schema.string(until=9, ignorable=True)
    topic_id: bytes = schema.uuid(since=10, ignorable=True)
    partition_indexes: list[int] = schema.array("int32")


class OffsetFetchRequestGroup(schema.Struct):
    """A requested group."""

    group_id: str = schema.string()
    member_id: str | None = schema.string(since=9, nullable_since=9, default=None, ignorable=True)
    """Null if the client is no member of the group."""
    member_epoch: int = schema.int32(since=9, default=-1, ignorable=True)
    """-1 if the client is no member of the group."""
    topics: list[OffsetFetchRequestTopics] | None = schema.array(
        OffsetFetchRequestTopics, nullable_since=8
    )
    """Null: all of the group's."""


class OffsetFetchRequest(schema.Request, api_key=ApiKey.OFFSET_FETCH):
    """Ask for the committed offsets of groups.

    Versions:
        1: same layout; offsets are read from Kafka, not from ZooKeeper
        2: null requests all topics (KIP-88)
        3: same layout; the client reads a throttle time
        7: may require stable offsets, which no open transaction can change (KIP-447)
        8: several groups at once (KIP-709)
        9: member and epoch of the consumer protocol (KIP-848)
        10: topic ids replace names (KIP-848)
    """

    group_id: str = schema.string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = schema.array(
        OffsetFetchRequestTopic, until=7, nullable_since=2
    )
    """Null: all of the group's."""
    groups: list[OffsetFetchRequestGroup] = schema.array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = schema.boolean(since=7)
    """UNSTABLE_OFFSET_COMMIT for partitions with pending transactional commits."""


class OffsetFetchResponsePartition(schema.Struct):
    """The offset of one partition."""

    partition_index: int = schema.int32()
    committed_offset: int = schema.int64()
    """-1: none is stored."""
    committed_leader_epoch: int = schema.int32(since=5, default=-1, ignorable=True)
    """-1 when unknown."""
    metadata: str | None = schema.string(nullable_since=0)
    error_code: int = schema.int16()


class OffsetFetchResponseTopic(schema.Struct):
    """The offsets of one topic."""

    name: str = schema.string()
    partitions: list[OffsetFetchResponsePartition] = schema.array(
        OffsetFetchResponsePartition, may_be_encoded=True
    )


class OffsetFetchResponsePartitions(schema.Struct):
    """The offset of one partition."""

    partition_index: int = schema.int32()
    committed_offset: int = schema.int64()
    """-1: none is stored."""
    committed_leader_epoch: int = schema.int32(default=-1, ignorable=True)
    """-1 when unknown."""
    metadata: str | None = schema.string(nullable_since=8)
    error_code: int = schema.int16()


class OffsetFetchResponseTopics(schema.Struct):
    """The offsets of one topic."""

    name: str = schema.string(until=9, ignorable=True)
    topic_id: bytes = schema.uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = schema.array(
        OffsetFetchResponsePartitions, may_be_encoded=True
    )


class OffsetFetchResponseGroup(schema.Struct):
    """The offsets of one group."""

    group_id: str = schema.string()
    topics: list[OffsetFetchResponseTopics] = schema.array(
        OffsetFetchResponseTopics, may_be_encoded=True
    )
    error_code: int = schema.int16()


class OffsetFetchResponse(schema.Response, api_key=ApiKey.OFFSET_FETCH):
    """The offsets that groups have committed.

    Versions:
        2: an error for the whole group (KIP-88)
        3: throttle time
        4: same layout; sent before throttling, not after
        5: leader epoch (KIP-320)
        7: same layout; UNSTABLE_OFFSET_COMMIT may be returned (KIP-447)
        8: several groups at once (KIP-709)
        9: same layout; STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID may be returned (KIP-848)
        10: topic ids replace names (KIP-848)
    """

    throttle_time_ms: int = schema.int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = schema.array(
        OffsetFetchResponseTopic, until=7, may_be_encoded=True
    )
    error_code: int = schema.int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = schema.array(
        OffsetFetchResponseGroup, since=8, may_be_encoded=True
    )
