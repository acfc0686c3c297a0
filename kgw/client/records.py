"""WireReader: reads a topic of any Kafka server, for seeks and subscriptions."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING

from kgw.client.groups import GroupClient
from kgw.client.values import MAX_TIMESTAMP
from kgw.errors import ErrorCode, KafkaError, KgwError
from kgw.offsets.ranges import DamagedRangeError, OffsetBounds, SeekOutOfRangeError
from kgw.offsets.reader import (
    Answers,
    FoundRecord,
    PartitionBatches,
    RecordReader,
    timestamp_ms_at,
)
from kgw.records.aborted import aborted_batches
from kgw.records.batch import HEADER_BYTES, PREFIX_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kgw.client.client import AsyncClient
    from kgw.client.values import FetchedPartition, TopicDescription

_WAIT_MS = 500
"""Short, because a cancelled long poll blocks its connection until it ends."""
PROBES = 1024
"""How many offsets are tried to find the end of damage."""
_PROBES_AT_ONCE = 16
_FIRST_PARTITION_BYTES = 1 << 20
_OFFSETS = Struct(">q15xi")
"""The base offset and last offset delta in a batch header."""
_TOLD = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE})
"""Errors that concern one offset: they are not retried, and other partitions are still read."""


class WireReader(RecordReader):
    """Reads one topic through a client. Every method raises ClientError."""

    def __init__(
        self,
        client: AsyncClient,
        topic: TopicDescription,
        *,
        probes: int = PROBES,
        read_committed: bool = False,
    ) -> None:
        """Read `topic`; try up to `probes` offsets to find the end of damage.

        With `read_committed`, read up to the first open transaction, without aborted records.
        """
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.partitions = [one.partition for one in topic.partitions]
        self._client = client
        self._partition_bytes = _FIRST_PARTITION_BYTES
        self._probes = probes
        self._read_committed = read_committed

    async def bounds(self, partitions: Collection[int]) -> Answers[OffsetBounds]:
        return dict(
            await self._client.bounds(self.topic, partitions, read_committed=self._read_committed)
        )

    async def find_by_time(self, times_ns: Mapping[int, int]) -> Answers[FoundRecord | None]:
        return await self._find(
            # Negative times have special meanings in ListOffsets.
            {partition: max(0, timestamp_ms_at(ts_ns)) for partition, ts_ns in times_ns.items()}
        )

    async def find_newest(self, partitions: Collection[int]) -> Answers[FoundRecord | None]:
        return await self._find(dict.fromkeys(partitions, MAX_TIMESTAMP))

    async def _find(self, timestamps_ms: Mapping[int, int]) -> Answers[FoundRecord | None]:
        found = await self._client.list_offsets(
            self.topic, timestamps_ms, read_committed=self._read_committed
        )
        return {one: None if at.offset < 0 else at for one, at in found.items()}

    async def read(
        self, positions: Mapping[int, int], *, max_bytes: int, max_wait_ms: int
    ) -> Answers[PartitionBatches]:
        """Like `RecordReader.read`, but wait at most 0.5 s; also find the end of damage."""
        fetched = await self._client.fetch(
            self.topic,
            positions,
            max_wait_ms=min(max_wait_ms, _WAIT_MS),
            max_bytes=max_bytes,
            partition_max_bytes=self._partition_bytes,
            told=_TOLD,
            read_committed=self._read_committed,
        )
        answers: Answers[PartitionBatches] = {}
        for one in fetched:
            answer = await self._answer(one, positions[one.partition])
            if answer is not None:
                answers[one.partition] = answer
        return answers

    async def _answer(
        self, fetched: FetchedPartition, position: int
    ) -> PartitionBatches | KgwError | None:
        """Return a partition's batches or error; None if the response has no complete batch."""
        partition = fetched.partition
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            bounds = (await self.bounds([partition]))[partition]
            if isinstance(bounds, KgwError):
                return bounds
            return SeekOutOfRangeError(partition, position, bounds)
        if fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
            end_offset = await end_of_damage(
                self._client, self.topic, partition, position + 1, probes=self._probes - 1
            )
            return DamagedRangeError(
                partition, position, end_offset, "the server answers CORRUPT_MESSAGE"
            )
        records = fetched.records
        whole_bytes, _ = whole_batches(records)
        if not whole_bytes and _is_no_batch(records):
            return DamagedRangeError(partition, position, None, "the batch there has no length")
        if records and not whole_bytes:
            # The server cut the response at the byte limit, within the first batch. Its records
            # must not be skipped: allow more bytes in the next read.
            self._partition_bytes *= 2
            return None
        end = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
        whole = records[:whole_bytes]
        return PartitionBatches(
            [whole] if whole_bytes else [],
            OffsetBounds(fetched.log_start_offset, end),
            aborted_batches([whole], fetched.aborted) if fetched.aborted else frozenset(),
        )


