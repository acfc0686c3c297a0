"""The threads of an open data directory. One thread writes, the others wait for the disk.

All threads are started when the directory is opened. So if the system allows too few threads, the
start fails instead of a later operation.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from kgw.backend.embedded.read.patient_reads import PatientReads
from kgw.backend.embedded.write.flusher import Flusher
from kgw.errors import DataDirectoryError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.backend.embedded.write.write_path import DiskAppend, WritePath
    from kgw.clock import Clock

_Result = TypeVar("_Result")


class Threads:
    """Runs functions that would block the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: EmbeddedOptions,
        writes: WritePath,
        show: Callable[[list[DiskAppend], list[SegmentedLog]], None],
        clock: Clock,
    ) -> None:
        """Start all threads; `show` is passed to the `Flusher`.

        Raises DataDirectoryError if the system does not allow that many threads.
        """
        self._loop = loop
        self._executors: list[ThreadPoolExecutor] = []
        self._is_closed = False
        self._reads: PatientReads | None = None
        self.sealed_segments = asyncio.Lock()
        """Held while a checkpoint is made, or while sealed segments are rewritten or replaced."""
        try:
            self.io = self._begin(options.io_threads, "kgw-io")
            self._reads = PatientReads(self.io, clock)
            self.ahead = self._begin(options.read_ahead_threads, "kgw-ahead")
            self.maintenance = self._begin(1, "kgw-maintenance")
            self.write_back = self._begin(1, "kgw-write-back")
            # Separate threads, so that appends to strict logs never wait for syncs of relaxed logs.
            self.relaxed = self._begin(options.flush_threads, "kgw-relaxed")
            # A separate thread for small files of logs: replacing one takes three syncs, which
            # would delay appends or wait behind long maintenance.
            self.notes = self._begin(1, "kgw-notes")
            self.flusher = Flusher(loop, writes, show)
        except RuntimeError as error:
            self._end()
            raise DataDirectoryError(f"the system has not enough threads: {error}") from error

    def _begin(self, count: int, name: str) -> ThreadPoolExecutor:
        executor = ThreadPoolExecutor(count, name)
        self._executors.append(executor)
        # An executor starts another thread only if all its threads are busy. So keep them busy
        # until all are started.
        go_on = Event()
        try:
            for _ in range(count):
                executor.submit(go_on.wait)
        finally:
            go_on.set()
        return executor

    async def aclose(self) -> None:
        """Write the queued appends, and wait for running functions. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        await self.flusher.aclose()
        self._end()

    def _end(self) -> None:
        self._is_closed = True
        for executor in self._executors:
            executor.shutdown()
        if self._reads is not None:
            self._reads.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageError("the backend is not open")

    async def _run(self, executor: ThreadPoolExecutor, function: Callable[[], _Result]) -> _Result:
        self._check_open()
        return await self._loop.run_in_executor(executor, function)

    async def run_in_flusher(self, function: Callable[[], _Result]) -> _Result:
        """Run a function in the thread that writes, between two groups of appends."""
        self._check_open()
        return await self.flusher.run(function)

    async def run_in_io(self, function: Callable[[], _Result], *, is_read: bool = False) -> _Result:
        """Run a function that waits for the disk, in one of several threads."""
        self._check_open()
        assert self._reads is not None  # noqa: S101 - for the type checker
        return await self._reads.run(function, is_read=is_read)

    async def read(self, function: Callable[[], _Result]) -> _Result:
        """Run a function that reads from the disk, in one of the threads of `run_in_io`.

        If a file hangs, its read occupies a thread. Another thread then runs the other reads and
        the functions of `run_in_io`.
        """
        return await self.run_in_io(function, is_read=True)

    async def note(self, function: Callable[[], _Result]) -> _Result:
        """Run a function that replaces small files of a log, in a thread beside the flusher."""
        return await self._run(self.notes, function)

    async def maintain(self, function: Callable[[], _Result]) -> _Result:
        """Run a function that takes long and rewrites files of sealed segments.

        Its thread runs one function at a time. No segment is replaced meanwhile.
        """
        async with self.sealed_segments:
            return await self._run(self.maintenance, function)

    async def run_between_checkpoints(self, function: Callable[[], _Result]) -> _Result:
        """Run a function in the flusher while no files of sealed segments are being rewritten."""
        async with self.sealed_segments:
            return await self.run_in_flusher(function)
