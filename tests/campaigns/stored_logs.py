"""A small data directory with a bit of everything, and a judge of what it serves later."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.base import LogSettings, Snapshot
from kgw.backend.embedded import reading
from kgw.backend.embedded.failures import SideFileDamagedError
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.rebuilding import rebuild_side
from kgw.backend.embedded.snapshots import load_snapshot, save_snapshot
from kgw.backend.embedded.store import Store
from kgw.errors import CorruptionError
from kgw.testing.batches import make_batch
from kgw.testing.faults import SimulatedFs
from kgw.types import PartitionKey
from tests.campaigns.crash_model import ROOT, TOPIC, partition_key

if TYPE_CHECKING:
    from random import Random

    from kgw.backend.embedded.log import SegmentedLog
    from kgw.backend.embedded.writer import Append
    from kgw.offsets.recovery import Checkpoint

SETTINGS = LogSettings(segment_bytes=2_500, segment_index_bytes=1 << 10, index_interval_bytes=200)
OPTIONS = EmbeddedOptions(
    cache_bytes=0,
    min_free_bytes=0,
    journal_bytes=64 << 10,
    journal_append_bytes=400,
    scanned_entries=3,
)


class StoredBatch(NamedTuple):
    """A batch that was acknowledged, and the bytes that must be served for it."""

    base_offset: int
    next_offset: int
    max_timestamp_ms: int
    content: bytes


class StoredLog(NamedTuple):
    """What a partition must look like."""

    log_start_offset: int
    batches: list[StoredBatch]
    epoch_ends: list[tuple[int, int]]
    snapshot: Snapshot


class StoredDirectory(NamedTuple):
    """A stopped data directory."""

    fs: SimulatedFs
    checkpoints: dict[PartitionKey, Checkpoint]
    logs: dict[PartitionKey, StoredLog]
    is_clean: bool


class _Builder:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.fs = SimulatedFs()
        self.fs.mkdir(ROOT)
        self.fs.sync_directory("/")
        self.checkpoints: dict[PartitionKey, Checkpoint] = {}
        self.keys = [partition_key(number) for number in range(2)]
        self.batches: dict[PartitionKey, list[StoredBatch]] = {key: [] for key in self.keys}
        self.time_ms = 1_000
        self.number = 0

    def start(self) -> Store:
        store = Store(self.fs, ROOT, OPTIONS)
        store.open()
        store.prepare_journal()
        return store

    def open_logs(self, store: Store) -> None:
        for key in self.keys:
            store.open_log(key, TOPIC, SETTINGS, self.checkpoints.get(key))

    def append(self, store: Store, groups: int) -> None:
        for _ in range(groups):
            submitted = [self._submit(store) for _ in range(self.random.choice((1, 2, 4)))]
            while store.has_pending:
                store.flush_group()
            assert all(append.error is None for append in submitted)

    def _submit(self, store: Store) -> Append:
        key = self.random.choice(self.keys)
        batches = []
        for _ in range(self.random.choice((1, 1, 2))):
            count = self.random.choice((1, 2, 3))
            size = self.random.choice((10, 60, 200, 900))
            self.number += 1
            self.time_ms += self.random.randrange(-40, 60)
            values = [b"%d-%d-" % (self.number, n) + b"v" * size for n in range(count)]
            batches.append(make_batch(values, timestamps_ms=[self.time_ms] * count))
        append = store.submit(store.logs[key], batches)
        self.batches[key] += [
            StoredBatch(b.base_offset, b.next_offset, b.max_timestamp_ms, bytes(b.buffer))
            for b in batches
        ]
        return append

    def note(self, checkpoints: list[Checkpoint]) -> None:
        for one in checkpoints:
            self.checkpoints[PartitionKey(one.topic_id, one.partition)] = one


def build_directory(random: Random, *, is_clean: bool) -> StoredDirectory:
    """Return a directory with a bit of everything, stopped in order or killed.

    Two partitions, two epochs, rolled segments, a log start that moved, snapshots, a checkpoint.
    """
    builder = _Builder(random)
    store = builder.start()
    for key in builder.keys:
        store.create_log(key, TOPIC, SETTINGS)
    builder.append(store, 12)
    store.abandon()
    store = builder.start()
    builder.open_logs(store)
    builder.append(store, 6)
    for key in builder.keys:
        log = store.logs[key]
        start = max(1, log.offsets.high_watermark // 4)
        store.make_durable_below(log, start)
        store.save_log_start(log, start)
        log.offsets.raise_log_start(start)
        store.remove_below(log, start)
    builder.note(store.checkpoint())
    builder.append(store, 8)
    snapshots = {}
    for key in builder.keys:
        end = store.logs[key].offsets.high_watermark
        save_snapshot(store.logs[key], Snapshot(end - 1, b"older" * 20))
        snapshots[key] = Snapshot(end, b"newer" * 20)
        save_snapshot(store.logs[key], snapshots[key])
    logs = {
        key: StoredLog(
            log.offsets.log_start_offset,
            [b for b in builder.batches[key] if b.next_offset > log.offsets.log_start_offset],
            _epoch_ends(log),
            snapshots[key],
        )
        for key, log in store.logs.items()
    }
    if is_clean:
        builder.note(store.close())
        store.mark_clean()
    else:
        store.abandon()
    return StoredDirectory(builder.fs, builder.checkpoints, logs, is_clean)


def _epoch_ends(log: SegmentedLog) -> list[tuple[int, int]]:
    """Return where the finished epochs ended."""
    return [(before.leader_epoch, after.start_offset) for before, after in pairwise(log.epochs)]


class Served(NamedTuple):
    """What a directory serves after a start, compared with what it must."""

    wrong: list[str]
    unreadable: list[StoredBatch]
    problems: list[str]
    store: Store


def serve_directory(
    directory: StoredDirectory,
    fs: SimulatedFs,
    checkpoints: dict[PartitionKey, Checkpoint] | None = None,
) -> Served:
    """Start a store over (damaged) files and read everything. Raises what a start raises."""
    known = directory.checkpoints if checkpoints is None else checkpoints
    store = Store(fs, ROOT, OPTIONS)
    store.open()
    wrong: list[str] = []
    unreadable: list[StoredBatch] = []
    for key, expected in directory.logs.items():
        log = store.open_log(key, TOPIC, SETTINGS, known.get(key))
        if log.offsets.log_start_offset != expected.log_start_offset:
            wrong.append(
                f"log start {log.offsets.log_start_offset}, not {expected.log_start_offset}"
            )
        end = expected.batches[-1].next_offset
        if log.offsets.high_watermark > end:
            wrong.append(f"high watermark {log.offsets.high_watermark}, above {end}")
        for batch in expected.batches:
            content = read_one(log, batch)
            if content is None:
                unreadable.append(batch)
            elif content != batch.content:
                wrong.append(f"WRONG BYTES at {batch.base_offset}")
        for epoch, epoch_end in expected.epoch_ends:
            found = log.epoch_end(epoch)
            if found is None or found.end_offset != epoch_end:
                wrong.append(f"epoch {epoch} ends at {found}, not at {epoch_end}")
        snapshot = load_snapshot(log, log.offsets.next_offset)
        if snapshot is not None and snapshot != expected.snapshot and b"older" not in snapshot.data:
            wrong.append(f"snapshot {snapshot}")
    return Served(wrong, unreadable, list(store.problems), store)


def read_one(log: SegmentedLog, batch: StoredBatch) -> bytes | None:
    """Return the bytes served for a batch, None when they are refused or not there."""
    end = log.offsets.high_watermark
    offset = max(batch.base_offset, log.offsets.log_start_offset)
    if offset >= end:
        return None
    for _ in range(4):
        try:
            return b"".join(reading.read(log, offset, 1, end).buffers) or None
        except CorruptionError:
            return None
        except SideFileDamagedError as error:
            rebuild_side(log.directory, log, error.segment, error)
    return None


def find_by_time(log: SegmentedLog, timestamp_ms: int) -> int | None:
    """Return the offset that a look-up by time finds."""
    for _ in range(4):
        try:
            batch = reading.find_by_time(
                log,
                timestamp_ms,
                log.offsets.log_start_offset,
                log.offsets.high_watermark,
                lambda found: found,
            )
        except SideFileDamagedError as error:
            rebuild_side(log.directory, log, error.segment, error)
        else:
            return None if batch is None else batch.base_offset
    raise AssertionError("the side file cannot be rebuilt")
