"""WriteTxnMarkers (API key 27)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class WritableTxnMarkerTopic(schema.Struct):
    """The partitions of one topic."""

    name: str = schema.string()
    partition_indexes: list[int] = schema.array("int32")


class WritableTxnMarker(schema.Struct):
    """A marker and its partitions."""

    producer_id: int = schema.int64()
    producer_epoch: int = schema.int16()
    transaction_result: bool = schema.boolean()
    """True: commit."""
    topics: list[WritableTxnMarkerTopic] = schema.array(WritableTxnMarkerTopic)
    coordinator_epoch: int = schema.int32()
    transaction_version: int = schema.int8(since=2, ignorable=True)
    """0 and 1: as before KIP-890; 2: markers have raised the epoch."""


class WriteTxnMarkersRequest(schema.Request, api_key=ApiKey.WRITE_TXN_MARKERS):
    """Write commit or abort markers into partitions; from the coordinator or an administrator.

    Versions:
        1: same content, flexible (KIP-482)
        2: transaction version (KIP-1228)
    """

    markers: list[WritableTxnMarker] = schema.array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(schema.Struct):
    """The result for the marker in one partition."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()


class WritableTxnMarkerTopicResult(schema.Struct):
    """The results for the marker in one topic."""

    name: str = schema.string()
    partitions: list[WritableTxnMarkerPartitionResult] = schema.array(
        WritableTxnMarkerPartitionResult
    )


class WritableTxnMarkerResult(schema.Struct):
    """The results for one producer's marker."""

    producer_id: int = schema.int64()
    topics: list[WritableTxnMarkerTopicResult] = schema.array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(schema.Response, api_key=ApiKey.WRITE_TXN_MARKERS):
    """The result for each marker.

    Versions:
        1: same content, flexible (KIP-482)
        2: same layout
    """

    markers: list[WritableTxnMarkerResult] = schema.array(WritableTxnMarkerResult)
