"""DeleteRecords (API key 21)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class DeleteRecordsPartition(Struct):
    """What to delete of one partition."""

    partition_index: int = int32()
    offset: int = int64()
    """The first one to keep; -1: delete up to the high watermark."""


class DeleteRecordsTopic(Struct):
    """What to delete of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Request):
    """Delete the records below an offset (KIP-107).

    Versions:
        1: same layout; the answer is sent before throttling
    """

    api_key = ApiKey.DELETE_RECORDS
    valid_versions = (0, 2)
    flexible_since = 2

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Struct):
    """What became of one partition."""

    partition_index: int = int32()
    low_watermark: int = int64()
    """The lowest log start offset of all replicas; -1 on error."""
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    """What became of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(
        DeleteRecordsPartitionResult, may_be_encoded=True
    )


class DeleteRecordsResponse(Response):
    """Where the partitions begin now.

    Versions:
        1: same layout; sent before throttling, not after
    """

    api_key = ApiKey.DELETE_RECORDS
    valid_versions = (0, 2)
    flexible_since = 2

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, may_be_encoded=True)
