"""TxnOffsetCommit (API key 28)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class TxnOffsetCommitRequestPartition(Struct):
    """The offset of one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    """Of the next record to read."""
    committed_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    """-1 when unknown."""
    committed_metadata: str | None = string(nullable_since=0)


class TxnOffsetCommitRequestTopic(Struct):
    """The offsets of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Request):
    """Store a group's offsets as part of a transaction.

    Versions:
        1: same layout; the answer is sent before throttling
        2: leader epoch (KIP-320)
        3: membership, for fencing (KIP-447)
        4: same layout; TRANSACTION_ABORTABLE may come back (KIP-890)
        5: same layout; committing adds the group to the transaction (KIP-890)
    """

    api_key = ApiKey.TXN_OFFSET_COMMIT
    valid_versions = (0, 5)
    flexible_since = 3

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    """-1: not checked."""
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    """Null unless the member is static."""
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    """What became of one partition's offset."""

    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    """What became of one topic's offsets."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Response):
    """What became of each partition's offset.

    Versions:
        1: same layout; sent before throttling, not after
        3: same layout; errors of membership may come back (KIP-447)
        4: same layout; TRANSACTION_ABORTABLE may come back (KIP-890)
        5: same layout
    """

    api_key = ApiKey.TXN_OFFSET_COMMIT
    valid_versions = (0, 5)
    flexible_since = 3

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
