"""ListOffsets (API key 2)."""

from __future__ import annotations

from kgw.protocol.api_keys import ApiKey
from kgw.protocol.schema import Request, Response, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    """What to find in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1, ignorable=True)
    """The epoch that the client knows; -1 skips the check."""
    timestamp: int = int64()
    """Milliseconds; -1 asks for the latest offset, -2 for the earliest."""
    max_num_offsets: int = int32(until=0, default=1)
    """How many segment ends version 0 lists."""


class ListOffsetsTopic(Struct):
    """The partitions asked about of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request):
    """Find an offset by time, or one of the ends of the log.

    Versions:
        1: one offset for each partition, no longer a list (KIP-79)
        2: isolation level (KIP-98)
        4: leader epoch, for fencing (KIP-320)
        5: same layout; OFFSET_NOT_AVAILABLE may come back (KIP-207)
        7: timestamp -3: the record with the largest timestamp (KIP-734)
        8: timestamp -4: where the local log begins (KIP-405)
        9: timestamp -5: the end of what is in tiered storage (KIP-1005)
        10: timeout, because tiered storage is slow (KIP-1075)
        11: timestamp -6: the first offset not yet uploaded (KIP-1023)
    """

    api_key = ApiKey.LIST_OFFSETS
    valid_versions = (0, 11)
    flexible_since = 6

    replica_id: int = int32()
    """-1 for a consumer, -2 for a debugging one."""
    isolation_level: int = int8(since=2)
    """1: the latest offset is the last stable one."""
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """What was found in one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array("int64", until=0)
    """Version 0: segment ends, newest first."""
    timestamp: int = int64(since=1, default=-1)
    """Of the record found; -1 if none, or not asked by time."""
    offset: int = int64(since=1, default=-1)
    """-1 if no record is late enough."""
    leader_epoch: int = int32(since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    """What was found in one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(
        ListOffsetsPartitionResponse, may_be_encoded=True
    )


class ListOffsetsResponse(Response):
    """The offsets that were found.

    Versions:
        1: timestamp and offset take the place of a list (KIP-79)
        2: throttle time
        3: same layout; sent before throttling, not after
        4: epoch of the record (KIP-320)
    """

    api_key = ApiKey.LIST_OFFSETS
    valid_versions = (0, 11)
    flexible_since = 6

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, may_be_encoded=True)
