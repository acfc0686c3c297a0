from __future__ import annotations

import asyncio
import errno
from random import Random
from threading import Event
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded import layout
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.errors import DiskFullError, StorageError
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import make_batch
from kgw.types import PartitionKey, TopicId
from tests import patience
from tests.backend.embedded.driver import DIRECT, ROOT, SETTINGS, TOPIC
from tests.simulated_disk import CrashMode
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kgw.backend.base import PartitionLog

PARTITIONS = f"{ROOT}/{layout.PARTITIONS_DIRECTORY}"


class Disk:
    """A backend on a simulated disk, and what is asked of the disk."""

    def __init__(self) -> None:
        self.fs = SimulatedFs()
        self.backend = EmbeddedBackend(ROOT, DIRECT, fs=self.fs, state=MemoryStateStore())
        self.synced: list[str] = []
        self.failing: dict[str, int] = {}
        """The errno of syncs of a directory that fail, by its path."""

    def note(self, call: str, path: str) -> None:
        """Remember the directories that are synced; fail where that is wanted."""
        if call == "sync_directory":
            self.synced.append(path)
            if path in self.failing:
                raise OSError(self.failing[path], "as told", path)

    async def create(self, topic: int, count: int) -> list[PartitionLog]:
        """Create partitions of a topic."""
        return await self.backend.create_partitions(keys(topic, count), TOPIC, SETTINGS)


def keys(topic: int, count: int) -> Sequence[PartitionKey]:
    """Return the keys of a topic's partitions."""
    return [PartitionKey(TopicId(bytes([topic] * 16)), index) for index in range(count)]


@pytest.fixture
async def disk() -> AsyncIterator[Disk]:
    """An open backend that has nothing."""
    disk = Disk()
    await disk.backend.open()
    disk.fs.on_operation = disk.note
    yield disk
    await disk.backend.aclose()


async def test_a_created_log_survives_a_power_loss(disk: Disk) -> None:
    """All files and names of a log are durable before anybody is given it."""
    logs = await disk.create(1, 20)
    assert list(keys(1, 20)) == [log.key for log in logs]
    left = disk.fs.power_loss(Random(1), CrashMode.NOTHING)
    for key in keys(1, 20):
        names = left.listdir(f"{PARTITIONS}/{key}")
        assert {layout.PARTITION_NAME, layout.LOG_STATE_NAME} == set(names)
        assert all(left.file_size(f"{PARTITIONS}/{key}/{name}") for name in names)


async def test_the_names_of_all_are_synced_once_and_last(disk: Disk) -> None:
    """Whatever is ordered at the same time shares the sync of the directory round the logs."""
    await asyncio.gather(*(disk.create(topic, 5) for topic in range(10)))
    assert 51 == len(disk.synced)
    assert PARTITIONS == disk.synced[-1]
    assert PARTITIONS not in disk.synced[:-1]


async def test_a_log_that_cannot_be_made_fails_its_topic_alone(disk: Disk) -> None:
    """Others of the group are created; a full disk is told from a broken one."""
    disk.failing = {
        f"{PARTITIONS}/{keys(1, 3)[2]}": errno.ENOSPC,
        f"{PARTITIONS}/{keys(2, 3)[0]}": errno.EIO,
    }
    outcomes = await asyncio.gather(
        *(disk.create(topic, 3) for topic in range(4)), return_exceptions=True
    )
    assert [list, DiskFullError, StorageError, list] == [type(one) for one in outcomes]
    assert {*keys(0, 3), *keys(3, 3)} == set(disk.backend.partitions)
    disk.failing.clear()
    assert 3 == len(await disk.create(1, 3))


async def test_nothing_is_given_out_when_the_names_are_not_durable(disk: Disk) -> None:
    """A failed sync of the directory round the logs fails all of them."""
    disk.failing = {PARTITIONS: errno.EIO}
    outcomes = await asyncio.gather(disk.create(1, 1), disk.create(2, 1), return_exceptions=True)
    assert [StorageError, StorageError] == [type(one) for one in outcomes]
    assert {} == dict(disk.backend.partitions)


async def test_what_exists_is_opened(disk: Disk) -> None:
    """A log that holds records is returned with them, in the place of its key."""
    (log,) = await disk.create(1, 1)
    await log.append([make_batch([b"value"])])
    logs = await disk.create(1, 3)
    assert [log, 1, 0, 0] == [logs[0], *(one.end_offset for one in logs)]


async def test_closing_gives_up_what_waits(disk: Disk) -> None:
    """Nobody waits for ever for a backend that is gone."""
    orders = [asyncio.ensure_future(disk.create(topic, 200)) for topic in range(3)]
    await asyncio.sleep(0)
    await disk.backend.abandon()
    outcomes = await asyncio.gather(*orders, return_exceptions=True)
    assert {StorageError} == {type(one) for one in outcomes}


async def test_appends_go_on_beside_a_creation(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that writes records does not make directories."""
    (log,) = await disk.create(1, 1)
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()
    appended = Event()
    mkdir = SimulatedFs.mkdir

    def slow(fs: SimulatedFs, path: str) -> None:
        loop.call_soon_threadsafe(begun.set)
        appended.wait(patience.seconds(10))
        mkdir(fs, path)

    monkeypatch.setattr(SimulatedFs, "mkdir", slow)
    creation = asyncio.ensure_future(disk.create(2, 1))
    await begun.wait()
    await log.append([make_batch([b"value"])])
    assert not creation.done()
    appended.set()
    assert 1 == len(await creation)
