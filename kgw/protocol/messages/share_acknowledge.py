"""ShareAcknowledge (API key 79)."""

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
    struct,
    uuid,
)


class AcknowledgementBatch(Struct):
    """Acknowledgements of consecutive offsets."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array("int8")
    """For the whole range, or one for each offset. 0: gap; 1: accept; 2: release; 3: reject; 4:
    renew.
    """


class AcknowledgePartition(Struct):
    """The acknowledgements of one partition."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class AcknowledgeTopic(Struct):
    """The acknowledgements of one topic."""

    topic_id: bytes = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


class ShareAcknowledgeRequest(Request):
    """Acknowledge records of a share group without fetching more (KIP-932).

    Versions:
        0: early access in Kafka 3.9, never stable
        2: renewal of locks (KIP-1222)
    """

    api_key = ApiKey.SHARE_ACKNOWLEDGE
    valid_versions = (0, 2)
    flexible_since = 0

    group_id: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0)
    share_session_epoch: int = int32()
    """-1: end the session; above 0: go on with it."""
    is_renew_ack: bool = boolean(since=2)
    """Some acknowledgements only renew the lock."""
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class LeaderIdAndEpoch(Struct):
    """Who leads the partition, as far as this broker knows."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionData(Struct):
    """What became of one partition's."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    """What became of one topic's."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """Where a broker named as leader can be reached."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)


class ShareAcknowledgeResponse(Response):
    """What became of the acknowledgements.

    Versions:
        0: early access in Kafka 3.9, never stable
        2: how long the locks last (KIP-1222)
    """

    api_key = ApiKey.SHARE_ACKNOWLEDGE
    valid_versions = (0, 2)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    acquisition_lock_timeout_ms: int = int32(since=2, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
