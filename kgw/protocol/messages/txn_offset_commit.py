"""TxnOffsetCommit (API key 28)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class TxnOffsetCommitRequestPartition(schema.Struct):
    """The offset of one partition."""

    partition_index: int = schema.int32()
    committed_offset: int = schema.int64()
    """The offset of the next record to read."""
    committed_leader_epoch: int = schema.int32(since=2, default=-1, ignorable=True)
    """-1 when unknown."""
    committed_metadata: str | None = schema.string(nullable_since=0)


class TxnOffsetCommitRequestTopic(schema.Struct):
    """The offsets of one topic."""

    name: str = schema.string(until=5, ignorable=True)
    topic_id: bytes = schema.uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = schema.array(
        TxnOffsetCommitRequestPartition
    )


class TxnOffsetCommitRequest(schema.Request, api_key=ApiKey.TXN_OFFSET_COMMIT):
    """Store a group's offsets as part of a transaction.

    Versions:
        1: same layout; the response is sent before throttling
        2: leader epoch (KIP-320)
        3: membership, for fencing (KIP-447)
        4: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
        5: same layout; committing adds the group to the transaction (KIP-890)
        6: topic ids replace names (KIP-1319)
    """

    transactional_id: str = schema.string()
    group_id: str = schema.string()
    producer_id: int = schema.int64()
    producer_epoch: int = schema.int16()
    generation_id_or_member_epoch: int = schema.int32(since=3, default=-1)
    """-1: not checked."""
    member_id: str = schema.string(since=3)
    group_instance_id: str | None = schema.string(since=3, nullable_since=3, default=None)
    """Null unless the member is static."""
    topics: list[TxnOffsetCommitRequestTopic] = schema.array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(schema.Struct):
    """The result for one partition's offset."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()


class TxnOffsetCommitResponseTopic(schema.Struct):
    """The results for one topic's offsets."""

    name: str = schema.string(until=5, ignorable=True)
    topic_id: bytes = schema.uuid(since=6, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = schema.array(
        TxnOffsetCommitResponsePartition, may_be_encoded=True
    )


class TxnOffsetCommitResponse(schema.Response, api_key=ApiKey.TXN_OFFSET_COMMIT):
    """The result for each partition's offset.

    Versions:
        1: same layout; sent before throttling, not after
        3: same layout; errors of membership may be returned (KIP-447)
        4: same layout; TRANSACTION_ABORTABLE may be returned (KIP-890)
        5: same layout
        6: topic ids replace names; GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH and
           UNKNOWN_TOPIC_ID may be returned (KIP-1319)
    """

    throttle_time_ms: int = schema.int32()
    topics: list[TxnOffsetCommitResponseTopic] = schema.array(
        TxnOffsetCommitResponseTopic, may_be_encoded=True
    )
