"""WriteTxnMarkers (API key 27)."""

from __future__ import annotations

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
    string,
)


class WritableTxnMarkerTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array("int32")


class WritableTxnMarker(Struct):
    """A marker and where it goes."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    """True: commit."""
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, ignorable=True)
    """0 and 1: as before KIP-890; 2: markers have raised the epoch."""


class WriteTxnMarkersRequest(Request):
    """Write commit or abort markers into partitions; from the coordinator or an administrator.

    Versions:
        1: same content, flexible (KIP-482)
        2: transaction version (KIP-1228)
    """

    api_key = ApiKey.WRITE_TXN_MARKERS
    valid_versions = (0, 2)
    flexible_since = 1

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """What became of it in one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    """What became of it in one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """What became of one producer's marker."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Response):
    """What became of each marker.

    Versions:
        1: same content, flexible (KIP-482)
        2: same layout
    """

    api_key = ApiKey.WRITE_TXN_MARKERS
    valid_versions = (0, 2)
    flexible_since = 1

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
