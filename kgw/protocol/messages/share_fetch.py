"""ShareFetch (API key 78)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kgw.protocol.primitives import RecordData


class AcknowledgementBatch(schema.Struct):
    """Acknowledgements of consecutive offsets."""

    first_offset: int = schema.int64()
    last_offset: int = schema.int64()
    acknowledge_types: list[int] = schema.array("int8")
    """For the whole range, or one for each offset. 0: gap; 1: accept; 2: release; 3: reject; 4:
    renew.
    """


class FetchPartition(schema.Struct):
    """A partition to fetch from, and the acknowledgements of its records."""

    partition_index: int = schema.int32()
    partition_max_bytes: int = schema.int32(until=0)
    acknowledgement_batches: list[AcknowledgementBatch] = schema.array(AcknowledgementBatch)


class FetchTopic(schema.Struct):
    """The partitions of one topic to fetch from, and the acknowledgements."""

    topic_id: bytes = schema.uuid()
    partitions: list[FetchPartition] = schema.array(FetchPartition)


class ForgottenTopic(schema.Struct):
    """Partitions that leave the session."""

    topic_id: bytes = schema.uuid()
    partitions: list[int] = schema.array("int32")


class ShareFetchRequest(schema.Request, api_key=ApiKey.SHARE_FETCH):
    """Acquire records for a member of a share group, and acknowledge earlier ones (KIP-932).

    Versions:
        0: early access in Kafka 3.9, never stable
        1: limits in records instead of limits for each partition
        2: acquire modes (KIP-1206) and renewal of locks (KIP-1222)
    """

    group_id: str | None = schema.string(nullable_since=0, default=None)
    member_id: str | None = schema.string(nullable_since=0)
    share_session_epoch: int = schema.int32()
    """0: create a session; -1: end it; above 0: continue it."""
    max_wait_ms: int = schema.int32()
    """How long the broker may wait for `min_bytes`."""
    min_bytes: int = schema.int32()
    max_bytes: int = schema.int32(default=0x7FFF_FFFF)
    max_records: int = schema.int32(since=1)
    """The most records to acquire."""
    batch_size: int = schema.int32(since=1)
    """The preferred number of records in a batch of acquired records."""
    share_acquire_mode: int = schema.int8(since=2, ignorable=True)
    """0: whole batches; 1: never more than `max_records`."""
    is_renew_ack: bool = schema.boolean(since=2)
    """Whether some acknowledgements only renew the lock."""
    topics: list[FetchTopic] = schema.array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = schema.array(ForgottenTopic)


class LeaderIdAndEpoch(schema.Struct):
    """The leader of the partition, as far as this broker knows."""

    leader_id: int = schema.int32()
    leader_epoch: int = schema.int32()


class AcquiredRecords(schema.Struct):
    """Consecutive offsets that the member has acquired."""

    first_offset: int = schema.int64()
    last_offset: int = schema.int64()
    delivery_count: int = schema.int16()
    """How often the records have been delivered, this time included."""


class PartitionData(schema.Struct):
    """The records of one partition, and the result for its acknowledgements."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    acknowledge_error_code: int = schema.int16()
    """The error of the acknowledgements; `error_code` is that of the fetch."""
    acknowledge_error_message: str | None = schema.string(nullable_since=0, default=None)
    current_leader: LeaderIdAndEpoch = schema.struct(LeaderIdAndEpoch)
    records: RecordData | None = schema.record_data(nullable_since=0, nullable_until=0)
    acquired_records: list[AcquiredRecords] = schema.array(AcquiredRecords)


class ShareFetchableTopicResponse(schema.Struct):
    """The records of one topic, and the results for its acknowledgements."""

    topic_id: bytes = schema.uuid()
    partitions: list[PartitionData] = schema.array(PartitionData)


class NodeEndpoint(schema.Struct):
    """The address of a broker that this response names as a leader."""

    node_id: int = schema.int32()
    host: str = schema.string()
    port: int = schema.int32()
    rack: str | None = schema.string(nullable_since=0, default=None)


class ShareFetchResponse(schema.Response, api_key=ApiKey.SHARE_FETCH):
    """Records, and the offsets that this member has acquired.

    Versions:
        0: early access in Kafka 3.9, never stable
        1: how long the locks last
        2: same layout
    """

    throttle_time_ms: int = schema.int32()
    error_code: int = schema.int16()
    error_message: str | None = schema.string(nullable_since=0, default=None)
    acquisition_lock_timeout_ms: int = schema.int32(since=1)
    responses: list[ShareFetchableTopicResponse] = schema.array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = schema.array(NodeEndpoint)
