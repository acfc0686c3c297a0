"""OffsetForLeaderEpoch (API key 23)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class OffsetForLeaderPartition(schema.Struct):
    """The requested epoch of one partition."""

    partition: int = schema.int32()
    current_leader_epoch: int = schema.int32(since=2, default=-1, ignorable=True)
    """The epoch that the client knows; -1 skips the check."""
    leader_epoch: int = schema.int32()
    """The epoch whose end offset is requested."""


class OffsetForLeaderTopic(schema.Struct):
    """The requested partitions of one topic."""

    topic: str = schema.string()
    partitions: list[OffsetForLeaderPartition] = schema.array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(schema.Request, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    """Ask for the end offsets of leader epochs, to find out whether logs have diverged.

    Versions:
        1: same layout; the response has the epoch (KIP-279)
        2: leader epoch, for fencing (KIP-320)
        3: replica id; the default is a debugging consumer's
    """

    replica_id: int = schema.int32(since=3, default=-2, ignorable=True)
    """-1 for a consumer, -2 for a debugging consumer, which may read past the high watermark."""
    topics: list[OffsetForLeaderTopic] = schema.array(OffsetForLeaderTopic)


class EpochEndOffset(schema.Struct):
    """The end offset of the epoch in one partition."""

    error_code: int = schema.int16()
    partition: int = schema.int32()
    leader_epoch: int = schema.int32(since=1, default=-1, ignorable=True)
    """The largest epoch that is not above the requested one; -1 if there is none."""
    end_offset: int = schema.int64(default=-1)
    """The first offset after it; -1 if there is none."""


class OffsetForLeaderTopicResult(schema.Struct):
    """The end offsets of the epochs in one topic."""

    topic: str = schema.string()
    partitions: list[EpochEndOffset] = schema.array(EpochEndOffset, may_be_encoded=True)


class OffsetForLeaderEpochResponse(schema.Response, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    """The end offsets of the epochs.

    Versions:
        1: the epoch that was found (KIP-279)
        2: throttle time (KIP-320)
    """

    throttle_time_ms: int = schema.int32(since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = schema.array(
        OffsetForLeaderTopicResult, may_be_encoded=True
    )
