"""Machines that compact and recompress, and those that do it unsafely."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from kgw.backend.base import CompactionJob, RecompressionJob
from kgw.backend.embedded.compact.compaction import SegmentCompaction, plan_compaction
from kgw.backend.embedded.compact.recompression import SegmentRecompression, plan_recompression
from kgw.backend.embedded.files.durability import sync_directory
from kgw.backend.embedded.layout import COMPACTION_DIRECTORY
from kgw.backend.embedded.log import swap
from kgw.backend.embedded.log.segment import Segment, SideFileDamagedError
from kgw.backend.embedded.log.swap import remove_directory
from kgw.backend.embedded.recover import journal_replay
from kgw.backend.embedded.recover.rebuilding import rebuild_side
from kgw.errors import StorageError
from kgw.testing.batches import make_batch
from tests.campaigns.crash_model import Machine
from tests.campaigns.support import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from random import Random

    from kgw.backend.embedded.compact.compaction import CompactionOrder
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.log.swap import CompactedSegment
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.records.batch import RecordBatch
    from kgw.types import PartitionKey
    from tests.campaigns.crash_model import PartitionModel
    from tests.simulated_fs import SimulatedFs

KEYS = 5
RETENTION_MS = 500
TOMBSTONE_SHARE = 0.15
_FAR = 1 << 40


def key_of(value: bytes) -> bytes:
    """Return the key that goes with a value: a tombstone names it, the others count up."""
    return value[1:] if value.startswith(b"T") else b"%d" % (int(value.split(b"-")[0]) % KEYS)


class CompactingMachine(Machine):
    """Records have keys, and logs are rolled, compacted and recompressed beside all else."""

    states_a_run = 60

    def __init__(self, random: Random, fs: SimulatedFs, options: EmbeddedOptions) -> None:
        super().__init__(random, fs, options)
        self.settings = self.settings._replace(
            segment_bytes=random.choice((400, 1_500, 4_000)),
            delete_delay_ms=random.choice((0, 60_000)),
        )
        self.now_ms = 0
        self.compactions = 0
        self.recompressions = 0
        """Runs that have put a segment into zstd."""
        self._reached_ms: dict[tuple[PartitionModel, int], int] = {}
        """When a run first reached a tombstone: its time to stay begins with that."""

    def step(self) -> None:
        """Do one thing that a gateway does."""
        chance = self.random.random()
        if self.partitions and chance < 0.12:
            self.compact()
        elif self.partitions and chance < 0.17:
            self.recompress()
        elif self.partitions and chance < 0.23:
            self.started().roll(self.random.choice(list(self.started().logs.values())))
        else:
            super().step()

    def value(self) -> bytes:
        if self.random.random() < TOMBSTONE_SHARE:
            return b"T%d" % self.random.randrange(KEYS)
        return super().value()

    def make_batch(self, values: list[bytes]) -> RecordBatch:
        return make_batch(
            [None if value.startswith(b"T") else value for value in values],
            keys=[key_of(value) for value in values],
        )

    def compact(self) -> None:
        """Run compaction over any log, up to anywhere."""
        key = self.random.choice(list(self.partitions))
        self.now_ms += self.random.choice((0, 10, 1_000))
        end = self.partitions[key].end
        bound = self.random.choice((_FAR, _FAR, self.random.randint(0, end)))
        memory_bytes = self.random.choice((480, 1 << 20, 1 << 20))
        job = CompactionJob(bound, self.now_ms, RETENTION_MS, key_memory_bytes=memory_bytes)
        self.compact_log(key, job)

    def compact_log(self, key: PartitionKey, job: CompactionJob) -> None:
        """Run compaction over one log, the flusher being at work beside it."""
        store, model = self.started(), self.partitions[key]
        log = store.logs[key]
        order = plan_compaction(log, job, 0)
        if not order.sources:
            return
        # The rolls have synced what lies in sealed segments.
        model.make_durable(log.segments[-1].base_offset)
        model.removable |= self._removable(model, order.job)
        with self._rewriting():
            compacted_end = self._compact(log, order)
        if compacted_end is not None:
            store.finish_compaction(log, compacted_end)
            self.life_reads.forget_cached(log, compacted_end)
            self._finish(model, compacted_end)
            self.compactions += 1
        elif store.fs.is_directory(log.path):
            remove_directory(store.fs, log.path)

    def recompress(self) -> None:
        """Put any log's closed segments into zstd, up to anywhere."""
        key = self.random.choice(list(self.partitions))
        bound = self.random.choice((_FAR, _FAR, self.random.randint(0, self.partitions[key].end)))
        store, log = self.started(), self.started().logs[key]
        order = plan_recompression(log, RecompressionJob(bound, level=1), 0)
        if not order.sources:
            return
        # The rolls have synced what lies in sealed segments.
        self.partitions[key].make_durable(log.segments[-1].base_offset)
        recompression = SegmentRecompression(self.fs, order)
        sources = {one.base_offset: one for one in order.sources}

        def swap(segment: CompactedSegment) -> list[str]:
            source = sources[segment.base_offset]
            return store.swap_recompressed(log, segment, source.end_offset, source.size_bytes)

        with self._rewriting():
            is_done = self._exchange_all(log, recompression.run(), swap)
        report = recompression.report
        # Nothing rots here: what cannot be read, or comes out different, is a bug.
        assert not report.failures, report.failures
        if is_done:
            store.finish_recompression(log, report.recompressed_end)
            self.life_reads.forget_cached(log, report.recompressed_end)
            self.recompressions += report.segments_exchanged > 0
        elif store.fs.is_directory(log.path):
            remove_directory(store.fs, log.path)

    @contextmanager
    def _rewriting(self) -> Iterator[None]:
        """Let it be known that a run is under way."""
        self.is_compacting = True
        beside_share = self.beside_share
        # A run has so many operations that the log would grow faster than it is compacted.
        self.beside_share = 0.01
        try:
            yield
        finally:
            self.is_compacting = False
            self.beside_share = beside_share

    def _compact(self, log: SegmentedLog, order: CompactionOrder) -> int | None:
        """Return up to where the log is compacted; None when the run was given up."""
        compaction = SegmentCompaction(self.fs, order)
        swap = partial(self.started().swap_segment, log)
        try:
            is_done = self._exchange_all(log, compaction.run(), swap)
            return compaction.report.compacted_end if is_done else None
        finally:
            # It may have ended below its bound, and below what has a newer record under that.
            end_offset = compaction.report.compacted_end
            self._note_tombstones(self.partitions[log.key], end_offset, order.job.now_ms)

    def _exchange_all(
        self,
        log: SegmentedLog,
        steps: Generator[CompactedSegment, None, None],
        swap: Callable[[CompactedSegment], list[str]],
    ) -> bool:
        """Put each segment of a run in its place; False when the run was given up."""
        store = self.started()
        self.checkpoint(clean=False)
        try:
            while True:
                with self.appending_beside():
                    segment = next(steps, None)
                if segment is None:
                    return True
                # A run takes longer than relaxed records are left without a sync.
                self.flushes.pass_time(store, self.appending_beside, self._make_durable)
                paths = swap(segment)
                if self.random.random() < 0.5:
                    store.trimmer.remove_files(paths)
                if self.random.random() < 0.1:
                    self.drop_before()
        except (FileNotFoundError, StorageError):
            if store.directory.failure is not None:
                raise
            # Dropped under the run's hands.
            return False
        except SideFileDamagedError as error:
            for segment_of_log in log.segments:
                if segment_of_log.base_offset == error.segment.base_offset:
                    rebuild_side(log.directory, log, segment_of_log)
            return False
        finally:
            steps.close()

    def _removable(self, model: PartitionModel, job: CompactionJob) -> set[int]:
        """Return what a run may remove, by the declared rules."""
        removable = _replaced_offsets(model, job.upper_bound)
        for offset in model.promised:
            reached_ms = self._reached_ms.get((model, offset))
            if (
                offset < job.upper_bound
                and reached_ms is not None
                and job.now_ms >= reached_ms + RETENTION_MS
            ):
                removable.add(offset)
        return removable

    def _note_tombstones(self, model: PartitionModel, end_offset: int, now_ms: int) -> None:
        """Note which tombstones a run has reached that came to this end."""
        replaced_offsets = _replaced_offsets(model, end_offset)
        for offset, value in model.promised.items():
            is_newest = offset < end_offset and offset not in replaced_offsets
            if is_newest and value.startswith(b"T"):
                self._reached_ms.setdefault((model, offset), now_ms)

    def _finish(self, model: PartitionModel, end_offset: int) -> None:
        """What has a newer record of its key below the end of a run is gone now."""
        gone = _replaced_offsets(model, end_offset)
        model.removed |= gone
        model.removable -= gone


