"""The embedded backend: calls the store's blocking code in threads, from the event loop."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from functools import partial
from time import sleep
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from kgw.backend.base import NOT_OPEN, Backend, Health, Unsynced
from kgw.backend.embedded.backup.control import ControlSocket
from kgw.backend.embedded.disk_watch import DiskWatch
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.files.lock import DirectoryLock
from kgw.backend.embedded.files.pool import check_descriptors
from kgw.backend.embedded.files.read_buffers import ReadBuffers
from kgw.backend.embedded.opening import new_store, open_directory, prepare
from kgw.backend.embedded.options import EmbeddedOptions
from kgw.backend.embedded.partition_log import EmbeddedPartitionLog
from kgw.backend.embedded.read.read_ahead import ReadAhead
from kgw.backend.embedded.read.reading import Reader
from kgw.backend.embedded.read.source import Files
from kgw.backend.embedded.state_place import open_state
from kgw.backend.embedded.threads import Threads
from kgw.backend.embedded.write.flush_timer import FlushTimer
from kgw.backend.embedded.write.flusher import nothing
from kgw.backend.hot_cache import HotCache
from kgw.clock import SystemClock
from kgw.config.paths import absolute_path
from kgw.errors import DataDirectoryError, StorageError
from kgw.logs import EventLogger
from kgw.offsets.recovery import ORDINARY
from kgw.offsets.storage import OffsetStorage
from kgw.problems import UNCLAIMED, Problem
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from os import PathLike

    from kgw.backend.base import DiskRoom, LogSettings, PartitionLog
    from kgw.backend.embedded.creating import LogCreator
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.state_place import ServerState
    from kgw.backend.embedded.write.write_path import DiskAppend
    from kgw.clock import Clock
    from kgw.offsets.storage import LoadedCheckpoints
    from kgw.state.base import StateStore
    from kgw.types import TopicName

_Result = TypeVar("_Result")
_log = EventLogger(__name__)


class EmbeddedBackend(Backend):
    """Segments on the local disk, and small state in SQLite beside them."""

    def __init__(
        self,
        data_dir: str | PathLike[str],
        options: EmbeddedOptions | None = None,
        *,
        fs: FileSystem | None = None,
        state: StateStore | None = None,
        server_state: ServerState | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Use `data_dir`. `open` creates it if it is missing; until then the disk is not touched.

        The state is in `server_state` if given, otherwise in the directory's own database. Tests
        may pass an unopened `state`.
        """
        self._root = absolute_path(data_dir)
        self._options = options or EmbeddedOptions()
        self._fs = fs or RealFs()
        self._given_state = state
        self._server_state = server_state
        self._clock = clock or SystemClock()
        self._lock = DirectoryLock(self._fs, self._root)
        self._begin_anew()
        self.read_buffers = ReadBuffers(self._options.read_buffers)
        self._partitions: dict[PartitionKey, EmbeddedPartitionLog] = {}
        self._releasing: dict[PartitionKey, asyncio.Future[None]] = {}
        self._logs: dict[SegmentedLog, EmbeddedPartitionLog] = {}
        self._is_open = False
        self._opened = AsyncExitStack()
        """Releases the resources that `open` has acquired."""
        # Set by `open`.
        self._loop: asyncio.AbstractEventLoop
        self.reader: Reader
        self.threads: Threads
        self.flush_timer: FlushTimer
        self._offset_storage: OffsetStorage
        self._checkpoints: LoadedCheckpoints
        self._preparing: asyncio.Future[None] | None = None
        self._checkpoint_task: asyncio.Task[None] | None = None
        self._long_tasks: set[asyncio.Task[Any]] = set()
        self._creator: LogCreator | None = None

    def _begin_anew(self) -> None:
        self._store = new_store(self._fs, self._root, self._options, self._clock)
        self._disk = DiskWatch(self._store, self._clock)
        self._cache = HotCache(self._options.cache_bytes)

    @property
    def location(self) -> str:
        return self._root

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self) -> None:
        if self._is_open:
            raise DataDirectoryError(f"{self._root} is open already")
        if self._store.writes.is_closed:
            self._begin_anew()
        self._loop = loop = asyncio.get_running_loop()
        check_descriptors()
        store = self._store
        async with AsyncExitStack() as opened:
            opened.callback(self._lock.release)
            opened.callback(store.abandon)
            opened.callback(self._partitions.clear)
            opened.callback(self._logs.clear)
            self.threads = threads = Threads(
                loop, self._options, store.writes, self._show, self._clock
            )
            opened.push_async_callback(threads.aclose)
            await threads.run_in_io(partial(open_directory, store, self._lock, self._clock))
            if self._given_state is not None:
                self.state = self._given_state
                await self.state.open()
            else:
                self.state = await open_state(
                    self._fs,
                    self._root,
                    self._server_state,
                    partitions=len(store.on_disk),
                    is_clean=store.clean_stop,
                )
            opened.push_async_callback(self.state.aclose)
            self._offset_storage = OffsetStorage(self.state)
            self._checkpoints = await self._offset_storage.load()
            opened.callback(sys.setswitchinterval, sys.getswitchinterval())
            sys.setswitchinterval(self._options.switch_interval_s)
            if isinstance(self._fs, RealFs):
                control = ControlSocket(self._root, self, threads)
                opened.push_async_callback(control.aclose)
                await control.open()
            self._opened = opened.pop_all()
        for problem in self.state.problems:
            store.directory.report(problem)
        for row_key in self._checkpoints.unreadable_keys:
            store.directory.report(f"the checkpoint row {row_key!r} belongs to no partition")
        source = ReadAhead(
            Files(self.read_buffers),
            self._options.read_ahead,
            threads.ahead.submit,
            self._clock.monotonic_s,
        )
        self.reader = Reader(source, self._options.read_places)
        relaxed = store.writes.relaxed
        self.flush_timer = FlushTimer(loop, relaxed, threads.run_in_flusher, threads.relaxed)
        relaxed.reserve_soon = lambda log, reserved_end: threads.relaxed.submit(
            relaxed.reserve, log, reserved_end
        )
        # A journal file is retired in a separate thread, so that this does not wait for a
        # checkpoint or a compaction. Until then, every group of appends has to sync its segments.
        journaled = store.writes.journaled
        journaled.retire_soon = lambda retirement: threads.notes.submit(
            journaled.retire, retirement
        )
        store.writes.write_back_soon = threads.write_back.submit
        store.rest = partial(sleep, self._options.rest_s)
        self._preparing = None
        self._is_open = True

    def prepare(self) -> None:
        # A new journal is 32 MB of zeros that must be synced, and a commit of the state would wait
        # for that sync. So no start waits for the journal. Until the journal exists, every group of
        # appends syncs its segments.
        if self._preparing is None:
            self._preparing = self._loop.run_in_executor(
                self.threads.maintenance, prepare, self._store
            )

    async def abandon(self) -> None:
        """Release everything at once and make nothing durable, as if the process had been killed.

        Appends that are not acknowledged by now may or may not be stored.
        """
        async with self._opened:
            await self._end_tasks()

    async def aclose(self) -> None:
        if not self._is_open:
            return
        async with self._opened:
            await self._end_tasks()
            if self._checkpoint_task is not None:
                await self._checkpoint_task
            while self._store.writes.pending:
                await self.threads.run_in_flusher(nothing)
            async with self.threads.sealed_segments:
                await self._close_store()

    async def _end_tasks(self) -> None:
        """Refuse new work, cancel long tasks, and wait for the running tasks."""
        self._is_open = False
        self._store.writes.is_closed = True
        for task in self._long_tasks:
            task.cancel()
        await asyncio.gather(*self._long_tasks, return_exceptions=True)
        creator, self._creator = self._creator, None
        if creator is not None:
            await creator.aclose()
        await self.flush_timer.aclose()
        if self._preparing is not None:
            await self._preparing

    async def _close_store(self) -> None:
        """Write the clean-stop marker after making all logs and the state durable."""
        # First finish the work of other threads, such as retiring a full journal file.
        for executor in (self.threads.maintenance, self.threads.notes):
            await self._loop.run_in_executor(executor, nothing)
        try:
            checkpoints = await self.threads.run_in_flusher(self._store.close)
            await self._offset_storage.save(checkpoints)
            # The marker contains the checksum of the database, so close the database first.
            await self.state.aclose()
            await self.threads.run_in_flusher(self._store.mark_clean)
        except StorageError as error:
            self._store.directory.report(f"the directory was not left in order: {error}")

    # --- partitions ------------------------------------------------------------------------------

    @property
    def partitions(self) -> Mapping[PartitionKey, PartitionLog]:
        return MappingProxyType(self._partitions)

    async def create_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        (log,) = await self.create_partitions([key], topic, settings)
        return log

    async def create_partitions(
        self, keys: Sequence[PartitionKey], topic: TopicName, settings: LogSettings
    ) -> list[PartitionLog]:
        self._check_open()
        missing = [key for key in keys if key not in self._partitions]
        if missing:
            if self._creator is None:
                # Imported late: a start creates nothing.
                from kgw.backend.embedded.creating import LogCreator

                self._creator = LogCreator(self._store, self)
            for log in await self._creator.create(missing, topic, settings):
                self._adopt(log)
            self.prepare()
        return [self._partitions[key] for key in keys]

    async def open_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        self._check_open()
        if key in self._releasing:
            await self._releasing[key]
        existing = self._partitions.get(key)
        if existing is not None:
            return existing
        checkpoints = self._checkpoints
        open_log = partial(
            self._store.open_log,
            key,
            topic,
            settings,
            checkpoints.checkpoints.get(key),
            checkpoint_damaged=key in checkpoints.damaged,
        )
        try:
            log = await self.threads.run_in_io(open_log)
        except Exception as error:
            self._store.unopenable[key] = str(error)
            raise
        self._store.unopenable.pop(key, None)
        return self._adopt(log)

    def _adopt(self, log: SegmentedLog) -> PartitionLog:
        partition = self._logs.get(log)
        if partition is None:
            partition = EmbeddedPartitionLog(log, self, self._store)
            self._logs[log] = partition
            self._partitions[log.key] = partition
        return partition

    async def release_partition(self, key: PartitionKey) -> None:
        # The files may stay open, because only this process uses the directory.
        self._check_open()
        released = self._partitions.pop(key, None)
        if released is None:
            return
        log, done = self._store.logs[key], self._loop.create_future()
        self._releasing[key] = done
        try:
            await released.release()
        finally:
            self._logs.pop(log, None)
            del self._releasing[key]
            done.set_result(None)

    async def delete_partition(self, key: PartitionKey) -> None:
        self._check_open()
        log = self._store.retire_log(key)
        self._partitions.pop(key, None)
        self._store.unopenable.pop(key, None)
        try:
            removed = await self.threads.run_in_flusher(partial(self._store.remove_log, key, log))
        finally:
            # A later attempt to delete the partition gets no log.
            if log is not None:
                self._logs.pop(log, None)
        if removed is not None:
            await self.threads.run_in_io(partial(self._store.trimmer.remove_directory, removed))
        await self._offset_storage.delete([key])

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files after a delay. If the process ends earlier, the next start removes them."""
        store = self._store

        def remove() -> None:
            if self._is_open and store is self._store:
                self.threads.io.submit(store.trimmer.remove_files, paths)

        if paths:
            self._clock.call_at(self._clock.monotonic_s() + delay_ms / 1000, remove)

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageError("the backend is not open")

    # --- backups ---------------------------------------------------------------------------------

    async def fill_stage(self, stage: str) -> None:
        """Put a copy of the state and hard links to all logs' files into the directory `stage`.

        State and logs are copied as of the same instant, with everything that was acknowledged
        before the call. Commits of the state wait during the copy, but appends do not wait. Raises
        StorageError.
        """
        self._check_open()
        # Imported late: backups are rare.
        from kgw.backend.embedded.backup.filling import fill_stage

        await self.run_until_closed(
            fill_stage(self._fs, self._root, self._store, self.state, self, stage)
        )

    # --- checkpoints and health ------------------------------------------------------------------

    async def forget_others(self) -> None:
        """Remove checkpoints of partitions that are neither open nor on disk, and unreadable rows.

        A directory without a topic keeps its checkpoint: the topic may be adopted.
        """
        self._check_open()
        loaded = self._checkpoints
        kept = self._partitions.keys() | self._store.on_disk
        gone = [key for key in (*loaded.checkpoints, *loaded.damaged) if key not in kept]
        if gone or loaded.unreadable_keys:
            await self._offset_storage.delete(gone)
            await self._offset_storage.delete_unreadable(loaded.unreadable_keys)
            _log.info("old checkpoints removed", rows=len(gone) + len(loaded.unreadable_keys))

    async def checkpoint(self) -> None:
        self._check_open()
        async with self.threads.sealed_segments:
            plan = await self.threads.run_in_flusher(self._store.begin_checkpoint)
            try:
                checkpoints = await self._loop.run_in_executor(
                    self.threads.maintenance, self._store.finish_checkpoint, plan
                )
                for start in range(0, len(checkpoints), self._options.checkpoints_per_turn):
                    end = start + self._options.checkpoints_per_turn
                    # Do not store checkpoints of partitions that were deleted meanwhile. A deletion
                    # after this check is committed after the checkpoint, so it is safe.
                    kept = [
                        one
                        for one in checkpoints[start:end]
                        if PartitionKey(one.topic_id, one.partition) in self._store.logs
                    ]
                    if kept:
                        await self._offset_storage.save(kept)
            except BaseException:
                plan.give_up()
                raise

    async def _checkpoint_by_size(self) -> None:
        try:
            if self.before_checkpoint is not None:
                await self.before_checkpoint()
            if self._is_open:  # `aclose` makes its own checkpoint
                await self.checkpoint()
        except Exception as error:  # noqa: BLE001 - of a bug, too, somebody must be told
            self._store.directory.report(f"no checkpoint was made: {error}")
        finally:
            self._checkpoint_task = None

    @property
    def health(self) -> Health:
        store = self._store
        unclaimed = [
            Problem(
                UNCLAIMED, f"partition directory {key} belongs to no topic; see `kgw log adopt`"
            )
            for key in store.unclaimed
        ]
        return Health(
            (
                *(self.state.found if self._is_open else (NOT_OPEN,)),
                *store.writes.found,
                *store.directory.found,
                *unclaimed,
            ),
            len(unclaimed),
        )

    async def look(self) -> None:
        if self._is_open:
            await self._disk.look()

    @property
    def recovery_anomalies(self) -> dict[str, int]:
        """Number of anomalies in recovery, by kind, without kinds that every kill causes."""
        counts = self._store.anomaly_counts
        return {kind.value: counts[kind] for kind in counts if kind not in ORDINARY}

    async def disk_room(self) -> DiskRoom | None:
        return await self._disk.room()

    @property
    def unsynced(self) -> Unsynced:
        if not self._is_open:
            return Unsynced()
        return Unsynced(self._store.writes.relaxed.unsynced_bytes, self.flush_timer.age_s())

    @property
    def quarantined_bytes(self) -> int:
        return self._store.directory.quarantine.size_bytes

    async def run_until_closed(self, work: Coroutine[None, None, _Result]) -> _Result:
        """Run a long task. `aclose` cancels the task and waits until it has ended.

        Raises StorageError if the backend is not open, or is closed meanwhile.
        """
        if not self._is_open:
            work.close()
            raise StorageError("the backend is not open")
        task = self._loop.create_task(work)
        self._long_tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_open:
                raise
            raise StorageError("the backend is closed") from None
        finally:
            self._long_tasks.discard(task)

    def _show(self, group: list[DiskAppend], moved: list[SegmentedLog]) -> None:
        """Make a written group readable, and start a checkpoint if enough bytes were appended.

        If this raises, it is unknown which batches readers saw; stop writing.
        """
        logs = self._logs
        self._cache.add(
            [
                (logs[append.log].tail, batch)
                for append in group
                if append.error is None and append.log in logs
                for batch in append.batches
            ]
        )
        arrived = dict.fromkeys(moved, 0)
        for append in group:
            if append.error is None and append.log in arrived:
                arrived[append.log] += append.size_bytes
        for log, size_bytes in arrived.items():
            high_watermark = log.offsets.high_watermark
            if log.offsets.durable_end < high_watermark:
                self.flush_timer.note(log)
            partition = self._logs.get(log)
            if partition is not None and partition.on_advance is not None:
                try:
                    partition.on_advance(high_watermark, size_bytes)
                except Exception as error:  # noqa: BLE001 - the others are waiting
                    _log.error("told of an advance, it failed", error=error, partition=str(log.key))
        is_due = self._store.writes.appended_bytes >= self._options.checkpoint_bytes
        if is_due and self._checkpoint_task is None and self._is_open:
            self._checkpoint_task = self._loop.create_task(self._checkpoint_by_size())
