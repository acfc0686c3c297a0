"""ShareAcknowledge (API key 79)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint


class AcknowledgePartition(schema.Struct):
    """The acknowledgements of one partition."""

    partition_index: int = schema.int32()
    acknowledgement_batches: list[AcknowledgementBatch] = schema.array(AcknowledgementBatch)


class AcknowledgeTopic(schema.Struct):
    """The acknowledgements of one topic."""

    topic_id: bytes = schema.uuid()
    partitions: list[AcknowledgePartition] = schema.array(AcknowledgePartition)


class ShareAcknowledgeRequest(schema.Request, api_key=ApiKey.SHARE_ACKNOWLEDGE):
    """Acknowledge records of a share group without fetching more (KIP-932).

    Versions:
        0: early access in Kafka 3.9, never stable
        2: renewal of locks (KIP-1222)
    """

    group_id: str | None = schema.string(nullable_since=0, default=None)
    member_id: str | None = schema.string(nullable_since=0)
    share_session_epoch: int = schema.int32()
    """-1: end the session; above 0: continue it."""
    is_renew_ack: bool = schema.boolean(since=2)
    """Whether some acknowledgements only renew the lock."""
    topics: list[AcknowledgeTopic] = schema.array(AcknowledgeTopic)


class PartitionData(schema.Struct):
    """The result for the acknowledgements of one partition."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    current_leader: LeaderIdAndEpoch = schema.struct(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(schema.Struct):
    """The results for the acknowledgements of one topic."""

    topic_id: bytes = schema.uuid()
    partitions: list[PartitionData] = schema.array(PartitionData)


class ShareAcknowledgeResponse(schema.Response, api_key=ApiKey.SHARE_ACKNOWLEDGE):
    """The results for the acknowledgements.

    Versions:
        0: early access in Kafka 3.9, never stable
        2: how long the locks last (KIP-1222)
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    acquisition_lock_timeout_ms: int = schema.int32(since=2, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = schema.array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = schema.array(NodeEndpoint)
