"""The log of a partition, with the methods that the event loop calls."""

from __future__ import annotations

from asyncio import Lock, ensure_future, shield
from functools import partial
from threading import Lock as ThreadLock
from typing import TYPE_CHECKING, Final, TypeVar

from kgw.backend.append import refused_append
from kgw.backend.base import ReadResult, Segmented
from kgw.backend.embedded.failures import SyncFailedError
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.log.snapshots import load_snapshot, save_snapshot
from kgw.backend.embedded.read import lookups
from kgw.backend.embedded.write.flusher import nothing
from kgw.backend.hot_cache import CachedTail
from kgw.backend.managed_log import ManagedLog
from kgw.errors import CorruptionError, StorageError
from kgw.problems import DAMAGE

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import AsyncIterator, Callable, Sequence

    from kgw.backend.append import Append
    from kgw.backend.base import (
        BatchLook,
        CompactionJob,
        CompactionReport,
        EpochStart,
        FoundT,
        LogSettings,
        Recompressed,
        RecompressionJob,
        RecompressionReport,
        SegmentInfo,
        Snapshot,
    )
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.shell import EmbeddedShell
    from kgw.backend.embedded.store import Store
    from kgw.records.batch import RecordBatch

_Result = TypeVar("_Result")

_REBUILDS: Final = 8
"""The most side files that one read may rebuild. After that it reports an error of the disk."""


