"""A partition whose records are in a chain of SMQ's log files."""

from __future__ import annotations

from asyncio import Lock, ensure_future, wait
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from kgw.backend.append import Append, AppendResult, refused_append
from kgw.backend.base import (
    ReadResult,
    Segmented,
    SegmentInfo,
)
from kgw.backend.hot_cache import CachedTail
from kgw.backend.managed_log import ManagedLog
from kgw.backend.seaweedmq.chain import NotWriterError, Payload
from kgw.backend.seaweedmq.compact.joining import Joiner
from kgw.backend.seaweedmq.entries.layouts import Encoded, Layout, encode
from kgw.backend.seaweedmq.log.snapshots import load_snapshot, save_snapshot
from kgw.completion import until_done
from kgw.errors import CorruptionError, StorageError
from kgw.logs import EventLogger
from kgw.offsets.manager import PartitionOffsetManager
from kgw.problems import DAMAGE, READS, WAITING
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from kgw.backend.base import (
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
    from kgw.backend.seaweedmq.log.log_files import LogFiles
    from kgw.completion import Completion
    from kgw.records.batch import RecordBatch


_log = EventLogger(__name__)


class _Submitted(Append):
    """An append between its submission and its end."""

    __slots__ = ("batches", "encoded", "size_bytes")

    def __init__(self, batches: list[RecordBatch], result: AppendResult, size_bytes: int) -> None:
        super().__init__()
        self.batches = batches
        self.result = result
        self.size_bytes = size_bytes
        self.encoded: Encoded | None = None


class SeaweedMqPartitionLog(ManagedLog, Segmented):
    """One partition's log: its chain, its cached tail, and the queue of its appends."""

    def __init__(self, files: LogFiles) -> None:
        self.key = files.key
        self.tail = CachedTail()
        self._files = files
        self._chain = chain = files.chain
        self._shell = files.shell
        self._reader = files.reader
        self._offsets = PartitionOffsetManager(files.detail.log_start_offset, chain.end_offset)
        self._failure: StorageError | None = None
        self._rewriting = Lock()
        self._saving = Lock()
        # Appends that the chain does not have yet, and the task that they wait for.
        self._queue: deque[_Submitted] = deque()
        self._busy: Task[None] | None = None
        self._in_flight: deque[_Submitted] = deque()
        self._refused: list[_Submitted] = []
        self._refusal: Exception | None = None
        self._joiner = Joiner(files)
        self._last_ts_ns = files.detail.last_ts_ns
        # Size and time of the file that the next append goes into. If the chain has begun another
        # file by itself, the next one is begun earlier than necessary.
        self._file_bytes = chain.files[-1].content_bytes if chain.files else 0
        self._file_begun_ms = chain.files[-1].begun_ms if chain.files else 0
        chain.on_lost = self._lose

    def __repr__(self) -> str:
        return f"<SeaweedMqPartitionLog {self.key} {self._offsets!r}>"

    @property
    def _epochs(self) -> Sequence[EpochStart]:
        return self._files.detail.epochs

    @property
    def size_bytes(self) -> int:
        return sum(file.content_bytes for file in self._chain.files)

    @property
    def has_failed(self) -> bool:
        return self._chain.failure is not None

    @property
    def why_stopped(self) -> str | None:
        """Why it takes no more writes, for good; None if it takes writes."""
        failure = self._chain.failure
        if failure is None:
            return None
        if isinstance(failure, NotWriterError):
            return f"partition {self.key} is led by another gateway: {failure}"
        return f"partition {self.key} takes no more writes: {failure}"

    @property
    def directory(self) -> str:
        """The directory of its files."""
        return self._chain.directory

    @property
    def sealed_files(self) -> set[str]:
        """The names of the files that must exist."""
        return {file.name for file in self._chain.files[:-1]}

    @property
    def file_count(self) -> int:
        """The number of files that its leader entry lists."""
        return len(self._chain.files)

    @property
    def stuck_s(self) -> float:
        """For how many seconds the oldest append has waited, or appends have been refused."""
        since_s = self._chain.waiting_since_s
        waited_s = 0.0 if since_s is None else self._shell.clock.monotonic_s() - since_s
        return max(waited_s, self._chain.troubled_s)

    @property
    def trouble(self) -> str | None:
        """The last error of SeaweedFS, if a request has to be repeated because of it."""
        return self._chain.trouble

    @property
    def next_leader_epoch(self) -> int:
        return self._files.detail.opened(self.end_offset).epochs[-1].leader_epoch

    # --- appends ---------------------------------------------------------------------------------

    def append(self, batches: Sequence[RecordBatch]) -> Append:
        # An append submitted before a failure is settled would follow offsets that are missing.
        refusal = self._failure or self._refusal or self._chain.failure
        stop = self._shell.filer.write_stop
        if refusal is None and stop is not None:
            refusal = StorageError(stop)
        if refusal is None and self.file_count >= self._shell.options.most_files:
            self._joiner.look()
            refusal = StorageError(
                f"{self._chain.directory} lists {self.file_count} files: no append is taken until "
                "some are joined or removed"
            )
        if refusal is not None:
            return refused_append(refusal)
        size_bytes = sum([len(batch.buffer) for batch in batches])
        if not self._shell.append_room.take(size_bytes):
            self._shell.refusals.note(WAITING, self._shell.too_much_waits)
            return refused_append(StorageError(self._shell.too_much_waits))
        try:
            submitted = _Submitted(list(batches), self._assign(batches), size_bytes)
        except BaseException:
            self._shell.append_room.give_back(size_bytes)
            raise
        self._queue.append(submitted)
        if self._busy is None:
            self._hand_over()
        return submitted

    def _hand_over(self) -> None:
        """Give the queued appends to the chain, up to one that a thread must encode first."""
        queue = self._queue
        while queue and self._busy is None:
            submitted = queue[0]
            if submitted.encoded is None:
                # For another layout, batches must be unpacked and built anew.
                if self._layout is Layout.RECORDS and (
                    submitted.size_bytes > self._shell.options.decoded_on_loop_bytes
                ):
                    self._busy = ensure_future(self._encode_in_thread(submitted))
                    return
                try:
                    submitted.encoded = self._encoding(submitted)()
                except Exception as error:  # noqa: BLE001 - whoever waits for an append is told
                    self._refuse(error)
                    return
            encoded = submitted.encoded
            if self._is_file_full(encoded):
                # If the roll is refused, the appends after it fail with it.
                self._chain.roll(submitted.result.base_offset)
                self._file_bytes = 0
            if not self._file_bytes:
                self._file_begun_ms = self._shell.clock.wall_ms()
            queue.popleft()
            self._last_ts_ns = encoded.last_ts_ns
            self._file_bytes += encoded.batch_bytes
            self._in_flight.append(submitted)
            payload = Payload(
                encoded.pieces,
                encoded.size_bytes,
                submitted.result.base_offset,
                submitted.result.last_offset + 1,
                encoded.largest_timestamp_ms,
                encoded.batch_bytes,
            )
            self._chain.append(payload).then(partial(self._settled, submitted, encoded))

    @property
    def _layout(self) -> Layout:
        return Layout(self._files.settings.layout or self._shell.options.layout)

    def _encoding(self, submitted: _Submitted) -> Callable[[], Encoded]:
        ts_ns = max(self._shell.clock.wall_ms() * 1_000_000, self._last_ts_ns + 1)
        return partial(encode, submitted.batches, self._layout, ts_ns)

    async def _encode_in_thread(self, submitted: _Submitted) -> None:
        try:
            submitted.encoded = await self._shell.run(self._encoding(submitted))
        except Exception as error:  # noqa: BLE001 - whoever waits for an append is told
            self._refuse(error)
        finally:
            self._busy = None
        if self._refusal is None:
            self._hand_over()

    def _is_file_full(self, encoded: Encoded) -> bool:
        """Return whether the next append must begin another file."""
        if not self._file_bytes:
            return False
        options = self._shell.options
        limit_bytes = min(self._files.settings.segment_bytes, options.file_bytes)
        age_ms = self._shell.clock.wall_ms() - self._file_begun_ms
        return self._file_bytes + encoded.batch_bytes > limit_bytes or age_ms >= options.file_ms

    def _settled(self, submitted: _Submitted, encoded: Encoded, stored: Completion[None]) -> None:
        """Tell of an append's end; the chain's come in the order of their submission."""
        self._in_flight.remove(submitted)
        if stored.error is not None:
            self._refused.append(submitted)
            self._refuse(stored.error)
            return
        self._shell.append_room.give_back(submitted.size_bytes)
        self._show(encoded, submitted.result.last_offset + 1)
        submitted.finish()
        self._joiner.look()
        if self._refusal is not None:
            self._give_up()

    def _show(self, encoded: Encoded, end_offset: int) -> None:
        self._offsets.advance_durable(end_offset)
        self._shell.cache.add([(self.tail, batch) for batch in encoded.batches])
        if self.on_advance is not None:
            try:
                self.on_advance(end_offset, encoded.batch_bytes)
            except Exception as error:  # noqa: BLE001 - whoever waits for the append is told
                _log.error("told of an advance, it failed", error=error, partition=str(self.key))
        self._shell.add_to_replay(encoded.batch_bytes)

    def _refuse(self, error: Exception) -> None:
        """Refuse all appends that are not stored: none may follow a failed one."""
        if self._refusal is None:
            self._refusal = error
        self._refused += self._queue
        self._queue.clear()
        self._give_up()

    def _give_up(self) -> None:
        """Once the chain has no append of ours any more, assign the refused offsets anew."""
        error = self._refusal
        if self._in_flight or error is None:
            return
        refused, self._refused = self._refused, []
        self._refusal = None
        self._offsets.rewind(self._offsets.high_watermark)
        self._file_bytes = self._chain.files[-1].content_bytes if self._chain.files else 0
        refused.sort(key=lambda one: one.result.base_offset)
        for submitted in refused:
            self._shell.append_room.give_back(submitted.size_bytes)
            submitted.error = error
        for submitted in refused:
            submitted.finish()

    def _lose(self, error: NotWriterError) -> None:
        """Stop appending: another gateway leads."""
        self._failure = error
        self._shell.on_lost()

    def retire(self, reason: str) -> None:
        """Refuse appends from now on."""
        if self._failure is None:
            self._failure = StorageError(reason)

    async def restore(self) -> None:
        """Put the last changes back if the filer has lost them. Raises FilerError.

        If the filer has a state that cannot be this writer's, that is reported and not raised.
        """
        try:
            await self._chain.restore()
        except CorruptionError as error:
            self._shell.report(str(error), DAMAGE)

    def forget_sealed(self) -> None:
        """Drop the entries that `restore` needs for files sealed long ago."""
        self._chain.forget_sealed()

    async def aclose(self, deadline_s: float, *, is_orderly: bool = True) -> None:
        """Wait until the submitted appends are settled, record the end of the log, and close.

        From the deadline on, by the monotonic clock, it waits no more: then it is unknown whether
        the unanswered appends are stored. Raises StorageError when the end was not recorded: the
        next start begins another leader epoch.
        """
        ending = ensure_future(self._end(is_orderly=is_orderly))
        timer = self._shell.clock.call_at(deadline_s, ending.cancel)
        self._joiner.stop()
        try:
            await wait([ending])
        finally:
            timer.cancel()
            await self._chain.aclose(deadline_s)
            await self._joiner.aclose()
        if ending.cancelled():
            raise StorageError(f"partition {self.key}: the filer has not answered in time")
        await ending

    async def _end(self, *, is_orderly: bool) -> None:
        await self._settle()
        end_offset = self._offsets.high_watermark
        if is_orderly and self._chain.failure is None and end_offset:
            await self._files.save(
                lambda detail: (
                    detail
                    if detail.clean_end == end_offset
                    else detail._replace(clean_end=end_offset, last_ts_ns=self._last_ts_ns)
                )
            )

    async def _settle(self) -> None:
        """Wait until no append is queued or in the chain."""
        while self._busy is not None or self._in_flight:
            await self._wait_for_one()

    async def _wait_for_one(self) -> None:
        """Wait for the append that is being encoded, or else for the last one in the chain."""
        if self._busy is not None:
            # A caller that is cancelled must not cancel the task.
            await wait([self._busy])
        else:
            await until_done(self._in_flight[-1])

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
            # Deleted meanwhile: the records that follow were not requested.
            return ReadResult([], 0, offset)
        return result

    async def find_by_time(
        self,
        timestamp_ms: int,
        lower_bound: int,
        upper_bound: int,
        look: Callable[[RecordBatch], FoundT | None],
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
                # The bytes count, so that even after a kill before the first checkpoint the next
                # start need not read them all.
                self._shell.add_to_replay(len(batch.buffer))
                yield batch
        except CorruptionError as error:
            await self._report(error)
            raise

    async def verify_end(self) -> None:
        """Read the last chunk, to verify the end of a log that another gateway may have written.

        Reports damage and does not raise it. Raises NotWriterError.
        """
        try:
            decoded = await self._reader.last_chunk()
        except CorruptionError as error:
            await self._report(error)
        except StorageError as error:
            # Readers of the chunk get the error.
            self._shell.report(f"the end of partition {self.key} is not verified: {error}")
        else:
            if decoded is not None:
                self._last_ts_ns = max(self._last_ts_ns, decoded.last_ts_ns)

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
            await self._chain.check_is_writer()
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
        """Return whether this log has nothing left to read below an offset."""
        return self._failure is not None or self._offsets.log_start_offset >= end_offset

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
            for file in self._chain.files
        ]
        return found if found and (len(found) > 1 or found[0].size_bytes) else []

    async def roll(self) -> None:
        # The offsets of refused appends are assigned anew: no file may begin after them.
        while self._busy is not None or self._refusal is not None:
            await self._wait_for_one()
        if self._file_bytes:
            self._file_bytes = 0
            await self._chain.roll(self._offsets.next_offset)

    async def compact(self, job: CompactionJob) -> CompactionReport:
        # Imported here to keep start-up fast.
        from kgw.backend.seaweedmq.compact.rewriting import ChainCompactionRun

        async with self._rewriting:
            run = ChainCompactionRun(self._files, self._layout, job)
            report = await self._reporting(self._joining_after(run.run()))
        if not job.is_dry_run:
            self.tail.forget_below(report.compacted_end)
        return report

    async def _joining_after(self, run: Awaitable[FoundT]) -> FoundT:
        """After a run, when no files are held any more, look for files to join."""
        try:
            return await run
        finally:
            self._joiner.look(anew=True)

    async def recompress(self, job: RecompressionJob) -> RecompressionReport:
        # Imported here to keep start-up fast.
        from kgw.backend.seaweedmq.compact.rewriting import ChainRecompressionRun

        async with self._rewriting:
            run = ChainRecompressionRun(self._files, self._layout, job)
            report = await self._reporting(self._joining_after(run.run()))
        self.tail.forget_below(report.recompressed_end)
        return report

    # --- derived state ---------------------------------------------------------------------------

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        async with self._saving:
            await save_snapshot(self._shell.filer, self._chain.directory, snapshot)

    async def load_snapshot(self) -> Snapshot | None:
        snapshot = await load_snapshot(self._shell.filer, self._chain.directory, self._shell.report)
        if snapshot is None or snapshot.offset > self._offsets.next_offset:
            return None
        return snapshot

    def configure(self, settings: LogSettings) -> None:
        self._files.settings = settings
