"""The threads of an open data directory: one that writes, and others that wait for the disk.

All of them begin when the directory is opened, so that a system that has no more threads refuses
the start, and nothing that comes later.
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
    from kgw.backend.embedded.write.write_path import Append, WritePath
    from kgw.clock import Clock

_Result = TypeVar("_Result")


class Threads:
    """Ways to have something done that the event loop must not wait for."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: EmbeddedOptions,
        writes: WritePath,
        show: Callable[[list[Append], list[SegmentedLog]], None],
        clock: Clock,
    ) -> None:
        """Begin all threads; `show` is for the `Flusher`.

        Raises DataDirectoryError where the system has not so many.
        """
        self._loop = loop
        self._executors: list[ThreadPoolExecutor] = []
        self._is_closed = False
        self._reads: PatientReads | None = None
        self.sealed_segments = asyncio.Lock()
        """Held while a checkpoint is made, or while sealed segments are rewritten or exchanged."""
        try:
            self.io = self._begin(options.io_threads, "kgw-io")
            self._reads = PatientReads(self.io, clock)
            self.ahead = self._begin(options.read_ahead_threads, "kgw-ahead")
            self.maintenance = self._begin(1, "kgw-maintenance")
            self.write_back = self._begin(1, "kgw-write-back")
            # Of its own: a strict append never waits behind the syncs of relaxed ones.
            self.relaxed = self._begin(options.flush_threads, "kgw-relaxed")
            # So that neither appends nor long maintenance and the small notes of logs hold up each
            # other: one takes three syncs.
            self.notes = self._begin(1, "kgw-notes")
            self.flusher = Flusher(loop, writes, show)
        except RuntimeError as error:
            self._end()
            raise DataDirectoryError(f"the system has not enough threads: {error}") from error

    def _begin(self, count: int, name: str) -> ThreadPoolExecutor:
        executor = ThreadPoolExecutor(count, name)
        self._executors.append(executor)
        # An executor begins a thread when all that it has are busy.
        go_on = Event()
        try:
            for _ in range(count):
                executor.submit(go_on.wait)
        finally:
            go_on.set()
        return executor

    async def aclose(self) -> None:
        """Write what is queued, and wait for all that was begun. A second call does nothing."""
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
        """Run a function in the thread that writes, between two groups."""
        self._check_open()
        return await self.flusher.run(function)

    async def run_in_io(self, function: Callable[[], _Result]) -> _Result:
        """Run a function that waits for the disk, in one of several threads."""
        return await self._run_patiently(function, is_read=False)

    async def read(self, function: Callable[[], _Result]) -> _Result:
        """Run a function that reads from the disk, in one of the same threads.

        When a file hangs, its read keeps a thread. Another thread then takes the other reads, and
        what `run_in_io` is given.
        """
        return await self._run_patiently(function, is_read=True)

    async def _run_patiently(self, function: Callable[[], _Result], *, is_read: bool) -> _Result:
        self._check_open()
        assert self._reads is not None  # noqa: S101 - for the type checker
        return await self._reads.run(function, is_read=is_read)

    async def note(self, function: Callable[[], _Result]) -> _Result:
        """Run a function that replaces small files of a log, beside the flusher."""
        return await self._run(self.notes, function)

    async def maintain(self, function: Callable[[], _Result]) -> _Result:
        """Run a function that takes long and rewrites files of sealed segments.

        In a thread that does one thing after the other, while no segment is exchanged.
        """
        async with self.sealed_segments:
            return await self._run(self.maintenance, function)

    async def run_between_checkpoints(self, function: Callable[[], _Result]) -> _Result:
        """Run a function in the flusher while nobody rewrites files of sealed segments."""
        async with self.sealed_segments:
            return await self.run_in_flusher(function)
