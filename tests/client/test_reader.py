from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import DamagedRecordsError, TopicReader
from kgw.client.values import FetchedPartition
from kgw.records.builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Mapping


def batch(base_offset: int, *values: bytes, is_control: bool = False) -> bytearray:
    """Return a stored batch."""
    builder = BatchBuilder(base_offset=base_offset, is_control=is_control)
    for value in values:
        builder.add(value=value, timestamp_ms=1)
    return builder.build()


class StoredPartition:
    """Stands in for a client: answers each fetch with bytes, cut where the limit falls."""

    def __init__(self, stored: bytes | bytearray) -> None:
        self.stored = stored
        self.limits: list[int] = []

    async def fetch(
        self, topic: str, offsets: Mapping[int, int], *, partition_max_bytes: int, **_: Any
    ) -> list[FetchedPartition]:
        self.limits.append(partition_max_bytes)
        return [FetchedPartition(0, 10, 0, memoryview(self.stored)[:partition_max_bytes])]


def reader(client: StoredPartition, offset: int = 0) -> TopicReader:
    """Return a reader of this partition."""
    return TopicReader(client, "events", {0: offset})  # type: ignore[arg-type]


async def test_control_batches_are_passed_by() -> None:
    """They are no records, and reading goes on behind them."""
    stored = batch(0, b"a") + batch(1, b"marker", is_control=True) + batch(2, b"b")
    one = reader(StoredPartition(stored))
    assert [b"a", b"b"] == [found.record.value for found in await one.read()]
    assert {0: 3} == one.positions
    assert {0: 10} == one.high_watermarks


async def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    """Old servers cut an answer where its limit falls."""
    whole, cut = batch(0, b"a"), batch(1, b"b")
    one = reader(StoredPartition(whole + cut[:-3]))
    assert [b"a"] == [found.record.value for found in await one.read()]
    assert {0: 1} == one.positions
    one = reader(StoredPartition(whole + cut[:20]))
    assert [b"a"] == [found.record.value for found in await one.read()]


async def test_a_batch_larger_than_the_limit_is_asked_for_again() -> None:
    """When not even one batch comes whole, the next fetch allows twice as much."""
    client = StoredPartition(batch(0, b"x" * (3 << 20)))
    one = reader(client)
    for _ in range(2):
        assert [] == list(await one.read())
    assert [3 << 20] == [len(found.record.value or b"") for found in await one.read()]
    assert [1 << 20, 2 << 20, 4 << 20] == client.limits


async def test_damaged_batches_are_not_shown() -> None:
    """A batch that fails its CRC is an error that names its offset."""
    damaged = batch(5, b"a")
    damaged[-1] ^= 1
    with pytest.raises(DamagedRecordsError, match="the batch at offset 5 fails its CRC"):
        list(await reader(StoredPartition(damaged), 5).read())


async def test_what_is_not_used_up_is_read_again() -> None:
    """Positions move with the iterator, batch by batch."""
    one = reader(StoredPartition(batch(0, b"a") + batch(1, b"b")))
    found = await one.read()
    assert b"a" == next(found).record.value
    assert {0: 0} == one.positions
    assert b"b" == next(found).record.value
    assert {0: 1} == one.positions
