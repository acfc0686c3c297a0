"""Committed offsets where SMQ's tools look for the positions of groups."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from kgw.backend.seaweedmq.state.offset_mirror import (
    INTERVAL_S,
    OffsetMirror,
    RowChange,
    changed_positions,
    file_name,
)
from kgw.metrics import Metrics
from kgw.offsets.block import OffsetBlock
from kgw.offsets.committed import CommittedOffset
from kgw.offsets.rows import encode_row, row_key
from kgw.state.base import Change
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK, PENDING_OFFSETS
from kgw.testing.filer import CallKind, FilerStore
from kgw.types import PartitionKey, TopicId
from tests.backend.seaweedmq.state.driver import Gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

import pytest

TOPIC_ID = TopicId(bytes(range(16)))
OTHER_ID = TopicId(bytes(16))


def committed(offset: int, metadata: str = "") -> CommittedOffset:
    """Return a committed offset."""
    return CommittedOffset(offset, -1, metadata, 0, -1, 0.0)


def row(offsets: Mapping[int, int], group_id: str = "g", topic_id: TopicId = TOPIC_ID) -> Change:
    """Return the change that says where a group stands in the first partitions of a topic."""
    value = encode_row({partition: committed(offset) for partition, offset in offsets.items()})
    return Change(GROUP_OFFSETS, row_key(group_id, topic_id, (GROUP_OFFSETS, "0")), value)


def block(offsets: Mapping[int, int], group_id: str = "g") -> Change:
    """Return the change that says the same as a block."""
    partitions = b"".join(partition.to_bytes(4, "big") for partition in offsets)
    numbers = b"".join(offset.to_bytes(8, "big") for offset in offsets.values())
    one = OffsetBlock(partitions, numbers, bytes(4 * len(offsets)), "", 0, -1, 0.0)
    return Change(OFFSET_BLOCK, row_key(group_id, TOPIC_ID, one.place()), one.encode())


class Mirrored(Gateway):
    """A gateway whose state store has a mirror."""

    def __init__(self, filers: FilerStore, max_rows: int = 1_000) -> None:
        super().__init__(filers)
        self.metrics = Metrics()
        self.mirror = OffsetMirror(
            self.filer, self.clock, self.metrics, self.directory_of, max_rows=max_rows
        )
        self.store.on_commit = self.mirror.note

    @staticmethod
    async def directory_of(key: PartitionKey) -> str | None:
        """Return where a partition is: of one topic alone."""
        return f"/topics/kafka/orders/v1/{key.partition}" if key.topic_id == TOPIC_ID else None

    async def pass_s(self, seconds: float = INTERVAL_S) -> None:
        """Let time pass, and what falls due be done."""
        self.clock.advance(seconds)
        for _ in range(50):
            await asyncio.sleep(0)

    def offset(self, partition: int, group_id: str = "g") -> int | None:
        """Return what the mirror says."""
        content = self.content(partition, group_id)
        return None if content is None else int(content["value"])

    def content(self, partition: int, group_id: str = "g") -> dict[str, Any] | None:
        """Return a file of the mirror."""
        directory = f"/topics/kafka/orders/v1/{partition}/consumers"
        entry = self.filer.store.look_up(directory, f"kafka-cg-{group_id}.offset")
        return None if entry is None else json.loads(entry.content)


@pytest.fixture
async def gateway() -> AsyncIterator[Mirrored]:
    """Return an open gateway."""
    gateway = Mirrored(FilerStore())
    await gateway.open()
    yield gateway
    await gateway.mirror.aclose()
    await gateway.aclose()


async def test_a_commit_is_mirrored_as_smq_writes_positions(gateway: Mirrored) -> None:
    """Behind the commit, with the names and the type that SMQ's own groups have."""
    await gateway.store.apply([row({3: 42})])
    assert gateway.content(3) is None

    await gateway.pass_s()
    assert {
        "type": "offset",
        "value": 42,
        "offset_type": "EXACT_OFFSET",
        "committed_at": gateway.clock.wall_ms(),
        "metadata": "",
    } == gateway.content(3)
    assert {"written": 1} == gateway.metrics.mirrored_offsets


async def test_a_commit_does_not_wait_for_it(gateway: Mirrored) -> None:
    """Nor does the next one, while a position is being written."""
    gateway.filer.hold_all(CallKind.PUT)
    await gateway.store.apply([row({0: 1})])
    await gateway.pass_s()
    assert 1 == gateway.filer.count(CallKind.PUT)

    await gateway.store.apply([row({0: 2})])
    assert gateway.offset(0) is None

    gateway.filer.hold_all()
    gateway.filer.held[0].answer()
    await gateway.pass_s()
    await gateway.pass_s()
    assert 2 == gateway.offset(0)


async def test_a_position_is_written_once_a_second(gateway: Mirrored) -> None:
    """However often it is committed; and only where it has moved."""
    await gateway.store.apply([row({0: 0, 1: 7})])
    await gateway.pass_s()
    gateway.filer.calls.clear()

    for offset in range(1, 50):
        await gateway.store.apply([row({0: offset, 1: 7})])
    await gateway.pass_s(INTERVAL_S / 2)
    assert 0 == gateway.filer.count(CallKind.PUT)
    await gateway.pass_s(INTERVAL_S / 2)

    assert 1 == gateway.filer.count(CallKind.PUT)
    assert (49, 7) == (gateway.offset(0), gateway.offset(1))
    await gateway.pass_s(10)
    assert 1 == gateway.filer.count(CallKind.PUT)


