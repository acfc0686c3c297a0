"""Controls a run over one log: a process writes new segments, the flusher replaces the old ones."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from asyncio import create_subprocess_exec, create_task, subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

import kgw
from kgw.backend.base import (
    CompactionJob,
    CompactionReport,
    RecompressionJob,
    RecompressionReport,
)
from kgw.backend.embedded.compact.compaction import plan_compaction
from kgw.backend.embedded.compact.process import SideFileError, decode_line, encode_order
from kgw.backend.embedded.compact.process_exit import ProcessExit
from kgw.backend.embedded.compact.recompression import plan_recompression
from kgw.backend.embedded.compact.rewriting import JobT
from kgw.backend.embedded.log.swap import CompactedSegment, remove_directory
from kgw.errors import ProcessEndedError, StorageError

if TYPE_CHECKING:
    from asyncio import StreamReader
    from collections.abc import Awaitable, Callable

    from kgw.backend.embedded.compact.compaction import CompactionOrder
    from kgw.backend.embedded.compact.recompression import RecompressionOrder
    from kgw.backend.embedded.compact.rewriting import Order
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.shell import EmbeddedShell
    from kgw.backend.embedded.store import Store

ReportT = TypeVar("ReportT", bound=CompactionReport | RecompressionReport)

_MODULE: Final = "kgw.backend.embedded.compact.process"
_LINE_BYTES: Final = 16 << 20
"""Size limit of a line from the process, which lists the segments that one new segment replaces."""
_COMPLAINT_BYTES: Final = 64 << 10
"""Number of bytes to keep of a failed process's error output."""
_SHOWN_BYTES: Final = 200
_ATTEMPTS: Final = 8
"""Number of attempts before a run gives up. A run starts again after a side file was rebuilt, or if
retention has removed segments of the run."""


class _Run(ABC, Generic[JobT, ReportT]):
    """A run over one log."""

    work: ClassVar[str]
    """The verb in error messages that says what the process does."""
    report_type: type[ReportT]

    def __init__(
        self,
        log: SegmentedLog,
        job: JobT,
        store: Store,
        backend: EmbeddedShell,
        rebuild_segment: Callable[[int], Awaitable[None]],
    ) -> None:
        """`rebuild_segment` rebuilds the side file of the segment with a base offset."""
        self._log = log
        self._job = job
        self._store = store
        self._backend = backend
        self._rebuild_segment = rebuild_segment
        self._has_swapped = False

    async def run(self) -> ReportT:
        """Run as `Segmented.compact` or `Segmented.recompress`."""
        for _ in range(_ATTEMPTS):
            self._store.directory.check_writable()
            order = await self._backend.threads.run_in_flusher(self._plan)
            if not order.sources:
                return self._nothing(order)
            try:
                return await self._attempt(order)
            except SideFileError as error:
                await self._rebuild_segment(error.base_offset)
            except StorageError:
                if not self._has_lost(order):
                    raise
        raise StorageError(
            f"partition {self._log.key}: side files cannot be rebuilt, or segments are dropped "
            f"faster than the process {self.work} them"
        )

    @abstractmethod
    def _plan(self) -> Order[JobT]:
        """Return the order for the process. Runs in the flusher."""

    @abstractmethod
    def _nothing(self, order: Order[JobT]) -> ReportT:
        """Return the report of a run without any segment."""

    @abstractmethod
    def _exchange(self, segment: CompactedSegment, order: Order[JobT]) -> list[str]:
        """Replace segments by a new one with `swap_segment`. Runs in the flusher."""

    @abstractmethod
    def _note_end(self, report: ReportT) -> None:
        """Store the result of the whole run. Runs in the flusher."""

    @property
    def _is_dry_run(self) -> bool:
        return False

    def _has_lost(self, order: Order[JobT]) -> bool:
        """Return whether segments of the order have been removed since it was made."""
        log = self._log
        return not log.is_deleted and log.segments[0].base_offset > order.sources[0].base_offset

    async def _attempt(self, order: Order[JobT]) -> ReportT:
        threads = self._backend.threads
        try:
            report = await self._rewrite(order)
        finally:
            if not self._is_dry_run:
                await threads.run_in_flusher(self._remove_directory)
        if not self._is_dry_run:
            await threads.run_in_flusher(partial(self._note_end, report))
        return report

    def _remove_directory(self) -> None:
        """Remove new segments that have replaced nothing. After a failure, recovery does this."""
        if self._log.is_deleted or self._store.directory.failure is not None:
            return
        try:
            remove_directory(self._store.fs, self._log.path)
        except OSError as error:
            self._store.directory.report(f"{self._log.path}: {error}")

    async def _rewrite(self, order: Order[JobT]) -> ReportT:
        process = await _start()
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:  # pragma: no cover
            raise StorageError("a process was started without pipes")
        complaint = create_task(_read_end(stderr))
        try:
            # uvloop raises RuntimeError if the process has already ended. The code below finds out
            # why it ended.
            with suppress(RuntimeError):
                stdin.write(encode_order(order))
            # If a line has no newline, the process ended while writing it.
            while (line := await _read_line(stdout)).endswith(b"\n"):
                said = self._understand(line)
                if isinstance(said, self.report_type):
                    return said
                if not isinstance(said, CompactedSegment):
                    raise self._unclear(line, "it is another run's")
                await self._swap(said, order)
            ending = ProcessExit(await process.wait(), await complaint)
            raise ProcessEndedError(self._ended(ending.describe()), ending.kind)
        finally:
            if process.returncode is None:
                process.kill()
            stdin.close()
            await process.wait()
            await complaint

    def _understand(self, line: bytes) -> CompactedSegment | CompactionReport | RecompressionReport:
        try:
            return decode_line(line)
        except ValueError as error:
            raise self._unclear(line, error) from error

    def _unclear(self, line: bytes, reason: object) -> ProcessEndedError:
        shown = line[:_SHOWN_BYTES].decode(errors="replace").strip()
        problem = f"it said {shown!r}, which is none of its lines ({reason})"
        return ProcessEndedError(self._ended(problem), "unclear")

    def _ended(self, problem: str) -> str:
        return f"the process that {self.work} partition {self._log.key} has ended: {problem}"

    async def _swap(self, segment: CompactedSegment, order: Order[JobT]) -> None:
        if not self._has_swapped:
            # Once an old segment is replaced, a stored checkpoint that names it would seem to be
            # ahead of its log. So first make a new checkpoint, which names the active segment.
            await self._backend.checkpoint()
            self._has_swapped = True
        exchange = partial(self._exchange, segment, order)
        paths = await self._backend.threads.run_between_checkpoints(exchange)
        self._backend.remove_later(paths, self._log.settings.delete_delay_ms)


