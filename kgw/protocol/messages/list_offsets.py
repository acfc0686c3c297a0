"""ListOffsets (API key 2)."""

from __future__ import annotations

from kgw.protocol import schema
from kgw.protocol.api_keys import ApiKey


class ListOffsetsPartition(schema.Struct):
    """The offset to find in one partition."""

    partition_index: int = schema.int32()
    current_leader_epoch: int = schema.int32(since=4, default=-1, ignorable=True)
    """The epoch that the client knows; -1 skips the check."""
    timestamp: int = schema.int64()
    """Milliseconds; -1 asks for the latest offset, -2 for the earliest."""
    max_num_offsets: int = schema.int32(until=0, default=1)
    """How many segment ends version 0 lists."""


class ListOffsetsTopic(schema.Struct):
    """The requested partitions of one topic."""

    name: str = schema.string()
    partitions: list[ListOffsetsPartition] = schema.array(ListOffsetsPartition)


class ListOffsetsRequest(schema.Request, api_key=ApiKey.LIST_OFFSETS):
    """Find an offset by time, or one of the ends of the log.

    Versions:
        1: one offset for each partition, no longer a list (KIP-79)
        2: isolation level (KIP-98)
        4: leader epoch, for fencing (KIP-320)
        5: same layout; OFFSET_NOT_AVAILABLE may be returned (KIP-207)
        7: timestamp -3: the record with the largest timestamp (KIP-734)
        8: timestamp -4: the start of the local log (KIP-405)
        9: timestamp -5: the end of the log in tiered storage (KIP-1005)
        10: timeout, because tiered storage is slow (KIP-1075)
        11: timestamp -6: the first offset not yet uploaded (KIP-1023)
    """

    replica_id: int = schema.int32()
    """-1 for a consumer, -2 for a debugging one."""
    isolation_level: int = schema.int8(since=2)
    """1: the latest offset is the last stable one."""
    topics: list[ListOffsetsTopic] = schema.array(ListOffsetsTopic)
    timeout_ms: int = schema.int32(since=10, ignorable=True)


class ListOffsetsPartitionResponse(schema.Struct):
    """The offset that was found in one partition."""

    partition_index: int = schema.int32()
    error_code: int = schema.int16()
    old_style_offsets: list[int] = schema.array("int64", until=0)
    """Version 0: segment ends, newest first."""
    timestamp: int = schema.int64(since=1, default=-1)
    """The timestamp of the found record; -1 if there is none, or if the request has no time."""
    offset: int = schema.int64(since=1, default=-1)
    """-1 if no record is late enough."""
    leader_epoch: int = schema.int32(since=4, default=-1)


class ListOffsetsTopicResponse(schema.Struct):
    """The offsets that were found in one topic."""

    name: str = schema.string()
    partitions: list[ListOffsetsPartitionResponse] = schema.array(
        ListOffsetsPartitionResponse, may_be_encoded=True
    )


class ListOffsetsResponse(schema.Response, api_key=ApiKey.LIST_OFFSETS):
    """The offsets that were found.

    Versions:
        1: timestamp and offset instead of a list (KIP-79)
        2: throttle time
        3: same layout; sent before throttling, not after
        4: epoch of the record (KIP-320)
    """

    throttle_time_ms: int = schema.int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = schema.array(
        ListOffsetsTopicResponse, may_be_encoded=True
    )