class GroupPosition:
    """A group's committed offsets in a topic, for seeks to the committed position."""

    def __init__(self, client: AsyncClient, group_id: str, topic: str) -> None:
        self._groups = GroupClient(client)
        self._group_id = group_id
        self._topic = topic

    async def committed(self, partitions: Collection[int]) -> Answers[int | None]:
        """Return the committed offsets; for a damaged one, an error."""
        offsets = await self._groups.offsets(self._group_id)
        answers: Answers[int | None] = {}
        for partition in partitions:
            one = offsets.get((self._topic, partition))
            if one is not None and one.is_damaged:
                answers[partition] = KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"what group {self._group_id} has committed of partition {partition} is "
                    "damaged",
                )
            else:
                answers[partition] = None if one is None else one.offset
        return answers


def _is_no_batch(records: memoryview) -> bool:
    """Return whether the length field is too small; an incomplete batch has a valid length."""
    length = int.from_bytes(records[8:PREFIX_BYTES], "big", signed=True)
    return len(records) >= PREFIX_BYTES and length < HEADER_BYTES - PREFIX_BYTES


async def end_of_damage(
    client: AsyncClient, topic: str, partition: int, first: int, *, probes: int = PROBES
) -> int | None:
    """Return the first offset, from `first` on, that is not damaged; None after `probes` offsets.

    Kafka reports the same error for every offset of a damaged batch, without the batch's end, so
    offsets are tried in turn, several at a time.
    """

    async def is_damaged(probed_offset: int) -> bool:
        probed = await client.fetch(
            topic,
            {partition: probed_offset},
            max_wait_ms=0,
            partition_max_bytes=1,
            told=_TOLD,
        )
        return any(one.error_code == ErrorCode.CORRUPT_MESSAGE for one in probed)

    end = first + probes
    # Try one offset first: most batches are small.
    count = 1
    at = first
    while at < end:
        probing = range(at, min(at + count, end))
        for probed_offset, damaged in zip(
            probing, await asyncio.gather(*map(is_damaged, probing)), strict=True
        ):
            if not damaged:
                return probed_offset
        at = probing.stop
        count = _PROBES_AT_ONCE
    return None


def whole_batches(records: memoryview, *, end_offset: int | None = None) -> tuple[int, int]:
    """Return the size of the complete batches, and the offset after the last one.

    The offset is -1 without a complete batch. Batches from `end_offset` on are left out. Reads only
    lengths and offsets.
    """
    position, last = 0, -1
    while len(records) - position >= HEADER_BYTES:
        length = int.from_bytes(records[position + 8 : position + PREFIX_BYTES], "big", signed=True)
        end = position + PREFIX_BYTES + length
        if end > len(records) or length < HEADER_BYTES - PREFIX_BYTES:
            break
        if end_offset is not None and _OFFSETS.unpack_from(records, position)[0] >= end_offset:
            break
        last, position = position, end
    if last < 0:
        return 0, -1
    base_offset, last_offset_delta = _OFFSETS.unpack_from(records, last)
    return position, base_offset + last_offset_delta + 1