def _replaced_offsets(model: PartitionModel, end_offset: int) -> set[int]:
    """Return the offsets that have a newer record of their key below an end."""
    newest: dict[bytes, int] = {}
    below = sorted(offset for offset in model.promised if offset < end_offset)
    for offset in below:
        newest[key_of(model.promised[offset])] = offset
    return {offset for offset in below if newest[key_of(model.promised[offset])] > offset}


class JournaledMachine(CompactingMachine):
    """One whose journal knows much of what is compacted: for the controls."""

    relaxed_share = 0.0

    def __init__(self, random: Random, fs: SimulatedFs, options: EmbeddedOptions) -> None:
        options = options._replace(
            journal_append_bytes=32 << 10, journal_bytes=120 << 10, dirty_segments=64
        )
        super().__init__(random, fs, options)
        self.settings = self.settings._replace(segment_bytes=400)


# --- controls --------------------------------------------------------------------------------


@contextmanager
def no_point_of_no_return() -> Iterator[None]:
    """Exchange segments on the strength of a note that no sync covers."""

    def write(fs: FileSystem, path: str, content: bytes) -> None:
        file = fs.open(path, create=True)
        file.pwrite((content,), 0)
        file.close()

    with replaced(swap, "replace_durably", write):
        yield


@contextmanager
def no_sync_of_new_segments() -> Iterator[None]:
    """Exchange segments for files that may not be on the disk."""
    sync = Segment.sync

    def sync_others(segment: Segment) -> None:
        if "/compaction/" not in segment.log_path:
            sync(segment)

    with replaced(Segment, "sync", sync_others):
        yield


@contextmanager
def frames_for_every_segment() -> Iterator[None]:
    """Replay the journal into whichever segment its frames name."""
    with replaced(journal_replay, "_last_segment", lambda _fs, _path: -1):
        yield


@contextmanager
def no_sync_of_new_names() -> Iterator[None]:
    """Exchange segments for files whose names may not be on the disk."""

    def sync_others(fs: FileSystem, path: str) -> None:
        if not path.endswith(f"/{COMPACTION_DIRECTORY}"):
            sync_directory(fs, path)

    with replaced(swap, "sync_directory", sync_others):
        yield


UNSAFE = (
    no_point_of_no_return,
    no_sync_of_new_names,
    no_sync_of_new_segments,
    frames_for_every_segment,
)
"""Ways to compact of which each must be found out within 6,000 states."""
