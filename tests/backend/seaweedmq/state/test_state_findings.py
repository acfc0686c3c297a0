"""What `kgw doctor` says of the state, and of the mirror of committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.offline.findings import Severity
from kgw.backend.seaweedmq.offline.state_findings import (
    examine_mirror,
    examine_state,
    read_position,
)
from kgw.backend.seaweedmq.state.offset_mirror import Position
from kgw.backend.seaweedmq.topics.directories import TopicPlace
from kgw.state.base import Change
from kgw.testing.filer import FilerStore
from kgw.types import TopicName
from tests.backend.seaweedmq.state.driver import SNAPSHOTS, Gateway
from tests.backend.seaweedmq.state.test_offset_mirror import TOPIC_ID, Mirrored, block, row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.types import PartitionKey


PLACE = TopicPlace(TopicName("orders"), "/topics/kafka/orders", "v1", 0)


class Placed(Mirrored):
    """A gateway with the directories of a real one."""

    @staticmethod
    async def directory_of(key: PartitionKey) -> str | None:
        """Return where a partition is."""
        return PLACE.partition(key.partition)


@pytest.fixture
async def gateway() -> AsyncIterator[Mirrored]:
    """Return an open gateway."""
    gateway = Placed(FilerStore())
    await gateway.open()
    yield gateway
    await gateway.mirror.aclose()
    await gateway.aclose()


async def mirror_detail(gateway: Mirrored) -> str:
    """Return what is said of the mirror beside a gateway."""
    table = (await examine_state(gateway.filer, "kafka")).table
    assert table is not None
    return (await examine_mirror(gateway.filer, {TOPIC_ID: [PLACE]}, table)).detail


async def test_the_state_is_read_beside_its_gateway() -> None:
    """All of it, from a snapshot and the commits since; the gateway writes on."""
    gateway = Gateway(FilerStore())
    store = await gateway.open()
    for number in range(60):
        await store.apply([Change("group", str(number % 7), b"%d" % number)])
    found = await examine_state(gateway.filer, "kafka")
    await store.apply([Change("group", "more", b"1")])

    assert found.table is not None
    assert {key: one.value for key, one in found.table.load("group").items()} == {
        str(number % 7): b"%d" % number for number in range(53, 60)
    }
    assert Severity.OK is found.finding.severity
    assert "/topics/.kgw/kafka/state: 7 rows, 60 commits, " in found.finding.detail
    assert " 60 of them" not in found.finding.detail
    await gateway.aclose()


async def test_a_damaged_state_is_a_problem() -> None:
    """Which names the file; there is nothing to compare the mirror with."""
    gateway = Gateway(FilerStore())
    store = await gateway.open()
    for number in range(60):
        await store.apply([Change("group", str(number % 7), b"%d" % number)])
    async for entry in gateway.filer.list_entries(SNAPSHOTS):
        await gateway.filer.delete(SNAPSHOTS, entry.name)
    finding, table = await examine_state(gateway.filer, "kafka")
    await gateway.aclose()

    assert (Severity.PROBLEM, None) == (finding.severity, table)
    assert f"{SNAPSHOTS}/" in finding.detail
    assert " is gone; see Damage" in finding.detail


async def test_the_mirror_is_behind_until_it_is_written(gateway: Mirrored) -> None:
    """By the positions that differ, those without a file included."""
    await gateway.store.apply([row({3: 42, 4: 1}), block({0: 7, 1: 8}, "other/group")])
    assert (await mirror_detail(gateway)).startswith("4 committed offsets, 4 of them not")
    await gateway.pass_s()
    assert await mirror_detail(gateway) == "4 committed offsets, 0 of them not what their file says"

    await gateway.store.apply([row({3: 43, 4: 1})])
    assert (await mirror_detail(gateway)).startswith("4 committed offsets, 1 of them not")


async def test_what_has_no_file_is_not_behind(gateway: Mirrored) -> None:
    """Groups whose name is too long for one, and partitions that are nowhere."""
    await gateway.store.apply([row({3: 42}, "g" * 300)])
    assert (await mirror_detail(gateway)).startswith("0 committed offsets, 0 of them")
    table = (await examine_state(gateway.filer, "kafka")).table
    assert table is not None
    await gateway.store.apply([row({3: 42})])
    finding = await examine_mirror(gateway.filer, {}, table)
    assert finding.detail.startswith("0 committed offsets")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"value": "x", "metadata": ""}'])
def test_a_file_that_says_nothing(content: bytes) -> None:
    """Somebody else has written it, or nobody."""
    assert read_position(content) is None
    assert Position(4, "m") == read_position(b'{"value": 4, "metadata": "m"}')
