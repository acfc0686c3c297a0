"""DeleteRecords (API key 21)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class DeleteRecordsPartition(schema.Struct):
    """The offset up to which to delete records of one partition."""

    partition_index: int = schema.int32()
    offset: int = schema.int64()
    """The first offset to keep; -1: delete up to the high watermark."""


class DeleteRecordsTopic(schema.Struct):
    """The offsets up to which to delete records of one topic."""

    name: str = schema.string()
    partitions: list[DeleteRecordsPartition] = schema.array(DeleteRecordsPartition)


class DeleteRecordsRequest(schema.Request, api_key=ApiKey.DELETE_RECORDS):
    """Delete the records below an offset (KIP-107).

    Versions:
        1: same layout; the response is sent before throttling
    """

    topics: list[DeleteRecordsTopic] = schema.array(DeleteRecordsTopic)
    timeout_ms: int = schema.int32()


class DeleteRecordsPartitionResult(schema.Struct):
    """The result for one partition."""

    partition_index: int = schema.int32()
    low_watermark: int = schema.int64()
    """The lowest log start offset of all replicas; -1 on error."""
    error_code: int = schema.int16()


class DeleteRecordsTopicResult(schema.Struct):
    """The result for one topic."""

    name: str = schema.string()
    partitions: list[DeleteRecordsPartitionResult] = schema.array(
        DeleteRecordsPartitionResult, may_be_encoded=True
    )


class DeleteRecordsResponse(schema.Response, api_key=ApiKey.DELETE_RECORDS):
    """The new log start offsets of the partitions.

    Versions:
        1: same layout; sent before throttling, not after
    """

    throttle_time_ms: int = schema.int32()
    topics: list[DeleteRecordsTopicResult] = schema.array(
        DeleteRecordsTopicResult, may_be_encoded=True
    )
