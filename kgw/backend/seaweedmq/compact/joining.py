"""Joins the small files of a partition, while records are read and written.

The batches are verified and their bytes copied unchanged. If the process is killed, or if retention
or compaction changes the files first, the log stays unchanged.
"""

from __future__ import annotations

from asyncio import Task, ensure_future, wait
from contextlib import aclosing
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from kgw.backend.seaweedmq.chain import Payload
from kgw.backend.seaweedmq.compact.joining_rules import JoinLimits, find_run
from kgw.backend.seaweedmq.log.reading import FilesChangedError
from kgw.errors import CorruptionError, StorageError
from kgw.logs import EventLogger, QuietLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from kgw.backend.seaweedmq.chain import ChainFile
    from kgw.backend.seaweedmq.log.log_files import LogFiles

_RETRY_S: Final = 60.0
"""A failed join is tried again after this time."""
_DAMAGED_S: Final = 600.0
"""A damaged file is tried again after this time, because its volume may have been moving."""

ResultT = TypeVar("ResultT")

_log = EventLogger(__name__)


class Joiner:
    """Joins the files of one partition when there are many small ones."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._task: Task[None] | None = None
        self._seen: ChainFile | None = None
        """The active file at the last check. Only after another file has begun are there new files
        to join."""
        self._look_again_s = inf
        """At this monotonic time, files are checked again even if no other file has begun."""
        self._left_alone: dict[str, float] = {}
        """Unreadable files, each with the time at which it is tried again."""
        self._is_closed = False
        self._quiet = QuietLog(_log)

    def look(self, *, anew: bool = False) -> None:
        """Start joining files if this is possible and another file has begun since the last check.

        With `anew`, or a while after a failed join, it checks even if no other file has begun.
        """
        files = self._files.chain.files
        if self._task is not None or self._is_closed or not files:
            return
        now_s = self._files.shell.clock.monotonic_s()
        if not anew and files[-1] is self._seen and now_s < self._look_again_s:
            return
        self._seen = files[-1]
        self._look_again_s = inf
        names = {file.name for file in files}
        self._left_alone = {
            name: until_s
            for name, until_s in self._left_alone.items()
            if name in names and now_s < until_s
        }
        if self._next_run():
            self._task = ensure_future(self._join_all())
            self._task.add_done_callback(self._ended)

    async def look_after(self, run: Awaitable[ResultT]) -> ResultT:
        """Await a run that holds files; after that, look for files to join."""
        try:
            return await run
        finally:
            self.look(anew=True)

    def stop(self) -> None:
        """Cancel the join that is running."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """Wait until a cancelled join has ended. Call this after closing the chain."""
        if self._task is not None:
            # The caller may be cancelled itself.
            await wait([self._task])

    def _next_run(self) -> Sequence[ChainFile]:
        files = self._files
        shell, detail = files.shell, files.detail
        chain_options = shell.options.chain
        # In a file that was written whole, two adjacent chunks are together larger than
        # `chunk_bytes`.
        chunks_bytes = (chain_options.file_chunks - 1) * chain_options.chunk_bytes // 2
        limit_bytes = min(files.settings.segment_bytes, shell.options.file_bytes, chunks_bytes)
        bounds = JoinLimits(
            limit_bytes,
            files.held_end,
            (detail.compacted_end, detail.recompressed.end_offset),
            self._left_alone.keys(),
        )
        return find_run(files.chain.files, bounds, shell.clock.wall_ms())

    async def _join_all(self) -> None:
        """Join runs of files until none is left, in one partition of the gateway at a time."""
        while True:
            async with self._files.shell.joining:
                sources = self._next_run()
                if not sources:
                    return
                try:
                    await self._join(sources)
                except FilesChangedError:
                    # Another run has changed the files first.
                    self._look_again_s = self._files.shell.clock.monotonic_s() + _RETRY_S
                    return
                except StorageError as error:
                    self._complain(str(error))
                    self._look_again_s = self._files.shell.clock.monotonic_s() + _RETRY_S
                    return

    async def _join(self, sources: Sequence[ChainFile]) -> None:
        payloads: list[Payload] = []
        for file in sources:
            try:
                payloads += await self._payloads(file)
            except StorageError as error:
                # Another writer may have removed the file. Then this writer stops joining.
                await self._files.chain.ledger.check_epoch()
                # Leave this file; join the files before it and after it.
                is_damaged = isinstance(error, CorruptionError)
                until_s = self._files.shell.clock.monotonic_s()
                until_s += _DAMAGED_S if is_damaged else _RETRY_S
                self._left_alone[file.name] = until_s
                self._look_again_s = min(self._look_again_s, until_s)
                if is_damaged:
                    self._files.shell.report(str(error))
                else:
                    self._complain(str(error))
                return
        await self._files.replace(sources, payloads, is_join=True)
        _log.debug(
            "log files joined",
            directory=self._files.chain.directory,
            files=len(sources),
            size_bytes=sum(payload.size_bytes for payload in payloads),
        )

    async def _payloads(self, file: ChainFile) -> list[Payload]:
        """Return the entries of a file, verified. Raises CorruptionError, FilesChangedError."""
        payloads: list[Payload] = []
        async with aclosing(self._files.reader.chunks_of(file)) as chunks:
            async for place, data, decoded in chunks:
                payloads.append(
                    Payload(
                        [data],
                        len(data),
                        place.base_offset,
                        min(place.end_offset, file.end_offset),
                        place.largest_timestamp_ms,
                        sum(len(batch.buffer) for batch in decoded.batches),
                    )
                )
        return payloads

    def _complain(self, reason: str) -> None:
        self._quiet.warning(
            "log files could not be joined",
            "join",
            self._files.shell.clock.monotonic_s(),
            {"directory": self._files.chain.directory, "reason": reason},
        )

    def _ended(self, task: Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a bug has ended the joining of files", error=error)
