"""One run of compaction as the event loop sees it: a process compacts, the flusher swaps."""

from __future__ import annotations

import os
import sys
from asyncio import create_subprocess_exec, create_task, subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import kgw
from kgw.backend.base import CompactionReport
from kgw.backend.embedded.compact.compaction import plan_compaction
from kgw.backend.embedded.compact.ending import Ending
from kgw.backend.embedded.compact.process import SideFileError, decode_line, encode_order
from kgw.backend.embedded.log.swap import remove_directory
from kgw.errors import ProcessEndedError, StorageError

if TYPE_CHECKING:
    from asyncio import StreamReader
    from collections.abc import Awaitable, Callable

    from kgw.backend.base import CompactionJob
    from kgw.backend.embedded.compact.compaction import CompactionOrder
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.log.swap import CompactedSegment
    from kgw.backend.embedded.shell import Shell
    from kgw.backend.embedded.store import Store

_MODULE: Final = "kgw.backend.embedded.compact.process"
_LINE_BYTES: Final = 16 << 20
"""A line names the segments that one of them replaces."""
_COMPLAINT_BYTES: Final = 64 << 10
"""So much is kept of what a process that fails says."""
_SHOWN_BYTES: Final = 200
_ATTEMPTS: Final = 8
"""How often one run begins anew before it gives up: after a side file has been rebuilt, and when
retention has been quicker."""


class CompactionRun:
    """A run over one log."""

    def __init__(
        self,
        log: SegmentedLog,
        job: CompactionJob,
        store: Store,
        backend: Shell,
        rebuild_segment: Callable[[int], Awaitable[None]],
        forget_cached: Callable[[int], None],
    ) -> None:
        """`rebuild_segment` makes the side file of one anew, by its base offset.

        `forget_cached` is told the offset below which nothing cached counts any more.
        """
        self._log = log
        self._job = job
        self._store = store
        self._backend = backend
        self._rebuild_segment = rebuild_segment
        self._forget_cached = forget_cached
        self._has_swapped = False

    async def run(self) -> CompactionReport:
        """Run as `Segmented.compact`."""
        for _ in range(_ATTEMPTS):
            self._store.directory.check_writable()
            order = await self._backend.threads.run_in_flusher(self._plan)
            if not order.sources:
                return CompactionReport(order.start_offset, True, 0, 0, 0, 0, 0, 0, 0, 0)
            try:
                return await self._attempt(order)
            except SideFileError as error:
                await self._rebuild_segment(error.base_offset)
            except StorageError:
                if not self._has_lost(order):
                    raise
        raise StorageError(
            f"partition {self._log.key}: side files cannot be rebuilt, or segments are dropped "
            "faster than they are compacted"
        )

    def _plan(self) -> CompactionOrder:
        return plan_compaction(self._log, self._job, self._store.directory.options.min_free_bytes)

    def _has_lost(self, order: CompactionOrder) -> bool:
        """Whether segments that were to be compacted have been dropped since."""
        log = self._log
        return not log.is_deleted and log.segments[0].base_offset > order.sources[0].base_offset

    async def _attempt(self, order: CompactionOrder) -> CompactionReport:
        threads, store, log = self._backend.threads, self._store, self._log
        try:
            report = await self._compact(order)
        finally:
            if not self._job.is_dry_run:
                await threads.run_in_flusher(self._remove_directory)
        if not self._job.is_dry_run:
            finish = partial(store.finish_compaction, log, report.compacted_end)
            await threads.run_in_flusher(finish)
            self._forget_cached(report.compacted_end)
        return report

    def _remove_directory(self) -> None:
        """Remove what was not put in place. After a failure recovery knows what to do with it."""
        if self._log.is_deleted or self._store.failure is not None:
            return
        try:
            remove_directory(self._store.fs, self._log.path)
        except OSError as error:
            self._store.directory.report(f"{self._log.path}: {error}")

    async def _compact(self, order: CompactionOrder) -> CompactionReport:
        process = await _start()
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:  # pragma: no cover
            raise StorageError("a process was started without pipes")
        complaint = create_task(_read_end(stderr))
        try:
            stdin.write(encode_order(order))
            # A line that is cut is one that it did not come to say.
            while (line := await _read_line(stdout)).endswith(b"\n"):
                said = self._understand(line)
                if isinstance(said, CompactionReport):
                    return said
                await self._swap(said)
            ending = Ending(await process.wait(), await complaint)
            raise ProcessEndedError(self._ended(ending.describe()), ending.kind)
        finally:
            if process.returncode is None:
                process.kill()
            stdin.close()
            await process.wait()
            await complaint

    def _understand(self, line: bytes) -> CompactedSegment | CompactionReport:
        try:
            return decode_line(line)
        except ValueError as error:
            shown = line[:_SHOWN_BYTES].decode(errors="replace").strip()
            problem = f"it said {shown!r}, which is none of its lines ({error})"
            raise ProcessEndedError(self._ended(problem), "unclear") from error

    def _ended(self, problem: str) -> str:
        return f"the process that compacts partition {self._log.key} has ended: {problem}"

    async def _swap(self, compacted: CompactedSegment) -> None:
        if not self._has_swapped:
            # A stored checkpoint that names one of the old segments would be taken for one that
            # is ahead of its log. From now on it names the active one.
            await self._backend.checkpoint()
            self._has_swapped = True
        swap = partial(self._store.swap_segment, self._log, compacted)
        paths = await self._backend.threads.run_between_checkpoints(swap)
        self._backend.remove_later(paths, self._log.settings.delete_delay_ms)


async def _read_line(stream: StreamReader) -> bytes:
    """Return the next line, at the end what is left; a line that is too long is replaced."""
    try:
        return await stream.readline()
    except ValueError:
        return b"a line of more than %d bytes\n" % _LINE_BYTES


async def _read_end(stream: StreamReader) -> str:
    """Return the last of all that comes."""
    end = b""
    while piece := await stream.read(_COMPLAINT_BYTES):
        end = (end + piece)[-_COMPLAINT_BYTES:]
    return end.decode(errors="replace")


async def _start() -> subprocess.Process:
    # It finds the same code as this process, and nothing that lies in the working directory.
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