class CompactionRun(_Run[CompactionJob, CompactionReport]):
    """A run that keeps the newest record of each key."""

    work = "compacts"
    report_type = CompactionReport

    @property
    def _is_dry_run(self) -> bool:
        return self._job.is_dry_run

    def _plan(self) -> CompactionOrder:
        return plan_compaction(self._log, self._job, self._store.directory.options.min_free_bytes)

    def _nothing(self, order: CompactionOrder) -> CompactionReport:
        return CompactionReport(order.start_offset, True, 0, 0, 0, 0, 0, 0, 0, 0)

    def _exchange(self, segment: CompactedSegment, order: CompactionOrder) -> list[str]:
        return self._store.swap_segment(self._log, segment)

    def _note_end(self, report: CompactionReport) -> None:
        self._store.finish_compaction(self._log, report.compacted_end)


class RecompressionRun(_Run[RecompressionJob, RecompressionReport]):
    """A run that compresses records with zstd."""

    work = "recompresses"
    report_type = RecompressionReport

    def _plan(self) -> RecompressionOrder:
        return plan_recompression(
            self._log, self._job, self._store.directory.options.min_free_bytes
        )

    def _nothing(self, order: RecompressionOrder) -> RecompressionReport:
        return RecompressionReport(order.start_offset, 0, 0, 0, 0, 0)

    def _exchange(self, segment: CompactedSegment, order: RecompressionOrder) -> list[str]:
        (source,) = (one for one in order.sources if one.base_offset == segment.base_offset)
        return self._store.swap_recompressed(
            self._log, segment, source.end_offset, source.size_bytes
        )

    def _note_end(self, report: RecompressionReport) -> None:
        self._store.finish_recompression(self._log, report.recompressed_end)


async def _read_line(stream: StreamReader) -> bytes:
    """Return the next line, or the remaining bytes at the end; replace a line that is too long."""
    try:
        return await stream.readline()
    except ValueError:
        return b"a line of more than %d bytes\n" % _LINE_BYTES


async def _read_end(stream: StreamReader) -> str:
    """Return the last part of the stream's output."""
    end = b""
    while piece := await stream.read(_COMPLAINT_BYTES):
        end = (end + piece)[-_COMPLAINT_BYTES:]
    return end.decode(errors="replace")


async def _start() -> subprocess.Process:
    # The process uses the same code as this one, and no modules from the working directory.
    root = str(Path(kgw.__file__).parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        return await create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            _MODULE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=_LINE_BYTES,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
    except OSError as error:
        raise StorageError(f"cannot start a process for compaction: {error}") from error
