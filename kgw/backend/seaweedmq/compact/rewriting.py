"""Rewrites sealed files, either by compaction or by compressing all records with zstd.

A run has one file in memory at a time, at most 64 MB. Neighbouring files that have become small are
joined. Batches are decompressed and compared in a thread, while the log is read and written. Each
file is replaced in one change, so a killed run leaves each file either old or rewritten.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import CompactionReport, RecompressionReport
from kgw.backend.seaweedmq.entries.layouts import Layout, encode
from kgw.backend.seaweedmq.log.log_files import payload_of
from kgw.backend.seaweedmq.log.reading import FilesChangedError
from kgw.errors import CorruptionError, StorageError
from kgw.records.cold import find_difference, to_zstd
from kgw.records.compaction import (
    AbortedBatches,
    CompactionPlan,
    NewestOffsets,
    Tally,
    compact_batches,
)
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import CompactionJob, RecompressionJob
    from kgw.backend.seaweedmq.chain import ChainFile, Payload
    from kgw.backend.seaweedmq.log.log_files import LogFiles
    from kgw.records.batch import RecordBatch

_CHUNK_BYTES: Final = 4 << 20
"""The size of a rewritten chunk."""
_ATTEMPTS: Final = 8
"""Number of attempts of a run; it starts again if retention has changed the files."""


class _Timed(NamedTuple):
    """A batch, and SMQ's time of the first entry that it was read from."""

    ts_ns: int
    batch: RecordBatch


class _Output:
    """The batches that replace one or more files."""

    def __init__(self, source: ChainFile, batches: list[_Timed], *, is_changed: bool) -> None:
        self.sources = [source]
        self.batches = batches
        self.is_changed = is_changed
        self.size_bytes = sum(len(batch.buffer) for _, batch in batches)

    def join(self, other: _Output) -> None:
        """Add the batches of the next file to the same file."""
        self.sources += other.sources
        self.batches += other.batches
        self.is_changed = True
        self.size_bytes += other.size_bytes


class _Run:
    """Base of the runs, which reads and writes files."""

    def __init__(self, files: LogFiles, bytes_per_s: int | None) -> None:
        self._files = files
        self._layout = files.layout
        self._bytes_per_s = bytes_per_s
        self._due_s = files.shell.clock.monotonic_s()
        self._bytes_read = 0

    async def _moved(self, size_bytes: int) -> None:
        """Sleep to respect the limit of bytes per second."""
        if self._bytes_per_s:
            clock = self._files.shell.clock
            # An idle second must not allow more bytes later.
            self._due_s = max(self._due_s, clock.monotonic_s()) + size_bytes / self._bytes_per_s
            await clock.sleep_until(self._due_s)

    async def _read(self, file: ChainFile) -> list[_Timed]:
        """Return a file's batches, verified."""
        batches: list[_Timed] = []
        async with aclosing(self._files.reader.chunks_of(file)) as chunks:
            async for chunk in chunks:
                decoded = chunk.decoded
                batches += map(_Timed, decoded.times_ns, decoded.batches)
                size_bytes = sum(len(batch.buffer) for batch in decoded.batches)
                self._bytes_read += size_bytes
                await self._moved(size_bytes)
        return batches

    def _payloads(self, batches: Sequence[_Timed]) -> list[Payload]:
        """Return the payloads to be written. Called in a thread."""
        payloads: list[Payload] = []
        gathered: list[RecordBatch] = []
        size_bytes = first_ts_ns = 0
        for ts_ns, batch in batches:
            if gathered and size_bytes + len(batch.buffer) > _CHUNK_BYTES:
                payloads.append(payload_of(encode(gathered, self._layout, first_ts_ns)))
                gathered, size_bytes = [], 0
            if not gathered:
                # The chunk's further entries get times that count up from this one, in steps no
                # larger than before. So times still rise from chunk to chunk.
                first_ts_ns = ts_ns
            gathered.append(batch)
            size_bytes += len(batch.buffer)
        payloads.append(payload_of(encode(gathered, self._layout, first_ts_ns)))
        return payloads


