"""OffsetFetch (API key 9)."""

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
    uuid,
)


class OffsetFetchRequestTopic(Struct):
    """The partitions asked about of one topic."""

    name: str = string()
    partition_indexes: list[int] = array("int32")


class OffsetFetchRequestTopics(Struct):
    """The partitions asked about of one topic."""

    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partition_indexes: list[int] = array("int32")


class OffsetFetchRequestGroup(Struct):
    """A group asked about."""

    group_id: str = string()
    member_id: str | None = string(since=9, nullable_since=9, default=None, ignorable=True)
    """Null from outside of the group."""
    member_epoch: int = int32(since=9, default=-1, ignorable=True)
    """-1 from outside of the group."""
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, nullable_since=8
    )
    """Null: all of the group's."""


class OffsetFetchRequest(Request):
    """Ask how far groups have read.

    Versions:
        1: same layout; offsets come from Kafka, not from ZooKeeper
        2: null asks for all topics (KIP-88)
        3: same layout; the client reads a throttle time
        7: may insist on offsets that no open transaction can change (KIP-447)
        8: several groups at once (KIP-709)
        9: member and epoch of the consumer protocol (KIP-848)
        10: topic ids take the place of names (KIP-848)
    """

    api_key = ApiKey.OFFSET_FETCH
    valid_versions = (0, 10)
    flexible_since = 6

    group_id: str = string(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable_since=2
    )
    """Null: all of the group's."""
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)
    """UNSTABLE_OFFSET_COMMIT for partitions with pending transactional commits."""


class OffsetFetchResponsePartition(Struct):
    """The offset of one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    """-1: none is stored."""
    committed_leader_epoch: int = int32(since=5, default=-1, ignorable=True)
    """-1 when unknown."""
    metadata: str | None = string(nullable_since=0)
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    """The offsets of one topic."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(
        OffsetFetchResponsePartition, may_be_encoded=True
    )


class OffsetFetchResponsePartitions(Struct):
    """The offset of one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    """-1: none is stored."""
    committed_leader_epoch: int = int32(default=-1, ignorable=True)
    """-1 when unknown."""
    metadata: str | None = string(nullable_since=8)
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    """The offsets of one topic."""

    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(
        OffsetFetchResponsePartitions, may_be_encoded=True
    )


class OffsetFetchResponseGroup(Struct):
    """The offsets of one group."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, may_be_encoded=True)
    error_code: int = int16()


class OffsetFetchResponse(Response):
    """The offsets that groups have committed.

    Versions:
        2: an error for the whole group (KIP-88)
        3: throttle time
        4: same layout; sent before throttling, not after
        5: leader epoch (KIP-320)
        7: same layout; UNSTABLE_OFFSET_COMMIT may come back (KIP-447)
        8: several groups at once (KIP-709)
        9: same layout; STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID may come back (KIP-848)
        10: topic ids take the place of names (KIP-848)
    """

    api_key = ApiKey.OFFSET_FETCH
    valid_versions = (0, 10)
    flexible_since = 6

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(
        OffsetFetchResponseTopic, until=7, may_be_encoded=True
    )
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(
        OffsetFetchResponseGroup, since=8, may_be_encoded=True
    )
