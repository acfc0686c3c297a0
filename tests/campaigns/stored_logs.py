"""A small data directory with a bit of everything, and a judge of what it serves later.

It is read as clients do, in every way (`client_reads`): each must serve the same right bytes, or
say that the batch is damaged.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.base import LogSettings, Snapshot
from kgw.backend.embedded import layout
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.log.snapshots import load_snapshot, save_snapshot
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.read import lookups
from kgw.backend.embedded.recover.rebuilding import rebuild_side
from kgw.backend.embedded.store import Store
from kgw.errors import CorruptionError, StorageError
from kgw.testing.batches import make_batch
from kgw.types import PartitionKey
from tests.backend.embedded.driver import flush_group
from tests.campaigns.crash_model import ROOT, TOPIC, partition_key
from tests.simulated_fs import SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.write.write_path import DiskAppend
    from kgw.offsets.recovery import Checkpoint
    from tests.campaigns.client_reads import Batch, ClientReads, Clients

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
            while store.writes.pending:
                flush_group(store.writes)
            assert all(append.error is None for append in submitted)

    def _submit(self, store: Store) -> DiskAppend:
        key = self.random.choice(self.keys)
        batches = []
        for _ in range(self.random.choice((1, 1, 2))):
            count = self.random.choice((1, 2, 3))
            size = self.random.choice((10, 60, 200, 900))
            self.number += 1
            self.time_ms += self.random.randrange(-40, 60)
            values = [b"%d-%d-" % (self.number, n) + b"v" * size for n in range(count)]
            batches.append(make_batch(values, timestamps_ms=[self.time_ms] * count))
        append = store.writes.submit(store.logs[key], batches)
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
        store.trimmer.make_durable_below(log, start)
        store.trimmer.save_log_start(log, start)
        log.offsets.raise_log_start(start)
        store.trimmer.remove_below(log, start)
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


READ_BYTES = 1_200
"""What a consumer asks for that reads on: a few batches."""


class Served:
    """What a directory serves, compared with what it must."""

    def __init__(self, directory: StoredDirectory, store: Store, clients: Clients) -> None:
        self.store = store
        self.wrong: list[str] = []
        self.reads: ClientReads = clients.of(store)
        self._clients = clients
        self._directory = directory
        self._refused: dict[tuple[PartitionKey, int], StoredBatch] = {}

    @property
    def problems(self) -> list[str]:
        """What the store has reported."""
        return list(self.store.directory.problems)

    @property
    def unreadable(self) -> list[StoredBatch]:
        """The batches that any way of reading has refused."""
        return [self._refused[place] for place in sorted(self._refused)]

    def read_all(self) -> None:
        """Read everything as clients do, in every way.

        When nothing is in memory: with what is read ahead, and batch by batch. When all is in the
        page cache: as many batches as fit.
        """
        fs = self.store.fs
        assert isinstance(fs, SimulatedFs)
        fs.drop_page_cache()
        first = self._read_logs(READ_BYTES)
        self._read_singly(first)
        _bring_into_memory(fs)
        cached = self._read_logs(READ_BYTES)
        if first != cached:
            self.wrong.append(f"ONE WAY OR THE OTHER: {first}, {cached}")
        self._read_singly(first)
        for key, expected in self._directory.logs.items():
            self._read_to_bounds(self.store.logs[key], expected, first[key])

    def read_again(self) -> None:
        """Read everything once more, a while later, and judge that alone."""
        self.wrong.clear()
        self._refused.clear()
        self._clients.loop.now_s += 1
        fs = self.store.fs
        assert isinstance(fs, SimulatedFs)
        _bring_into_memory(fs)
        self._read_logs(READ_BYTES)
        fs.drop_page_cache()
        self._read_logs(READ_BYTES)

    def _read_logs(self, max_bytes: int) -> dict[PartitionKey, set[int]]:
        return {
            key: self._read_log(key, self.store.logs[key], expected, max_bytes)
            for key, expected in self._directory.logs.items()
        }

    def _read_singly(self, served: dict[PartitionKey, set[int]]) -> None:
        """Read some of the batches one by one: the same are served."""
        for key, expected in self._directory.logs.items():
            for batch in expected.batches[::4]:
                found = self._fetch(self.store.logs[key], batch, 1)
                self._judge(found, expected.batches)
                if bool(found) != (batch.base_offset in served[key]):
                    self.wrong.append(f"ONE WAY OR THE OTHER: {batch.base_offset}")

    def _read_log(
        self, key: PartitionKey, log: SegmentedLog, expected: StoredLog, max_bytes: int
    ) -> set[int]:
        """Read a log from its start to its end, past what is refused; return what was served."""
        served: set[int] = set()
        for batch in expected.batches:
            if batch.base_offset in served:
                continue
            found = self._fetch(log, batch, max_bytes)
            if not found:
                self._refused[key, batch.base_offset] = batch
            served.update(self._judge(found, expected.batches))
        return served

    def _judge(self, found: Iterable[Batch], batches: list[StoredBatch]) -> list[int]:
        by_offset = {batch.base_offset: batch for batch in batches}
        for one in found:
            known = by_offset.get(one.base_offset)
            if known is None or known.content != one.content:
                self.wrong.append(f"WRONG BYTES at {one.base_offset} by {self.reads.way}")
        return [one.base_offset for one in found]

    def _fetch(self, log: SegmentedLog, batch: StoredBatch, max_bytes: int) -> list[Batch]:
        """Return what is served from a batch on, nothing when it is refused or not there."""
        end = log.offsets.high_watermark
        offset = max(batch.base_offset, log.offsets.log_start_offset)
        if offset >= end:
            return []
        try:
            return self.reads.fetch(log, offset, max_bytes, end)
        except CorruptionError:
            return []
        except StorageError as error:
            self.wrong.append(f"THE WRONG ERROR at {batch.base_offset}: {error}")
            return []

    def _read_to_bounds(self, log: SegmentedLog, expected: StoredLog, served: set[int]) -> None:
        """Read up to offsets inside of batches: nothing that ends above is served."""
        for batch in expected.batches[::3]:
            if batch.base_offset not in served or batch.next_offset - batch.base_offset < 2:
                continue
            for offset in sorted(one for one in served if one <= batch.base_offset)[-2:-1]:
                for found in self.reads.fetch(log, offset, READ_BYTES, batch.next_offset - 1):
                    if found.next_offset >= batch.next_offset:
                        self.wrong.append(
                            f"ABOVE THE BOUND: {found.base_offset} to {found.next_offset} of "
                            f"{batch.next_offset - 1} by {self.reads.way}"
                        )

    def go_on(self, key: PartitionKey, number: int = 1) -> int:
        """Append behind what is there and read it, from memory; return where that begins."""
        log = self.store.logs[key]
        start = log.offsets.high_watermark
        appended: dict[int, bytes] = {}
        for count in range(number):
            batch = make_batch([b"going on %d" % count] * 2)
            append = self.store.writes.submit(log, [batch])
            flush_group(self.store.writes)
            if append.error is not None:
                self.wrong.append(f"cannot go on: {append.error}")
                return start
            self.reads.answered(append)
            appended[batch.base_offset] = bytes(batch.buffer)
        found: dict[int, bytes] = {}
        # The last of what was there, from the disk, and on into what is in memory.
        before = [one for one in self._directory.logs[key].batches if one.next_offset == start]
        offset = start
        if before and (key, before[0].base_offset) not in self._refused:
            offset = before[0].base_offset
            appended[offset] = before[0].content
        end = log.offsets.high_watermark
        for one in self.reads.fetch(log, offset, 1, end):
            found[one.base_offset] = one.content
            offset = one.next_offset
        for one in self.reads.walk(log, offset, READ_BYTES, end):
            found[one.base_offset] = one.content
        if found != appended:
            self.wrong.append(
                f"WRONG BYTES after going on: {sorted(found)}, not {sorted(appended)}"
            )
        return start


def _bring_into_memory(fs: SimulatedFs) -> None:
    """Let the page cache hold all, as after a copy of the files."""
    for path in fs.files(f"{ROOT}/{layout.PARTITIONS_DIRECTORY}"):
        fs.read_bytes(path)


def serve_directory(
    directory: StoredDirectory,
    fs: SimulatedFs,
    clients: Clients,
    checkpoints: dict[PartitionKey, Checkpoint] | None = None,
) -> Served:
    """Start a store over (damaged) files and read everything. Raises what a start raises."""
    known = directory.checkpoints if checkpoints is None else checkpoints
    store = Store(fs, ROOT, OPTIONS)
    store.open()
    served = Served(directory, store, clients)
    wrong = served.wrong
    for key, expected in directory.logs.items():
        log = store.open_log(key, TOPIC, SETTINGS, known.get(key))
        if log.offsets.log_start_offset != expected.log_start_offset:
            wrong.append(
                f"log start {log.offsets.log_start_offset}, not {expected.log_start_offset}"
            )
        end = expected.batches[-1].next_offset
        if log.offsets.high_watermark > end:
            wrong.append(f"high watermark {log.offsets.high_watermark}, above {end}")
    served.read_all()
    for key, expected in directory.logs.items():
        log = store.logs[key]
        for epoch, epoch_end in expected.epoch_ends:
            found = log.epoch_end(epoch)
            if found is None or found.end_offset != epoch_end:
                wrong.append(f"epoch {epoch} ends at {found}, not at {epoch_end}")
        check_snapshot(wrong, log, expected)
    return served


def check_snapshot(wrong: list[str], log: SegmentedLog, expected: StoredLog) -> None:
    """Say when a snapshot is loaded that is not one of those that were saved."""
    snapshot = load_snapshot(log, log.offsets.next_offset)
    if snapshot is not None and snapshot != expected.snapshot and b"older" not in snapshot.data:
        wrong.append(f"snapshot {snapshot}")


def find_by_time(log: SegmentedLog, timestamp_ms: int) -> int | None:
    """Return the offset that a look-up by time finds."""
    for _ in range(4):
        try:
            batch = lookups.find_by_time(
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