class ChainCompactionRun(_Run):
    """A run that keeps the newest record of each key."""

    def __init__(self, files: LogFiles, job: CompactionJob) -> None:
        super().__init__(files, job.bytes_per_s)
        self._job = job

    async def run(self) -> CompactionReport:
        """Run as `Segmented.compact`."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._attempt()
            except FilesChangedError:
                continue
            except RecordError as error:
                raise CorruptionError(f"partition {self._files.key}: {error}") from error
            finally:
                self._files.release()
        raise StorageError(
            f"partition {self._files.key}: files are dropped faster than they are compacted"
        )

    async def _attempt(self) -> CompactionReport:
        files, job = self._files, self._job
        start_offset = max(files.detail.compacted_end, files.detail.log_start_offset)
        sources = await files.hold(lambda file: file.base_offset < job.upper_bound)
        if not sources:
            return CompactionReport(start_offset, True, 0, 0, 0, 0, 0, 0, 0, 0)
        aborted = AbortedBatches(job.aborted)
        newest = NewestOffsets(job.key_memory_bytes)
        bound = end_offset = min(job.upper_bound, sources[-1].end_offset)
        for file in sources:
            if file.end_offset <= start_offset:
                continue
            collect = partial(
                _collect, newest, await self._read(file), start_offset, end_offset, job, aborted
            )
            full_at = await files.shell.run(collect)
            if full_at is not None:
                end_offset = full_at
                break
        plan = job.plan(newest.by_hash, start_offset, end_offset, aborted)
        tally = Tally()
        bytes_before = bytes_after = segments_before = segments_after = 0
        output: _Output | None = None
        for file in sources:
            if file.base_offset >= end_offset:
                break
            batches = await self._read(file)
            compact = partial(self._compact, file, batches, plan, tally)
            compacted = await files.shell.run(compact)
            segments_before += 1
            bytes_before += file.content_bytes
            bytes_after += compacted.size_bytes
            if output is not None and self._may_join(output, compacted):
                output.join(compacted)
                continue
            if output is not None:
                await self._finish(output)
            segments_after += 1
            output = compacted
        if output is not None:
            await self._finish(output)
        compacted_end = max(start_offset, end_offset)
        if not job.is_dry_run:
            await files.save(lambda detail: detail._replace(compacted_end=compacted_end))
        return CompactionReport(
            compacted_end=compacted_end,
            is_complete=end_offset == bound,
            bytes_read=self._bytes_read,
            bytes_before=bytes_before,
            bytes_after=bytes_after,
            records_before=tally.records_before,
            records_after=tally.records_after,
            tombstones_removed=tally.tombstones_removed,
            segments_before=segments_before,
            segments_after=segments_after,
        )

    def _compact(
        self, file: ChainFile, batches: list[_Timed], plan: CompactionPlan, tally: Tally
    ) -> _Output:
        times = {batch.base_offset: ts_ns for ts_ns, batch in batches}
        found = list(compact_batches((batch for _, batch in batches), plan, tally))
        if all(is_same for _, is_same in found):
            return _Output(file, batches, is_changed=False)
        # Each new batch has the base offset of an old one.
        compacted = [_Timed(times[batch.base_offset], batch) for batch, _ in found]
        return _Output(file, compacted, is_changed=True)

    def _may_join(self, before: _Output, output: _Output) -> bool:
        """Return whether two outputs may become one file.

        An unchanged file that is at least half full is not copied only for that.
        """
        limit_bytes = min(self._files.settings.segment_bytes, self._files.shell.options.file_bytes)
        return (
            before.is_changed or before.size_bytes * 2 < limit_bytes
        ) and before.size_bytes + output.size_bytes <= limit_bytes

    async def _finish(self, output: _Output) -> None:
        if self._job.is_dry_run or not output.is_changed:
            return
        payloads = await self._files.shell.run(partial(self._payloads, output.batches))
        await self._moved(output.size_bytes)
        await self._files.replace(output.sources, payloads)


class ChainRecompressionRun(_Run):
    """A run that compresses records with zstd."""

    def __init__(self, files: LogFiles, job: RecompressionJob) -> None:
        super().__init__(files, job.bytes_per_s)
        self._job = job

    async def run(self) -> RecompressionReport:
        """Run as `Segmented.recompress`. In layout `records` nothing is compressed."""
        try:
            return await self._run()
        finally:
            self._files.release()

    async def _run(self) -> RecompressionReport:
        files, job = self._files, self._job
        done_end = max(files.detail.recompressed.end_offset, files.detail.log_start_offset)
        sources = await files.hold(lambda file: done_end < file.end_offset <= job.upper_bound)
        exchanged = bytes_before = bytes_after = tried = 0
        failures: list[str] = []
        if sources:
            begun_end = sources[-1].end_offset
            await files.save(
                lambda detail: detail._replace(
                    recompressed=detail.recompressed._replace(
                        begun_end=max(detail.recompressed.begun_end, begun_end)
                    )
                )
            )
        for file in sources:
            before, after = file.content_bytes, file.content_bytes
            try:
                after = await self._try(file)
            except FilesChangedError:
                continue
            except CorruptionError as error:
                failures.append(str(error))
            tried += 1
            done_end = file.end_offset
            if after < before:
                exchanged += 1
                bytes_before += before
                bytes_after += after
        if sources:
            await files.save(
                lambda detail: detail._replace(recompressed=detail.recompressed.add(done_end))
            )
        return RecompressionReport(
            recompressed_end=done_end,
            segments=tried,
            segments_exchanged=exchanged,
            bytes_before=bytes_before,
            bytes_after=bytes_after,
            bytes_read=self._bytes_read,
            failures=tuple(failures),
        )

    async def _try(self, file: ChainFile) -> int:
        """Recompress one file if that makes it smaller; return its size afterwards.

        Raises CorruptionError, FilesChangedError.
        """
        if self._layout is Layout.RECORDS:
            return file.content_bytes
        batches = await self._read(file)
        smaller = await self._files.shell.run(partial(self._smaller, batches))
        if smaller is None:
            return file.content_bytes
        payloads = await self._files.shell.run(partial(self._payloads, smaller))
        before = file.content_bytes
        after = sum(payload.content_bytes for payload in payloads)
        await self._moved(after)
        await self._files.replace(
            [file],
            payloads,
            lambda detail: detail._replace(
                recompressed=detail.recompressed.add(file.end_offset, before, after)
            ),
        )
        return after

    def _smaller(self, batches: Sequence[_Timed]) -> list[_Timed] | None:
        """Return the batches in zstd, None if no batch gets smaller. Raises CorruptionError."""
        job = self._job
        is_changed = False
        result: list[_Timed] = []
        for ts_ns, batch in batches:
            smaller = to_zstd(batch, job.level, job.limits)
            if smaller is not batch:
                is_changed = True
                self._compare(batch, smaller)
            result.append(_Timed(ts_ns, smaller))
        return result if is_changed else None

    def _compare(self, before: RecordBatch, after: RecordBatch) -> None:
        try:
            problem = find_difference(before, after, self._job.limits)
        except RecordError as error:
            problem = str(error)
        if problem is not None:
            raise CorruptionError(
                f"partition {self._files.key}: recompressed it would not be the same at offset "
                f"{before.base_offset}: {problem}"
            )


def _collect(
    newest: NewestOffsets,
    batches: Sequence[_Timed],
    start_offset: int,
    end_offset: int,
    job: CompactionJob,
    aborted: AbortedBatches,
) -> int | None:
    """Collect the keys of a file; return the offset at which the map was full. In a thread."""
    for _, batch in batches:
        if batch.next_offset <= start_offset:
            continue
        if batch.base_offset >= end_offset:
            return None
        full_at = newest.add(batch, start_offset, end_offset, job.limits, aborted)
        if full_at is not None:
            return full_at
    return None
