"""OffsetForLeaderEpoch (API key 23)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    """The epoch asked about in one partition."""

    partition: int = int32()
    current_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    """The epoch that the client knows; -1 skips the check."""
    leader_epoch: int = int32()
    """The epoch whose end is asked for."""


class OffsetForLeaderTopic(Struct):
    """The partitions asked about of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Request):
    """Ask where a leader epoch ends, to find out whether logs have diverged.

    Versions:
        1: same layout; the answer tells the epoch (KIP-279)
        2: leader epoch, for fencing (KIP-320)
        3: replica id; the default is a debugging consumer's
    """

    api_key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    valid_versions = (0, 4)
    flexible_since = 4

    replica_id: int = int32(since=3, default=-2, ignorable=True)
    """-1 for a consumer, -2 for one that may see past the high watermark."""
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """What was found in one partition."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(since=1, default=-1, ignorable=True)
    """The largest epoch not above the one asked for; -1 if there is none."""
    end_offset: int = int64(default=-1)
    """The first offset after it; -1 if there is none."""


class OffsetForLeaderTopicResult(Struct):
    """What was found in one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset, may_be_encoded=True)


class OffsetForLeaderEpochResponse(Response):
    """Where the epochs end.

    Versions:
        1: the epoch that was found (KIP-279)
        2: throttle time (KIP-320)
    """

    api_key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    valid_versions = (0, 4)
    flexible_since = 4

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(
        OffsetForLeaderTopicResult, may_be_encoded=True
    )