async def test_what_is_gone_goes(gateway: Mirrored) -> None:
    """Offsets that were deleted or have expired leave no file."""
    await gateway.store.apply([row({0: 1, 1: 1})])
    await gateway.pass_s()
    await gateway.store.apply([row({1: 1})])
    await gateway.pass_s()
    assert (None, 1) == (gateway.offset(0), gateway.offset(1))

    await gateway.store.apply([row({})])
    await gateway.pass_s()
    assert gateway.offset(1) is None


async def test_an_offset_that_is_no_position_is_not_mirrored(gateway: Mirrored) -> None:
    """A negative one takes the place of what was mirrored: nothing is left."""
    await gateway.store.apply([row({0: 1, 1: 1})])
    await gateway.pass_s()
    await gateway.store.apply([row({0: -2, 1: 1})])
    await gateway.pass_s()
    assert (None, 1) == (gateway.offset(0), gateway.offset(1))


async def test_a_partition_that_moves_from_row_to_row_stays(gateway: Mirrored) -> None:
    """From single offsets into a block, and back."""
    single, many = row({0: 1}), block({0: 5, 1: 6})
    await gateway.store.apply([single])
    await gateway.pass_s()
    await gateway.store.apply([many, single._replace(value=None)])
    await gateway.pass_s()
    assert (5, 6) == (gateway.offset(0), gateway.offset(1))
    await gateway.store.apply([many._replace(value=None), row({0: 8, 1: 9})])
    await gateway.pass_s()
    assert (8, 9) == (gateway.offset(0), gateway.offset(1))


async def test_transactions_that_have_not_ended_are_not_mirrored(gateway: Mirrored) -> None:
    """Nor is anything else that is stored beside committed offsets."""
    pending = row({0: 1})._replace(kind=PENDING_OFFSETS)
    await gateway.store.apply([pending, Change("topic", "a", b"1")])
    await gateway.pass_s()
    assert {} == gateway.metrics.mirrored_offsets


async def test_a_partition_that_is_nowhere_is_left_out(gateway: Mirrored) -> None:
    """A topic that has been deleted gets no directory again."""
    await gateway.store.apply([row({0: 1}, topic_id=OTHER_ID), row({0: 2}, "other")])
    await gateway.pass_s()
    assert {"written": 1} == gateway.metrics.mirrored_offsets
    assert 2 == gateway.offset(0, "other")


async def test_a_filer_that_is_away_is_waited_for(gateway: Mirrored) -> None:
    """What is newest is written when it is back; failures are counted."""
    await gateway.store.apply([row({0: 1})])
    gateway.filer.fail_next(CallKind.PUT, times=2)
    await gateway.pass_s()
    await gateway.store.apply([row({0: 2})])
    await gateway.pass_s()
    assert 1 == gateway.metrics.mirror_waiting
    await gateway.pass_s()

    assert 2 == gateway.offset(0)
    assert {"failed": 2, "written": 1} == gateway.metrics.mirrored_offsets
    assert 0 == gateway.metrics.mirror_waiting


async def test_what_is_too_much_is_counted() -> None:
    """Rows beyond the bound are left out until they are committed again."""
    gateway = Mirrored(FilerStore(), max_rows=2)
    store = await gateway.open()
    await store.apply([row({0: 1}, group_id) for group_id in "abc"])
    assert {"skipped": 1} == gateway.metrics.mirrored_offsets
    await gateway.pass_s()
    assert {"skipped": 1, "written": 2} == gateway.metrics.mirrored_offsets
    await store.apply([row({0: 2}, "c")])
    await gateway.mirror.aclose()
    assert 2 == gateway.offset(0, "c")
    await gateway.aclose()


async def test_a_stop_writes_what_waits(gateway: Mirrored) -> None:
    """Unless the filer takes too long for it."""
    await gateway.store.apply([row({0: 1})])
    await gateway.mirror.aclose()
    assert 1 == gateway.offset(0)

    other = Mirrored(gateway.filer.store)
    store = await other.open()
    await store.apply([row({0: 2})])
    other.filer.hold_all(CallKind.PUT)
    closing = asyncio.ensure_future(other.mirror.aclose())
    await other.pass_s(1)
    assert not closing.done()
    await other.pass_s(10)
    await closing
    await other.aclose()


async def test_a_gateway_that_was_replaced_writes_nothing(gateway: Mirrored) -> None:
    """Its successor's positions are newer."""
    await gateway.store.apply([row({0: 1})])
    gateway.mirror.stop()
    await gateway.pass_s()
    await gateway.store.apply([row({0: 2})])
    await gateway.mirror.aclose()
    assert gateway.offset(0) is None


def test_any_group_has_a_file_unless_its_name_is_too_long() -> None:
    """What a file's name cannot hold is written as in a URL."""
    assert "kafka-cg-my.group-1_x.offset" == file_name("my.group-1_x")
    assert "kafka-cg-a%2Fb%00%D1%8F.offset" == file_name("a/b\0я")
    assert "kafka-cg-.offset" == file_name("")
    assert file_name("x" * 239) is not None
    assert file_name("x" * 240) is None


def test_a_row_that_cannot_be_read_says_nothing() -> None:
    """The groups report it when they are loaded."""
    place = (GROUP_OFFSETS, row({0: 1}).key)
    after = row({0: 1}).value
    key = PartitionKey(TOPIC_ID, 0)
    changed = changed_positions({place: RowChange(b"nonsense", after)})
    assert [key] == list(changed)
    assert {key: None} == changed_positions({place: RowChange(after, b"nonsense")})
