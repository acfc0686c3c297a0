"""ShareFetch (API key 78)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uuid,
)

if TYPE_CHECKING:
    from kgw.protocol.primitives import RecordData


class AcknowledgementBatch(Struct):
    """Acknowledgements of consecutive offsets."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array("int8")
    """For the whole range, or one for each offset. 0: gap; 1: accept; 2: release; 3: reject; 4:
    renew.
    """


class FetchPartition(Struct):
    """What to fetch from and acknowledge in one partition."""

    partition_index: int = int32()
    partition_max_bytes: int = int32(until=0)
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class FetchTopic(Struct):
    """What to fetch from and acknowledge in one topic."""

    topic_id: bytes = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """Partitions that leave the session."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class ShareFetchRequest(Request):
    """Acquire records for a member of a share group, and acknowledge earlier ones (KIP-932).

    Versions:
        0: early access in Kafka 3.9, never stable
        1: limits in records in place of those for each partition
        2: acquire modes (KIP-1206) and renewal of locks (KIP-1222)
    """

    api_key = ApiKey.SHARE_FETCH
    valid_versions = (0, 2)
    flexible_since = 0

    group_id: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0)
    share_session_epoch: int = int32()
    """0: make a session; -1: end it; above: go on with it."""
    max_wait_ms: int = int32()
    """How long the broker may wait for `min_bytes`."""
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFF_FFFF)
    max_records: int = int32(since=1)
    """How many may be acquired."""
    batch_size: int = int32(since=1)
    """How many make a good batch of acquired records."""
    share_acquire_mode: int = int8(since=2, ignorable=True)
    """0: whole batches; 1: never more than `max_records`."""
    is_renew_ack: bool = boolean(since=2)
    """Some acknowledgements only renew the lock."""
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class LeaderIdAndEpoch(Struct):
    """Who leads the partition, as far as this broker knows."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class AcquiredRecords(Struct):
    """Consecutive offsets that the member has acquired."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()
    """How often they have been delivered, this time included."""


class PartitionData(Struct):
    """What was read of and acknowledged in one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    acknowledge_error_code: int = int16()
    """Of the acknowledgements; `error_code` is of the fetch."""
    acknowledge_error_message: str | None = string(nullable_since=0, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: RecordData | None = record_data(nullable_since=0, nullable_until=0)
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


class ShareFetchableTopicResponse(Struct):
    """What was read of and acknowledged in one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """Where a broker named as leader can be reached."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)


class ShareFetchResponse(Response):
    """Records, and which of them this member has acquired.

    Versions:
        0: early access in Kafka 3.9, never stable
        1: how long the locks last
        2: same layout
    """

    api_key = ApiKey.SHARE_FETCH
    valid_versions = (0, 2)
    flexible_since = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    acquisition_lock_timeout_ms: int = int32(since=1)
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
