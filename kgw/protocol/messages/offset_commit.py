"""OffsetCommit (API key 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid

if TYPE_CHECKING:
    from collections.abc import Sequence


class OffsetCommitRequestPartition(Struct):
    """The offset of one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    """Of the next record to read."""
    committed_leader_epoch: int = int32(since=6, default=-1, ignorable=True)
    """Epoch of the last record read; -1 when unknown."""
    commit_timestamp: int = int64(since=1, until=1, default=-1)
    """-1: now."""
    committed_metadata: str | None = string(nullable_since=0)
    """Whatever the client wants to keep with it."""


class OffsetCommitRequestTopic(Struct):
    """The offsets of one topic."""

    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: Sequence[OffsetCommitRequestPartition] = array(
        OffsetCommitRequestPartition, may_be_packed=True
    )


class OffsetCommitRequest(Request):
    """Store how far a group has read.

    Versions:
        1: membership and a timestamp; offsets go to Kafka, not to ZooKeeper
        2: retention time in place of the timestamp
        3: same layout; the client reads a throttle time
        5: the broker alone decides about retention (KIP-211)
        6: leader epoch (KIP-320)
        7: static membership (KIP-345)
        9: same layout; open to the consumer protocol (KIP-848)
        10: topic ids take the place of names (KIP-848)
    """

    api_key = ApiKey.OFFSET_COMMIT
    valid_versions = (0, 10)
    flexible_since = 8

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(since=1, default=-1, ignorable=True)
    """-1 with an empty member id: a commit from outside of the group."""
    member_id: str = string(since=1, ignorable=True)
    group_instance_id: str | None = string(since=7, nullable_since=7, default=None)
    """Null unless the member is static."""
    retention_time_ms: int = int64(since=2, until=4, default=-1, ignorable=True)
    """-1: as the broker is configured."""
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    """What became of one partition's offset."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    """What became of one topic's offsets."""

    name: str = string(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(
        OffsetCommitResponsePartition, may_be_encoded=True
    )


class OffsetCommitResponse(Response):
    """What became of each partition's offset.

    Versions:
        3: throttle time
        4: same layout; sent before throttling, not after
        7: same layout; FENCED_INSTANCE_ID may come back (KIP-345)
        9: same layout; STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND may come back (KIP-848)
        10: topic ids take the place of names (KIP-848)
    """

    api_key = ApiKey.OFFSET_COMMIT
    valid_versions = (0, 10)
    flexible_since = 8

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, may_be_encoded=True)