class EmbeddedPartitionLog(ManagedLog, Segmented):
    """One partition's log and its cached tail; runs blocking work in threads."""

    def __init__(self, log: SegmentedLog, backend: EmbeddedShell, store: Store) -> None:
        self.key = log.key
        self.tail = CachedTail()
        self._log = log
        self._offsets = log.offsets
        self._backend = backend
        self._threads = backend.threads
        self._flusher = backend.threads.flusher
        self._store = store
        self._rebuilding: dict[Segment, Future[None]] = {}
        self._rewriting = Lock()
        self._saving = ThreadLock()
        self._refusal: StorageError | None = None

    def __repr__(self) -> str:
        return f"<EmbeddedPartitionLog {self.key} {self._offsets!r}>"

    @property
    def _epochs(self) -> Sequence[EpochStart]:
        return self._log.epochs

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def has_failed(self) -> bool:
        return self._store.directory.failure is not None

    def is_in_gap(self, offset: int) -> bool:
        log = self._log
        return bool(log.gaps) and log.is_in_gap(offset)

    def append(self, batches: Sequence[RecordBatch]) -> Append:
        if self._refusal is not None:
            return refused_append(self._refusal)
        try:
            return self._flusher.append(self._log, batches)
        except StorageError as error:
            return refused_append(error)

    async def release(self) -> None:
        """Refuse all further appends, and begin a new leader epoch after the stored records."""
        self._refusal = StorageError(f"partition {self.key} has been released")
        while (
            self._offsets.next_offset > self._offsets.high_watermark
            and not self.has_failed
            and not self._log.is_deleted
        ):
            await self._threads.run_in_flusher(nothing)
        # Wait for a running compaction, because the next leader may rewrite segments, too.
        async with self._rewriting:
            self._log.begin_epoch(self.leader_epoch + 1, self._offsets.next_offset)

    async def make_durable(self, end_offset: int) -> None:
        if end_offset > self._offsets.durable_end:
            await self._threads.run_in_flusher(
                partial(self._store.trimmer.make_durable_below, self._log, end_offset)
            )

    def read_hot(self, offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
        if offset >= upper_bound or offset >= self._offsets.high_watermark:
            return ReadResult([], 0, offset)
        backend = self._backend
        result = self.tail.read(backend.read_buffers, offset, max_bytes, upper_bound)
        if result is None:
            bound = min(upper_bound, self._offsets.high_watermark)
            result = backend.reader.peek(self._log, offset, max_bytes, bound)
        return result

    async def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
    ) -> ReadResult:
        bound = min(upper_bound, self._offsets.high_watermark)
        read = self._backend.reader.read
        result = await self._from_disk(
            partial(read, self._log, offset, max_bytes, bound, at_least_one=at_least_one)
        )
        if offset < self._offsets.log_start_offset:
            # The records at `offset` were deleted meanwhile, so the read has returned later
            # records.
            return ReadResult([], 0, offset)
        return result

    async def find_by_time(
        self, timestamp_ms: int, lower_bound: int, upper_bound: int, look: BatchLook[FoundT]
    ) -> FoundT | None:
        bound = min(upper_bound, self._offsets.high_watermark)
        return await self._from_disk(
            partial(lookups.find_by_time, self._log, timestamp_ms, lower_bound, bound, look)
        )

    async def find_max_timestamp(self, lower_bound: int, upper_bound: int) -> RecordBatch | None:
        bound = min(upper_bound, self._offsets.high_watermark)
        return await self._from_disk(
            partial(lookups.find_max_timestamp, self._log, lower_bound, bound)
        )

    async def _from_disk(self, function: Callable[[], _Result]) -> _Result:
        """Run a read in a thread. If it finds a damaged side file, rebuild the file and retry."""
        try:
            for _ in range(_REBUILDS):
                try:
                    return await self._threads.read(function)
                except SideFileDamagedError as damage:
                    await self._rebuild(damage.segment, damage)
        except CorruptionError as error:
            end_offset = self._log.offsets.high_watermark
            if error.end_offset is not None:
                end_offset = error.end_offset
            is_over = partial(self._log.is_gone_below, end_offset)
            self._store.directory.report(str(error), DAMAGE, is_over)
            raise
        except (OSError, SyncFailedError) as error:
            self._store.directory.refuse(f"cannot read partition {self.key}: {error}", error)
            raise StorageError(f"cannot read partition {self.key}: {error}") from error
        raise StorageError(f"the side files of partition {self.key} cannot be rebuilt")

    async def _rebuild(self, segment: Segment, damage: SideFileDamagedError | None = None) -> None:
        """Rebuild a side file with `rebuild_side`, once for all concurrent callers.

        Raises the errors of `rebuild_side`.
        """
        rebuilding = self._rebuilding.get(segment)
        if rebuilding is None:
            rebuilding = ensure_future(self._rebuild_once(segment, damage))
            self._rebuilding[segment] = rebuilding
            rebuilding.add_done_callback(lambda _: self._rebuilding.pop(segment))
        # A cancelled caller must not cancel the rebuild, because other callers wait for it.
        await shield(rebuilding)

    async def _rebuild_once(self, segment: Segment, damage: SideFileDamagedError | None) -> None:
        # Imported late: a start does not need it.
        from kgw.backend.embedded.recover.rebuilding import rebuild_side

        threads, log = self._threads, self._log
        rebuild = partial(rebuild_side, log.directory, log, segment, damage)
        # Ask in the flusher, between two groups. Then no write is in progress that has begun a new
        # segment and may be undone.
        is_sealed = await threads.run_in_flusher(lambda: segment in log.segments[:-1])
        if is_sealed:
            # Rebuilding may take half a minute; meanwhile the flusher serves other partitions.
            await threads.maintain(rebuild)
        else:
            await threads.run_in_flusher(rebuild)

    async def drop_before(self, offset: int) -> None:
        log_start_offset = self._offsets.log_start_offset
        if offset < log_start_offset or (
            offset == log_start_offset and not self._log.has_segments_below(offset)
        ):
            return
        if offset > self._offsets.high_watermark:
            raise ValueError(f"log start cannot be {offset}, above {self._offsets.high_watermark}")
        if offset > log_start_offset:
            await self.make_durable(offset)
            await self._threads.note(partial(self._store.trimmer.save_log_start, self._log, offset))
            self._offsets.raise_log_start(offset)
        paths = await self._threads.run_in_flusher(
            partial(self._store.trimmer.remove_below, self._log, offset)
        )
        self._backend.remove_later(paths, self._log.settings.delete_delay_ms)

    # --- segments --------------------------------------------------------------------------------

    @property
    def compacted_end(self) -> int:
        return max(self._log.compacted_end, self._offsets.log_start_offset)

    async def segments(self) -> list[SegmentInfo]:
        return await self._from_disk(partial(lookups.describe_segments, self._log))

    async def roll(self) -> None:
        await self._threads.run_in_flusher(partial(self._store.roll, self._log))

    async def compact(self, job: CompactionJob) -> CompactionReport:
        # Imported late to keep starts fast.
        from kgw.backend.embedded.compact.run import CompactionRun

        async with self._rewriting:
            run = CompactionRun(self._log, job, self._store, self._backend, self.rebuild_segment)
            report = await self._backend.run_until_closed(run.run())
        if not job.is_dry_run:
            self.tail.forget_below(report.compacted_end)
        return report

    @property
    def recompressed(self) -> Recompressed:
        return self._log.recompressed

    async def recompress(self, job: RecompressionJob) -> RecompressionReport:
        # Imported late to keep starts fast.
        from kgw.backend.embedded.compact.run import RecompressionRun

        async with self._rewriting:
            run = RecompressionRun(self._log, job, self._store, self._backend, self.rebuild_segment)
            report = await self._backend.run_until_closed(run.run())
        self.tail.forget_below(report.recompressed_end)
        return report

    async def rebuild_segment(self, base_offset: int) -> None:
        """Rebuild the side file of a segment, unless it was removed. Raises StorageError."""
        for segment in self._log.segments:
            if segment.base_offset == base_offset:
                try:
                    await self._rebuild(segment)
                except (OSError, SyncFailedError) as error:
                    raise StorageError(f"cannot rebuild {segment.side_path}: {error}") from error

    # --- derived state ---------------------------------------------------------------------------

    async def replay(self, from_offset: int) -> AsyncIterator[RecordBatch]:
        upper_bound = self._offsets.high_watermark
        while True:
            batches, from_offset = await self._from_disk(
                partial(lookups.replay, self._log, from_offset, upper_bound)
            )
            if not batches:
                return
            for batch in batches:
                yield batch

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        try:
            await self._threads.run_in_io(partial(self._save_snapshot, snapshot))
        except OSError as error:
            raise StorageError(
                f"cannot save a snapshot of partition {self.key}: {error}"
            ) from error

    def _save_snapshot(self, snapshot: Snapshot) -> None:
        # Save one snapshot at a time: a cancelled caller's save may still be running.
        with self._saving:
            save_snapshot(self._log, snapshot)

    async def load_snapshot(self) -> Snapshot | None:
        return await self._from_disk(partial(load_snapshot, self._log, self._offsets.next_offset))

    def configure(self, settings: LogSettings) -> None:
        self._log.settings = settings
        self._backend.flush_timer.reschedule()
