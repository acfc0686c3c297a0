"""The queries and changes that a test's broker makes for the test; no fault affects them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.client import AdminClient, GroupClient, ServerRefusedError, WireReader
from kgw.client.cursor import RecordFilter
from kgw.client.partitioner import partition_for_key
from kgw.client.subscription import OffsetSubscriber
from kgw.clock import SystemClock
from kgw.errors import ErrorCode
from kgw.offsets.seeker import Seek, SeekKind
from kgw.records.builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.client import AsyncClient, GroupMember

_BATCH_BYTES = 500_000
"""Half of the default limit of a batch, max.message.bytes."""

# The most bytes that a record or header takes besides its contents.
_RECORD_BYTES = 40
_HEADER_BYTES = 12


class Record(NamedTuple):
    """A stored record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


async def delete_topic(client: AsyncClient, topic: str) -> None:
    """Delete a topic."""
    await AdminClient(client).delete_topic(topic)


async def produce(
    client: AsyncClient,
    topic: str,
    values: Sequence[bytes | None],
    key: bytes | None,
    partition: int | None,
    headers: Sequence[tuple[str, bytes | None]],
    timestamp_ms: int,
) -> list[int]:
    """Append a record for each value, in one or more batches; return their offsets."""
    if not values:
        return []
    if partition is None:
        count = len((await client.topic(topic)).partitions)
        partition = 0 if key is None else partition_for_key(key, count)

    async def append(some: Sequence[bytes | None]) -> list[int]:
        builder = BatchBuilder()
        for value in some:
            builder.add(key=key, value=value, timestamp_ms=timestamp_ms, headers=headers)
        try:
            stored = await client.produce(topic, partition, builder.build(), retry=False)
        except ServerRefusedError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE or len(some) == 1:
                raise
            # The topic has a lower limit: split the batch, as Java's producer does.
            half = len(some) // 2
            return [*await append(some[:half]), *await append(some[half:])]
        return [stored.base_offset + number for number in range(len(some))]

    rest_bytes = _RECORD_BYTES + len(key or b"")
    rest_bytes += sum(_HEADER_BYTES + len(name) + len(value or b"") for name, value in headers)
    offsets: list[int] = []
    start = size_bytes = 0
    for number, value in enumerate(values):
        record_bytes = rest_bytes + len(value or b"")
        if number > start and size_bytes + record_bytes > _BATCH_BYTES:
            offsets += await append(values[start:number])
            start, size_bytes = number, 0
        size_bytes += record_bytes
    return [*offsets, *await append(values[start:])]


async def records(
    client: AsyncClient, topic: str, partition: int | None, read_committed: bool
) -> list[Record]:
    """Return all present records, sorted by partition and offset."""
    reader = WireReader(client, await client.topic(topic), read_committed=read_committed)
    wanted = reader.partitions if partition is None else [partition]
    bounds = await client.bounds(topic, wanted, read_committed=read_committed)
    subscription = await OffsetSubscriber(reader, SystemClock()).subscribe(
        dict.fromkeys(wanted, Seek(SeekKind.RESET_TO_EARLIEST)),
        {one: RecordFilter(end_offset=bounds[one].latest) for one in wanted},
    )
    try:
        found = [
            Record(
                topic,
                one.partition,
                one.record.offset,
                one.record.timestamp_ms,
                one.record.key,
                one.record.value,
                tuple(one.record.headers),
            )
            async for one in subscription.records()
        ]
    finally:
        subscription.close()
    return sorted(found, key=lambda one: (one.partition, one.offset))


async def committed(client: AsyncClient, group_id: str) -> dict[tuple[str, int], int]:
    """Return the offsets that a group has committed, by topic and partition."""
    found = await GroupClient(client).offsets(group_id)
    return {place: one.offset for place, one in found.items()}


async def members(client: AsyncClient, group_id: str) -> tuple[GroupMember, ...]:
    """Return the members of a group; none if the group does not exist."""
    try:
        return (await GroupClient(client).describe(group_id)).members
    except ServerRefusedError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return ()
        raise


async def groups(client: AsyncClient) -> list[str]:
    """Return the ids of all groups."""
    return [one.group_id for one in await GroupClient(client).groups()]
