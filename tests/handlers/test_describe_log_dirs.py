from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.base import DiskRoom
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.memory import MemoryBackend
from kgw.protocol.api_keys import ApiKey
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import batch, call, call_in_turns, create_topic, produce

if TYPE_CHECKING:
    from pathlib import Path


def sizes(response: Any) -> dict[tuple[str, int], int]:
    """Return the size of each partition in an answer."""
    return {
        (topic.name, one.partition_index): one.partition_size
        for result in response.results
        for topic in result.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(6))
async def test_sizes_are_those_of_the_records(gateway: InProcessGateway, version: int) -> None:
    """By partition: what was produced to it, and nothing where nothing was."""
    await create_topic(gateway, "orders", 2)
    await create_topic(gateway, "empty")
    records = [batch(b"a"), batch(b"longer", b"and more")]
    for one in records:
        await produce(gateway, bytearray(one), index=1)
    response = await call(gateway, ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
    assert {
        ("orders", 0): 0,
        ("orders", 1): sum(map(len, records)),
        ("empty", 0): 0,
    } == sizes(response)
    assert ["memory"] == [one.log_dir for one in response.results]


async def test_what_is_named_is_described(gateway: InProcessGateway) -> None:
    """Once, however often it is named; what does not exist is left out."""
    await create_topic(gateway, "orders", 3)
    await create_topic(gateway, "empty")
    named = [("orders", [2, 0, 2, 7]), ("orders", [2]), ("missing", [0]), ("empty", [])]
    topics = [{"topic": topic, "partitions": partitions} for topic, partitions in named]
    response = await call(gateway, ApiKey.DESCRIBE_LOG_DIRS, 4, topics=topics)
    assert [("orders", [0, 2])] == [
        (one.name, sorted(partition.partition_index for partition in one.partitions))
        for one in response.results[0].topics
    ]


class SizedBackend(MemoryBackend):
    """A backend on a disk of 10,000 bytes, of which some are free and 300 are kept in reserve."""

    def __init__(self, free_bytes: int) -> None:
        super().__init__()
        self._free_bytes = free_bytes

    async def disk_room(self) -> DiskRoom:
        return DiskRoom(self._free_bytes, reserve_bytes=300, total_bytes=10_000)


@pytest.mark.parametrize(("free_bytes", "usable_bytes"), [(1_000, 700), (300, 0), (10, 0)])
async def test_usable_is_what_is_free_above_the_reserve(free_bytes: int, usable_bytes: int) -> None:
    """Who watches it sees 0 when appends are refused, not the reserve for ever."""
    async with InProcessGateway(backend=SizedBackend(free_bytes)) as gateway:
        response = await call(gateway, ApiKey.DESCRIBE_LOG_DIRS, 4, topics=[])
        (directory,) = response.results
        assert (10_000, usable_bytes) == (directory.total_bytes, directory.usable_bytes)


async def test_a_disk_that_does_not_say_is_unknown(gateway: InProcessGateway) -> None:
    """As in memory, or in a SeaweedFS: partitions are described all the same."""
    await create_topic(gateway)
    response = await call(gateway, ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    assert {("orders", 0): 0} == sizes(response)
    assert (-1, -1) == (response.results[0].total_bytes, response.results[0].usable_bytes)


async def test_a_real_directory(tmp_path: Path) -> None:
    """Its absolute path, and no more to use than there is."""
    async with InProcessGateway(backend=EmbeddedBackend(tmp_path / "data")) as gateway:
        response = await call(gateway, ApiKey.DESCRIBE_LOG_DIRS, 5, topics=None)
        (directory,) = response.results
        assert str(tmp_path / "data") == directory.log_dir
        assert 0 <= directory.usable_bytes < directory.total_bytes
        assert not directory.is_cordoned


async def test_many_partitions_let_others_have_their_turns(backend: MemoryBackend) -> None:
    """Some are described in each turn of the loop."""
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway, "orders", 3_000)
        response = await call_in_turns(gateway, ApiKey.DESCRIBE_LOG_DIRS, 4, least=5, topics=None)
        assert 3_000 == len(sizes(response))
