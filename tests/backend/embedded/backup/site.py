"""A data directory with a topic, its backups, and what both hold."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.backend.base import LogSettings
from kgw.backend.embedded import layout
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.backup.backup_directory import BackupDirectory
from kgw.backend.embedded.backup.restoring import restore_backup
from kgw.backend.embedded.backup.taking import Tools, Wishes, take_backup
from kgw.backend.embedded.backup.verifying import verify_backup
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.partition_log import EmbeddedPartitionLog
from kgw.offsets.committed import CommittedOffset
from kgw.offsets.rows import encode_row, row_key
from kgw.partitions.topics.topic import TopicRow
from kgw.state.base import Change
from kgw.state.kinds import CLUSTER, GROUP_OFFSETS
from kgw.state.kinds import TOPIC as TOPIC_KIND
from kgw.testing.batches import make_batch, read_stored
from kgw.types import PartitionKey, TopicId, TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.append import AppendResult
    from kgw.backend.base import PartitionLog
    from kgw.backend.embedded.backup.manifest import Manifest
    from kgw.backend.embedded.backup.restoring import Restored
    from kgw.backend.embedded.backup.taking import BackupResult

TOPIC = TopicName("orders")
TOPIC_ID = TopicId(bytes(range(16)))
CLUSTER_ID = "a-cluster"
SETTINGS = LogSettings(segment_bytes=1_000, index_interval_bytes=100)
LINKS = Wishes()
OPTIONS = EmbeddedOptions(min_free_bytes=0, journal_bytes=256 << 10)


class Clock:
    """Time that a backup is given; sleeping makes it pass."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0
        self.slept_s = 0.0
        self.read_bytes = 0
        self.when_sleeping: Callable[[], None] = lambda: None

    def time_s(self) -> float:
        """Return the time on every clock."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds
        self.slept_s += seconds
        self.when_sleeping()

    def _count(self, size_bytes: int) -> None:
        self.read_bytes += size_bytes

    @property
    def tools(self) -> Tools:
        """What a backup is given."""
        return Tools(lambda _: nullcontext(self._count), self.time_s, self.time_s, self.sleep)


def key(partition: int) -> PartitionKey:
    """Return the key of a partition."""
    return PartitionKey(TOPIC_ID, partition)


class Site:
    """A data directory, open or not, and a place of backups."""

    def __init__(self, path: Path, partitions: int = 2) -> None:
        self.path = path
        self.data_dir = path / "data"
        self.place = BackupDirectory(str(path / "place"))
        self.partitions = partitions
        self.clock = Clock()
        self.backend = EmbeddedBackend(self.data_dir, OPTIONS)

    async def create(self) -> None:
        """Open a new directory and make its topic."""
        await self.backend.open()
        keys = [key(number) for number in range(self.partitions)]
        await self.backend.create_partitions(keys, TOPIC, SETTINGS)
        await self.backend.state.apply(
            [
                Change(CLUSTER, CLUSTER, json.dumps({"cluster_id": CLUSTER_ID}).encode()),
                Change(TOPIC_KIND, *_topic_row(self.partitions)),
                Change("producer-ids", "next", b"1000"),
            ]
        )

    async def open(self) -> None:
        """Open the directory again, with its partitions."""
        await self.backend.open()
        for number in range(self.partitions):
            await self.backend.open_partition(key(number), TOPIC, SETTINGS)

    def log(self, partition: int = 0) -> PartitionLog:
        """Return an open partition."""
        return self.backend.partitions[key(partition)]

    def segmented(self) -> EmbeddedPartitionLog:
        """Return the first partition as one that is kept in segments."""
        log = self.log()
        assert isinstance(log, EmbeddedPartitionLog)
        return log

    async def append(self, *values: bytes, partition: int = 0) -> AppendResult:
        """Append a batch and return where it is, once it is answered."""
        return await self.log(partition).append([make_batch(values)])

    async def fill(self, batches: int, partition: int = 0) -> list[bytes]:
        """Append batches of a hundred bytes' value; return all values of the partition."""
        for number in range(batches):
            await self.append(b"%04d" % number + bytes(100), partition=partition)
        return await self.values(partition)

    async def values(self, partition: int = 0) -> list[bytes]:
        """Return all values of an open partition, and see that their offsets are dense."""
        return list((await self.records(partition)).values())

    async def records(self, partition: int = 0) -> dict[int, bytes]:
        """Return the values of an open partition by their offsets."""
        log = self.log(partition)
        found: dict[int, bytes] = {}
        at = log.log_start_offset
        while at < log.high_watermark:
            result = await log.read(at, 1 << 20, log.high_watermark)
            found |= {one.offset: one.value or b"" for one in read_stored(result.buffers)}
            at = result.next_offset
        return found

    async def commit(self, group_id: str, offset: int, partition: int = 0) -> None:
        """Commit an offset of a group, as a coordinator stores it."""
        row = encode_row({partition: CommittedOffset(offset, -1, "", 0, -1, 0.0)})
        place = (GROUP_OFFSETS, "0")
        await self.backend.state.apply(
            [Change(GROUP_OFFSETS, row_key(group_id, TOPIC_ID, place), row)]
        )

    def take_now(self, wishes: Wishes = LINKS) -> BackupResult:
        """Make a backup: not from the event loop that serves the directory."""
        self.clock.now_s += 1
        return take_backup(str(self.data_dir), self.place.path, wishes, self.clock.tools)

    async def take(self, wishes: Wishes = LINKS) -> BackupResult:
        """Make a backup beside whoever serves the directory."""
        return await asyncio.to_thread(self.take_now, wishes)

    async def verify(self) -> list[str]:
        """Return what is wrong with the backups: name below the place, and what it is."""
        return await asyncio.to_thread(self.verify_now)

    def verify_now(self) -> list[str]:
        """Return what `verify` does."""
        found = []
        known: dict[tuple[int, int], str] = {}
        for entry in self.place.entries():
            if entry.manifest is None:
                found.append(f"{entry.name}: {entry.problem}")
                continue
            problems = verify_backup(self.place, entry.manifest, 0, self.clock.tools, known)
            found += [
                f"{Path(one.path).relative_to(self.place.path)}: {one.detail}" for one in problems
            ]
        return found

    async def restore(self, name: str | None = None, to: str = "restored") -> Site:
        """Restore a backup and return the site of the new directory, which is not open."""
        restored = Site(self.path, self.partitions)
        restored.data_dir = self.path / to
        restored.backend = EmbeddedBackend(restored.data_dir, OPTIONS)
        await asyncio.to_thread(self.restore_now, name, to)
        return restored

    async def restored_values(self) -> list[bytes]:
        """Restore the newest backup, open it, and return all values of its first partition."""
        restored = await self.restore()
        await restored.open()
        values = await restored.values()
        await restored.backend.aclose()
        return values

    def restore_now(self, name: str | None = None, to: str = "restored") -> Restored:
        """Restore a backup."""
        manifest = self.place.find(name)
        return restore_backup(self.place, manifest, str(self.path / to), 0, self.clock.tools)

    async def manifest(self, name: str | None = None) -> Manifest:
        """Return the manifest of a backup, the newest without a name."""
        return await asyncio.to_thread(self.place.find, name)

    async def entries(self) -> dict[str, str | None]:
        """Return the names in the place, with what is wrong with each."""
        found = await asyncio.to_thread(self.place.entries)
        return {one.name: one.problem for one in found}

    def files(self, name: str) -> list[Path]:
        """Return all files of a backup."""
        return sorted(one for one in Path(self.place.backup_path(name)).rglob("*") if one.is_file())


def _topic_row(partitions: int) -> tuple[str, bytes]:
    row = TopicRow(TOPIC, TOPIC_ID, partitions, {})
    return row.key, row.encode()


def segments_of(site: Site, partition: int = 0) -> Sequence[int]:
    """Return the base offsets of the segments of a partition, as they are on the disk."""
    names = [one.name for one in (site.data_dir / f"partitions/{key(partition)}").iterdir()]
    return layout.segment_bases(names)
