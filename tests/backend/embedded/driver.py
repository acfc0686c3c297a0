"""A store on a simulated disk, with the steps that tests tell their stories in."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from kgw.backend.base import LogSettings
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.offline.check import check_directory
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.read import reading
from kgw.backend.embedded.recover.rebuilding import rebuild_side
from kgw.backend.embedded.store import Store
from kgw.backend.embedded.write.segment_syncs import sync_segments
from kgw.state.memory import MemoryStateStore
from kgw.testing.batches import make_batch, read_stored
from kgw.types import PartitionKey, TopicId, TopicName
from tests.simulated_disk import CrashMode
from tests.simulated_fs import Fault, SimulatedFs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from os import PathLike

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.write.write_path import DiskAppend, WritePath
    from kgw.offsets.recovery import Checkpoint

ROOT = "/data"
TOPIC = TopicName("orders")
KEY = PartitionKey(TopicId(bytes(range(16))), 0)
OTHER_KEY = PartitionKey(TopicId(bytes(range(16))), 1)
JOURNALED = EmbeddedOptions(journal_bytes=256 << 10, min_free_bytes=0)
DIRECT = EmbeddedOptions(journal_append_bytes=0, min_free_bytes=0)
SETTINGS = LogSettings()
RELAXED = LogSettings(is_relaxed=True)
SMALL_SEGMENTS = LogSettings(segment_bytes=400, index_interval_bytes=100)


class Driver:
    """A store, its disk, and the checkpoints that a state store would hold."""

    def __init__(
        self,
        options: EmbeddedOptions = DIRECT,
        settings: LogSettings = SETTINGS,
        fs: SimulatedFs | None = None,
    ) -> None:
        self.options = options
        self.settings = settings
        self.fs = fs or SimulatedFs()
        if fs is None:
            self.fs.make_directory_durably(ROOT)
        self.checkpoints: dict[PartitionKey, Checkpoint] = {}
        self.store = self._open_store()

    def _open_store(self) -> Store:
        store = Store(self.fs, ROOT, self.options)
        store.open()
        store.prepare_journal()
        return store

    def log(self, key: PartitionKey = KEY) -> SegmentedLog:
        """Open a partition, or create it when there is none."""
        if self.fs.is_directory(self.store.directory.partition_path(key)):
            checkpoint = self.checkpoints.get(key)
            return self.store.open_log(key, TOPIC, self.settings, checkpoint)
        return self.store.create_log(key, TOPIC, self.settings)

    def append(self, *values: bytes, key: PartitionKey = KEY, timestamp_ms: int = 0) -> DiskAppend:
        """Append one batch and flush it."""
        append = self.submit(*values, key=key, timestamp_ms=timestamp_ms)
        flush_group(self.store.writes)
        return append

    def submit(self, *values: bytes, key: PartitionKey = KEY, timestamp_ms: int = 0) -> DiskAppend:
        """Queue one batch."""
        batch = make_batch(values, timestamps_ms=[timestamp_ms] * len(values))
        return self.store.writes.submit(self.log(key), [batch])

    def flush(self, key: PartitionKey = KEY) -> None:
        """Sync what a relaxed partition has answered, as the timer does."""
        relaxed = self.store.writes.relaxed
        flushes = relaxed.begin_flush([self.log(key)])
        outcomes = sync_segments([flush.mark.segment for flush in flushes])
        for log, end_offset in relaxed.finish_flush(flushes, outcomes):
            log.offsets.advance_durable(end_offset)

    def values(self, key: PartitionKey = KEY, *, max_bytes: int = 1 << 20) -> list[bytes]:
        """Return what a consumer reads from the start to the end. Raises CorruptionError."""
        log = self.log(key)
        offset = log.offsets.log_start_offset
        end = log.offsets.high_watermark
        values: list[bytes] = []
        while offset < end:
            try:
                result = reading.read(log, offset, max_bytes, end)
            except SideFileDamagedError as error:
                rebuild_side(log.directory, log, error.segment, error)
                continue
            if not result.buffers:
                break
            stored = read_stored(result.buffers)
            values += [record.value for record in stored if record.offset >= offset]
            offset = result.next_offset
        return values

    def checkpoint(self) -> None:
        """Make a checkpoint and keep its rows."""
        self._keep(self.store.checkpoint())

    def _keep(self, checkpoints: list[Checkpoint]) -> None:
        for checkpoint in checkpoints:
            key = PartitionKey(checkpoint.topic_id, checkpoint.partition)
            self.checkpoints[key] = checkpoint

    def stop(self) -> None:
        """Stop in order and start again."""
        self.stop_only()
        self.start()

    def stop_only(self) -> None:
        """Stop in order."""
        self._keep(self.store.close())
        self.store.mark_clean()

    def start(self) -> None:
        """Start on what is there. Raises DataDirectoryError."""
        self.store = self._open_store()

    def kill(self) -> None:
        """Stop as SIGKILL does: what was written is there, synced or not."""
        self.store.abandon()
        self.store = self._open_store()

    def lose_notes(self) -> None:
        """Start on a log of which nothing but the batches is left."""
        self.store.abandon()
        for name in self.fs.listdir(self.path("")[:-1]):
            if name.endswith((".checksums", ".json", ".index", ".timeindex")):
                self.fs.unlink(self.path(name))
        self.checkpoints.clear()
        self.store = self._open_store()

    def lose_power(self, mode: CrashMode = CrashMode.NOTHING, seed: int = 0) -> None:
        """Stop as a power loss does; with NOTHING, only what was synced survives."""
        self.fs = self.fs.power_loss(Random(seed), mode)
        self.store = self._open_store()

    @contextmanager
    def noting(self, *calls: str, suffix: str = "") -> Iterator[list[str]]:
        """Note the paths of what is done to the disk meanwhile: of calls of these kinds."""
        noted: list[str] = []

        def note(call: str, path: str) -> None:
            if call in calls and path.endswith(suffix):
                noted.append(path)

        self.fs.on_operation = note
        yield noted
        self.fs.on_operation = None

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Have the disk fail meanwhile."""
        self.fs.inject(fault)
        yield
        self.fs.inject(None)

    def path(self, name: str, key: PartitionKey = KEY) -> str:
        """Return the path of a file of a partition."""
        return f"{self.store.directory.partition_path(key)}/{name}"

    def segment_path(self, base_offset: int = 0, suffix: str = "log") -> str:
        """Return the path of a segment's file."""
        return self.path(f"{base_offset:020d}.{suffix}")

    def flip(self, path: str, position: int) -> None:
        """Flip one bit of a file behind everybody's back."""
        self.fs.content(path)[position] ^= 0x10

    def problems(self) -> list[str]:
        """Return what the offline check finds."""
        return [str(problem) for problem in check_directory(ROOT, self.fs, self.checkpoints)]


@asynccontextmanager
async def opened(
    data_dir: str | PathLike[str] = ROOT, options: EmbeddedOptions = DIRECT, **others: Any
) -> AsyncIterator[EmbeddedBackend]:
    """Open a backend and close it at the end; without a directory on a disk of its own."""
    if data_dir == ROOT:
        others = {"fs": SimulatedFs(), "state": MemoryStateStore(), **others}
    backend = EmbeddedBackend(data_dir, options, **others)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.aclose()


def drop_before(store: Store, log: SegmentedLog, offset: int) -> list[str]:
    """Move a log's start up and remove the segments below it, as the backend does.

    Returns the files that `remove_below` returns.
    """
    trimmer = store.trimmer
    trimmer.make_durable_below(log, offset)
    trimmer.save_log_start(log, offset)
    log.offsets.raise_log_start(offset)
    return trimmer.remove_below(log, offset)


def flush_group(writes: WritePath) -> list[DiskAppend]:
    """Take one group from the queue; write, sync and complete it."""
    group = writes.take_group()
    writes.write_group(group)
    writes.complete_group(group)
    return group
