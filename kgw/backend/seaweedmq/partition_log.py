"""A partition whose records are in a chain of SMQ's log files."""

from __future__ import annotations

from asyncio import Lock, ensure_future, wait
from functools import partial
from typing import TYPE_CHECKING

from kgw.backend.base import (
    ReadResult,
    Segmented,
    SegmentInfo,
)
from kgw.backend.hot_cache import CachedTail
from kgw.backend.managed_log import ManagedLog
from kgw.backend.seaweedmq.append_queue import AppendQueue
from kgw.backend.seaweedmq.chain import NotWriterError
from kgw.backend.seaweedmq.compact.joining import Joiner
from kgw.backend.seaweedmq.log.snapshots import load_snapshot, save_snapshot
from kgw.errors import CorruptionError, StorageError
from kgw.logs import EventLogger
from kgw.offsets.manager import PartitionOffsetManager
from kgw.problems import DAMAGE, READS
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

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
        Snapshot,
    )
    from kgw.backend.seaweedmq.entries.layouts import Encoded
    from kgw.backend.seaweedmq.log.log_files import LogFiles
    from kgw.records.batch import RecordBatch


_log = EventLogger(__name__)


class SeaweedMqPartitionLog(ManagedLog, Segmented):
    """One partition's log: its chain, its cached tail, and the queue of its appends."""

    def __init__(self, files: LogFiles) -> None:
        self.key = files.key
        self.tail = CachedTail()
        self._files = files
        self.chain = files.chain
        """The log's files, of which this process is the only writer."""
        self._shell = files.shell
        self._reader = files.reader
        self._offsets = PartitionOffsetManager(
            files.detail.log_start_offset, files.chain.end_offset
        )
        self._rewriting = Lock()
        self._saving = Lock()
        self._joiner = Joiner(files)
        self.appends = AppendQueue(files, self._offsets, self._joiner, self._assign, self._show)

    def __repr__(self) -> str:
        return f"<SeaweedMqPartitionLog {self.key} {self._offsets!r}>"

    @property
    def _epochs(self) -> Sequence[EpochStart]:
        return self._files.detail.epochs

    @property
    def size_bytes(self) -> int:
        return sum(file.content_bytes for file in self.chain.files)

    @property
    def has_failed(self) -> bool:
        return self.chain.failure is not None

    @property
    def why_stopped(self) -> str | None:
        """Why the log accepts no more writes, permanently; None if it accepts writes."""
        failure = self.chain.failure
        if failure is None:
            return None
        if isinstance(failure, NotWriterError):
            return f"partition {self.key} is led by another gateway: {failure}"
        return f"partition {self.key} takes no more writes: {failure}"

    @property
    def next_leader_epoch(self) -> int:
        return self._files.detail.opened(self.end_offset).epochs[-1].leader_epoch

    # --- appends ---------------------------------------------------------------------------------

    def append(self, batches: Sequence[RecordBatch]) -> Append:
        return self.appends.append(batches)

    def _show(self, encoded: Encoded, end_offset: int) -> None:
        self._offsets.advance_durable(end_offset)
        self._shell.cache.add([(self.tail, batch) for batch in encoded.batches])
        if self.on_advance is not None:
            try:
                self.on_advance(end_offset, encoded.batch_bytes)
            except Exception as error:  # noqa: BLE001 - whoever waits for the append is told
                _log.error("told of an advance, it failed", error=error, partition=str(self.key))
        self._shell.add_to_replay(encoded.batch_bytes)

    async def aclose(self, deadline_s: float, *, is_orderly: bool = True) -> None:
        """Wait until the submitted appends are done, record the end of the log, and close.

        At the monotonic time `deadline_s` it stops waiting; then it is unknown whether unanswered
        appends are stored. Raises StorageError if the end was not recorded, so that the next start
        begins another leader epoch.
        """
        ending = ensure_future(self._end(is_orderly=is_orderly))
        timer = self._shell.clock.call_at(deadline_s, ending.cancel)
        self._joiner.stop()
        try:
            await wait([ending])
        finally:
            timer.cancel()
            await self.chain.aclose(deadline_s)
            await self._joiner.aclose()
        if ending.cancelled():
            raise StorageError(f"partition {self.key}: the filer has not answered in time")
        await ending

    async def _end(self, *, is_orderly: bool) -> None:
        await self.appends.settle()
        end_offset = self._offsets.high_watermark
        if is_orderly and self.chain.failure is None and end_offset:
            await self._files.save(
                lambda detail: (
                    detail
                    if detail.clean_end == end_offset
                    else detail._replace(clean_end=end_offset, last_ts_ns=self.appends.last_ts_ns)
                )
            )

    # --- reads -----------------------------------------------------------------------------------

    def read_hot(self, offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
        if offset >= upper_bound or offset >= self._offsets.high_watermark:
            return ReadResult([], 0, offset)
        return self.tail.read(self._shell.answer_memory, offset, max_bytes, upper_bound)

    async def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
    ) -> ReadResult:
        bound = min(upper_bound, self._offsets.high_watermark)
        result = await self._reporting(
            self._reader.read(offset, max_bytes, bound, at_least_one=at_least_one)
        )
        if offset < self._offsets.log_start_offset:
            # The records were deleted meanwhile, and the read has returned later records.
            return ReadResult([], 0, offset)
        return result

    async def find_by_time(
        self, timestamp_ms: int, lower_bound: int, upper_bound: int, look: BatchLook[FoundT]
    ) -> FoundT | None:
        bound = min(upper_bound, self._offsets.high_watermark)
        return await self._reporting(
            self._reader.find_by_time(timestamp_ms, lower_bound, bound, look)
        )

    async def find_max_timestamp(self, lower_bound: int, upper_bound: int) -> RecordBatch | None:
        bound = min(upper_bound, self._offsets.high_watermark)
        return await self._reporting(self._reader.find_max_timestamp(lower_bound, bound))

    async def replay(self, from_offset: int) -> AsyncIterator[RecordBatch]:
        try:
            async for batch in self._reader.replay(from_offset, self._offsets.high_watermark):
                # Count these bytes, so that snapshots are saved soon and a later start need not
                # read them again.
                self._shell.add_to_replay(len(batch.buffer))
                yield batch
        except CorruptionError as error:
            await self._report(error)
            raise

    async def verify_end(self) -> None:
        """Verify the last chunk of the log, which another gateway may have written.

        Damage is only reported. Raises NotWriterError.
        """
        try:
            decoded = await self._reader.last_chunk()
        except CorruptionError as error:
            await self._report(error)
        except StorageError as error:
            # A later read of the chunk gets the error.
            self._shell.report(f"the end of partition {self.key} is not verified: {error}")
        else:
            if decoded is not None:
                self.appends.last_ts_ns = max(self.appends.last_ts_ns, decoded.last_ts_ns)

    async def _reporting(self, read: Awaitable[FoundT]) -> FoundT:
        try:
            return await read
        except CorruptionError as error:
            await self._report(error)
            raise
        except NotWriterError:
            raise
        except StorageError as error:
            self._shell.refusals.note(READS, str(error))
            raise

    async def _report(self, error: CorruptionError) -> None:
        """Report damage. Raises NotWriterError if another writer has removed the file instead."""
        try:
            await self.chain.ledger.check_epoch()
        except NotWriterError:
            raise
        except StorageError as unknown:
            # It is unknown whether another writer removed the file, so this counts as damage.
            _log.debug("the writer is not known", error=unknown)
        end_offset = error.end_offset
        if end_offset is None:
            end_offset = self._offsets.high_watermark
        self._shell.report(str(error), DAMAGE, partial(self.is_gone_below, end_offset))

    def is_gone_below(self, end_offset: int) -> bool:
        """Return whether no record below an offset can be read any more."""
        return self.appends.failure is not None or self._offsets.log_start_offset >= end_offset

    # --- the list of files -----------------------------------------------------------------------

    async def drop_before(self, offset: int) -> None:
        if offset < self._offsets.log_start_offset:
            return
        if offset > self._offsets.high_watermark:
            raise ValueError(f"log start cannot be {offset}, above {self._offsets.high_watermark}")
        await self._files.drop_before(offset, self._offsets.raise_log_start)

    @property
    def compacted_end(self) -> int:
        return max(self._files.detail.compacted_end, self.log_start_offset)

    @property
    def recompressed(self) -> Recompressed:
        return self._files.detail.recompressed

    async def segments(self) -> list[SegmentInfo]:
        found = [
            SegmentInfo(
                file.base_offset,
                file.end_offset,
                file.content_bytes,
                file.largest_timestamp_ms if file.content_bytes else NO_TIMESTAMP_MS,
                file.begun_ms if file.content_bytes else NO_TIMESTAMP_MS,
            )
            for file in self.chain.files
        ]
        return found if found and (len(found) > 1 or found[0].size_bytes) else []

    async def roll(self) -> None:
        await self.appends.roll()

    async def compact(self, job: CompactionJob) -> CompactionReport:
        # Imported here to keep start-up fast.
        from kgw.backend.seaweedmq.compact.rewriting import ChainCompactionRun

        async with self._rewriting:
            run = ChainCompactionRun(self._files, job)
            report = await self._reporting(self._joiner.look_after(run.run()))
        if not job.is_dry_run:
            self.tail.forget_below(report.compacted_end)
        return report

    async def recompress(self, job: RecompressionJob) -> RecompressionReport:
        # Imported here to keep start-up fast.
        from kgw.backend.seaweedmq.compact.rewriting import ChainRecompressionRun

        async with self._rewriting:
            run = ChainRecompressionRun(self._files, job)
            report = await self._reporting(self._joiner.look_after(run.run()))
        self.tail.forget_below(report.recompressed_end)
        return report

    # --- derived state ---------------------------------------------------------------------------

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        async with self._saving:
            await save_snapshot(self._shell.filer, self.chain.directory, snapshot)

    async def load_snapshot(self) -> Snapshot | None:
        snapshot = await load_snapshot(self._shell.filer, self.chain.directory, self._shell.report)
        if snapshot is None or snapshot.offset > self._offsets.next_offset:
            return None
        return snapshot

    def configure(self, settings: LogSettings) -> None:
        self._files.settings = settings
