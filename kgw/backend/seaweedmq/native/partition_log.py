"""The log of a partition that SMQ's broker leads."""

from __future__ import annotations

from asyncio import CancelledError, ensure_future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.append import refused_append
from kgw.backend.base import (
    HOT_BATCHES,
    EpochEnd,
    EpochStart,
    PartitionLog,
    ReadResult,
    find_epoch_end,
)
from kgw.backend.hot_cache import CachedTail
from kgw.backend.seaweedmq.chunks import ChunkPlace
from kgw.backend.seaweedmq.filer import FilerError
from kgw.backend.seaweedmq.native.entries import LEADER_EPOCH, decode, decode_window, window_of
from kgw.backend.seaweedmq.native.files import NativeLogFiles
from kgw.backend.seaweedmq.native.following import Following, label
from kgw.errors import CorruptionError, ErrorCode, StorageError
from kgw.logs import EventLogger
from kgw.problems import DAMAGE, READS

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import AsyncIterator, Sequence

    from kgw.backend.append import Append
    from kgw.backend.base import BatchLook, FoundT, LogSettings, Snapshot
    from kgw.backend.seaweedmq.entries.layouts import DecodedChunk
    from kgw.backend.seaweedmq.native.broker import NativeBroker
    from kgw.backend.seaweedmq.native.entries import EntryWindow
    from kgw.backend.seaweedmq.native.files import LogFile
    from kgw.backend.seaweedmq.native.names import NativeTopic
    from kgw.backend.seaweedmq.native.publishing import Publisher
    from kgw.backend.seaweedmq.shell import Shell
    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer, PartitionKey

_EPOCHS: Final = (EpochStart(LEADER_EPOCH, 0),)

_log = EventLogger(__name__)


class FollowOptions(NamedTuple):
    """How often a partition is checked for records, and how long readers wait at a hole."""

    shortest_poll_s: float = 0.25
    longest_poll_s: float = 2.0
    """The longest pause between checks. While no record comes, the pause doubles up to this."""
    list_all_s: float = 60.0
    """How often all files are listed, to find removed files and new files with earlier names."""
    hole_s: float = 10.0
    """How long readers wait before a skipped offset, which may still be written."""


class ReadOnlyError(StorageError):
    """Records cannot be appended or removed here: only the topic's leader can do that."""

    code = ErrorCode.POLICY_VIOLATION


class NativePartitionLog(PartitionLog):
    """Reads the broker's log files, and appends through the broker if that is allowed."""

    def __init__(
        self,
        key: PartitionKey,
        topic: NativeTopic,
        shell: Shell,
        options: FollowOptions,
        publisher: Publisher | None = None,
        memory: NativeBroker | None = None,
    ) -> None:
        """Without a `publisher`, the log is read only. Call `open` first.

        With a broker as `memory`, records that it has not written to a file yet are shown, too.
        """
        self.key = key
        self.tail = CachedTail()
        self.anomalies = 0
        """Number of contradictions in the broker's log."""
        self.stopped: str | None = None
        """Why readers get no more records."""
        self._topic = topic
        self._name = f"{topic}-{key.partition}"
        self._shell = shell
        self._options = options
        self._publisher = publisher
        self._memory = memory
        self._files = NativeLogFiles(shell.filer, topic.directory(key.partition))
        self._following = Following(0, 0, options.hole_s)
        self._high_watermark = 0
        self._cached_end = 0
        """The cached batches end here, so a batch below this offset cannot be added in order."""
        self._file_end = 0
        """The offset after the greatest offset in a log file."""
        self._log_start = 0
        self._is_closed = False
        self._newest: dict[int, int] = {}
        """The number of known chunks of the newest file, and of files with the same or a later
        second."""
        self._task: Task[None] | None = None
        self._is_reachable = True

    def __repr__(self) -> str:
        return f"<NativePartitionLog {self._name} {self._log_start}..{self._high_watermark}>"

    # --- bounds ----------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self._log_start

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def end_offset(self) -> int:
        return max(self._following.end_offset, self._high_watermark)

    @property
    def leader_epoch(self) -> int:
        return LEADER_EPOCH

    @property
    def size_bytes(self) -> int:
        return self._files.size_bytes

    @property
    def has_failed(self) -> bool:
        return self.stopped is not None

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        return find_epoch_end(_EPOCHS, leader_epoch, self._high_watermark)

    def epoch_at(self, offset: int) -> int:
        return LEADER_EPOCH

    # --- following -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Find the first and the last offset of the log, and begin to follow it.

        Raises CorruptionError if the last file cannot be read, FilerError.
        """
        previous = highest = None
        async for file in self._files.list_from():
            if not file.chunks:
                continue
            if highest is not None and await self._repeats(highest, file):
                break
            if previous is not None:
                self._files.add(previous, await self._first_of(previous), previous.size_bytes)
            previous = file
            if highest is None or (file.last_offset or 0) >= (highest.last_offset or 0):
                highest = file
        if previous is not None:
            await self._begin_at(previous)
        self._high_watermark = self._file_end = self._cached_end = self._following.end_offset
        self._tell_publisher()
        await self._find_start()
        self._task = ensure_future(self._follow())

    async def _first_of(self, file: LogFile) -> int:
        """Return the first offset of a file by its attributes; without these, read the file."""
        if file.first_offset is not None:
            return file.first_offset
        window = await self._read(file, 0)
        return window.entries[0].offset if window.entries else 0

    async def _find_start(self) -> None:
        """Set the log start offset to the first existing record."""
        start = self._high_watermark
        first = self._files.holder(0)
        if first is not None:
            decoded = await self._chunk(await self._files.file(first), 0)
            if decoded.batches:
                start = decoded.base_offsets[0]
        self._log_start = max(self._log_start, min(start, self._high_watermark))

    async def _begin_at(self, file: LogFile) -> None:
        """Read the newest file, and begin at its end."""
        windows = [await self._read(file, number) for number in range(len(file.chunks))]
        entries = [entry for window in windows for entry in window.entries]
        self._newest = {file.second: len(file.chunks)}
        if entries:
            self._files.add(file, min(entry.offset for entry in entries), file.size_bytes)
            self._following = Following(
                max(entry.offset for entry in entries) + 1,
                max(entry.ts_ns for entry in entries),
                self._options.hole_s,
            )

    async def _repeats(self, earlier: LogFile, later: LogFile) -> bool:
        """Return whether `later` has offsets of `earlier` again; readers then stop before it."""
        if (
            earlier.last_offset is None
            or later.first_offset is None
            or later.first_offset > earlier.last_offset
        ):
            return False
        repeated = await self._first_repeated(earlier, later)
        if repeated is not None:
            self._stop_at(repeated, later)
        return repeated is not None

    async def _first_repeated(self, earlier: LogFile, later: LogFile) -> int | None:
        """Return the first offset that has different records in the two files."""
        times = {}
        for number in range(len(earlier.chunks)):
            for entry in (await self._read(earlier, number)).entries:
                times[entry.offset] = entry.ts_ns
        repeated = [
            entry.offset
            for number in range(len(later.chunks))
            for entry in (await self._read(later, number)).entries
            if times.get(entry.offset, entry.ts_ns) != entry.ts_ns
        ]
        return min(repeated, default=None)

    async def _follow(self) -> None:
        """Check for new records until cancelled."""
        options, clock = self._options, self._shell.clock
        pause_s = options.shortest_poll_s
        list_all_at_s = clock.monotonic_s() + options.list_all_s
        while True:
            await clock.sleep_until(clock.monotonic_s() + pause_s)
            before = self._following.end_offset
            try:
                if clock.monotonic_s() >= list_all_at_s:
                    list_all_at_s = clock.monotonic_s() + options.list_all_s
                    await self.look_at_all()
                await self.look()
            except StorageError as error:
                if isinstance(error, CorruptionError):
                    self._shell.report(
                        f"partition {self._name} cannot go on: {error}",
                        DAMAGE,
                        lambda: self._is_reachable or self._is_closed,
                    )
                elif self._is_reachable:
                    _log.warning("a topic cannot be followed", partition=self._name, error=error)
                self._is_reachable = False
            except Exception as error:  # noqa: BLE001 - the next look may do better
                _log.error("a bug of kgw", partition=self._name, error=error)
            else:
                self._is_reachable = True
            is_busy = self._following.end_offset != before or (
                self._publisher is not None and self._publisher.is_waiting
            )
            pause_s = (
                options.shortest_poll_s if is_busy else min(pause_s * 2, options.longest_poll_s)
            )

    async def look(self) -> None:
        """Add the records that the broker wrote since the last call. Raises StorageError."""
        if self._publisher is not None:
            self._publisher.expire()
        if self.stopped is not None:
            return
        since = min(self._newest, default=0)
        async for file in self._files.list_from(since):
            await self._take_file(file)
        newest = max(self._newest, default=0)
        # All entries of a second are in one file, so only the newest file grows.
        self._newest = {second: n for second, n in self._newest.items() if second == newest}
        if self._memory is not None and self.stopped is None:
            await self._look_into_memory(self._memory)
        self._advance(())

    async def _look_into_memory(self, broker: NativeBroker) -> None:
        """Add the records that the broker has not written to a file yet. Raises BrokerError."""
        following, partition = self._following, self.key.partition
        messages = await broker.fetch(self._topic, partition, following.end_offset)
        if not messages:
            return
        unflushed = await broker.unflushed(self._topic, partition, following.end_offset)
        entries = label(messages, unflushed, following.end_offset, following.last_ts_ns)
        if entries:
            window = window_of(entries, 0)
            following.take(window.entries, self._shell.clock.monotonic_s())
            self._tell_publisher()
            self._advance(window.decoded.batches)

    async def look_at_all(self) -> None:
        """Compare all files with the known ones. Raises StorageError."""
        there: set[int] = set()
        async for file in self._files.list_from():
            there.add(file.second)
            if file.chunks and not self._files.knows(file.second) and self.stopped is None:
                await self._take_file(file)
        gone = [second for second in self._files.seconds if second not in there]
        if gone:
            _log.info("log files have been removed", partition=self._name, files=len(gone))
            self._files.forget(gone)
        await self._find_start()

    async def _take_file(self, file: LogFile) -> None:
        known = self._newest.get(file.second, 0)
        for number in range(known, len(file.chunks)):
            if self.stopped is not None:
                return
            await self._take(file, number, await self._read(file, number))
            self._newest[file.second] = number + 1

    async def _take(self, file: LogFile, number: int, window: EntryWindow) -> None:
        """Add a window of the log, unless it contradicts known records."""
        if window.damage is not None:
            self._shell.report(
                f"partition {self._name}: what follows offset {self._following.end_offset - 1} is "
                f"damaged ({self._files.directory}/{file.name}, chunk {number}): {window.damage}",
                DAMAGE,
                partial(self._is_gone_below, self._following.end_offset + 1),
            )
        shown_end = self._following.end_offset
        taken = self._following.take(window.entries, self._shell.clock.monotonic_s())
        if taken.repeated is not None:
            self._stop_at(taken.repeated, file)
            return
        if window.entries:
            lost_end = min(window.entries[0].offset, shown_end)
            if lost_end > self._file_end:
                self.anomalies += 1
                self._shell.report(
                    f"partition {self._name}: SMQ's broker has lost offsets {self._file_end} to "
                    f"{lost_end - 1}, which were shown, or acknowledged, before they were in a log "
                    "file (kgw.seaweedmq.acks=broker)",
                    DAMAGE,
                    partial(self._is_gone_below, lost_end),
                )
            self._file_end = max(self._file_end, window.entries[-1].offset + 1)
        if taken.late is not None:
            self.anomalies += 1
            self._shell.report(
                f"partition {self._name}: offset {taken.late} was written after readers had passed "
                "it; several publishers at a time write out of order: read from there again"
            )
        if window.entries:
            size_bytes = file.chunks[number].size_bytes
            self._files.add(file, window.entries[0].offset, size_bytes)
        self._tell_publisher()
        self._advance(window.decoded.batches if taken.fresh else ())
        if self._publisher is not None:
            # Consumers can read these records by now.
            self._publisher.confirm(window.entries)

    def _tell_publisher(self) -> None:
        if self._publisher is not None:
            self._publisher.end_offset = self._following.end_offset

    def _advance(self, batches: Sequence[RecordBatch]) -> None:
        """Raise the high watermark as far as possible, and call `on_advance`."""
        if batches and batches[0].base_offset >= self._cached_end:
            self._shell.cache.add([(self.tail, batch) for batch in batches])
        elif batches:
            # The batch belongs between cached batches, so readers of the cache would skip it. Empty
            # the cache.
            self.tail.forget_below(self._cached_end)
        self._cached_end = self._following.end_offset
        bound = self._following.high_watermark(self._shell.clock.monotonic_s())
        if bound > self._high_watermark:
            self._high_watermark = bound
            if self.on_advance is not None:
                self.on_advance(bound, sum(batch.size_bytes for batch in batches))

    def _stop_at(self, offset: int, file: LogFile) -> None:
        """Show no more records, because an offset has two records."""
        self.anomalies += 1
        self.stopped = (
            f"partition {self._name} has stopped: SMQ's broker has given offset {offset} out again "
            f"({self._files.directory}/{file.name}), as it may after a crash. What was written "
            "before is still served; what comes after is not. Publish to a new topic, or remove "
            "that file and those after it, and restart kgw"
        )
        self._shell.report(self.stopped, DAMAGE, lambda: self._is_closed)

    # --- appends ---------------------------------------------------------------------------------

    def append(self, batches: Sequence[RecordBatch]) -> Append:
        if not batches:
            raise ValueError("an append needs at least one batch")
        if self._publisher is None:
            return refused_append(ReadOnlyError(f"partition {self._name} is read only"))
        if self.stopped is not None:
            return refused_append(StorageError(self.stopped))
        return self._publisher.append(batches)

    # --- reads -----------------------------------------------------------------------------------

    def read_hot(self, offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
        if offset >= upper_bound or offset >= self._high_watermark:
            return ReadResult([], 0, offset)
        bound = min(upper_bound, self._high_watermark)
        return self.tail.read(self._shell.answer_memory, offset, max_bytes, bound)

    async def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
    ) -> ReadResult:
        bound = min(upper_bound, self._high_watermark)
        buffers: list[Buffer] = []
        size_bytes = 0
        next_offset = offset
        is_cut = False
        try:
            async for batch in self._batches(offset):
                is_cut = len(buffers) >= HOT_BATCHES
                if batch.next_offset > bound or is_cut:
                    break
                if size_bytes + batch.size_bytes > max_bytes and (buffers or not at_least_one):
                    break
                buffers.append(batch.buffer)
                size_bytes += batch.size_bytes
                next_offset = batch.next_offset
        except CorruptionError as error:
            # Batches before the damage are returned without an error.
            if not buffers:
                await self._explain(error, offset)
        return ReadResult(buffers, size_bytes, next_offset, len(buffers), is_cut)

    async def _explain(self, error: CorruptionError, offset: int) -> None:
        """Raise an error that explains why an offset cannot be read, unless it was removed."""
        await self.look_at_all()
        if offset < self._log_start:
            return
        end_offset = self._high_watermark if error.end_offset is None else error.end_offset
        is_over = partial(self._is_gone_below, end_offset)
        self._shell.report(f"partition {self._name}: {error}", DAMAGE, is_over)
        raise CorruptionError(f"partition {self._name}: {error}", error.end_offset) from error

    def _is_gone_below(self, end_offset: int) -> bool:
        """Return whether no record below an offset can be read any more."""
        return self._is_closed or self._log_start >= end_offset

    async def _batches(self, offset: int) -> AsyncIterator[RecordBatch]:
        """Yield the batches that end above an offset, in order. Raises CorruptionError."""
        second = await self._holder(offset)
        next_offset = offset
        damage: CorruptionError | None = None
        while second is not None:
            file = await self._files.file(second)
            for number in range(len(file.chunks)):
                decoded = await self._chunk(file, number)
                for batch in decoded.batches[decoded.place_of(next_offset) :]:
                    if batch.next_offset <= next_offset:
                        continue
                    if damage is not None and batch.base_offset > next_offset:
                        raise damage
                    damage = None
                    yield batch
                    next_offset = batch.next_offset
                for one in decoded.damages:
                    damage = CorruptionError(
                        f"{self._files.directory}/{file.name}, chunk {number}, is damaged behind "
                        f"offset {one.start_offset - 1}: {one.reason}",
                        self._files.first_offset(self._files.after(second)),
                    )
            second = self._files.after(second)
        if damage is not None and next_offset < self._high_watermark:
            raise damage

    async def _holder(self, offset: int) -> int | None:
        """Return the file that has an offset, or the first file after it."""
        second = self._files.holder(offset)
        while second is not None:
            before = self._files.before(second)
            if before is None:
                return second
            decoded = await self._chunk(await self._files.file(second), 0)
            if decoded.batches and decoded.base_offsets[0] <= offset:
                return second
            # The attribute may be one too high for the file that has offset 0.
            second = before
        return None

    async def find_by_time(
        self, timestamp_ms: int, lower_bound: int, upper_bound: int, look: BatchLook[FoundT]
    ) -> FoundT | None:
        bound = min(upper_bound, self._high_watermark)
        second = self._files.at_time(timestamp_ms // 1000)
        # Times rise with offsets, so records before that file are too old.
        first = lower_bound if second is None else self._files.first_offset(second) or 0
        try:
            async for batch in self._batches(max(lower_bound, first - 1)):
                if batch.next_offset > bound:
                    return None
                if batch.max_timestamp_ms >= timestamp_ms:
                    found = await self._shell.run(partial(look, batch))
                    if found is not None:
                        return found
        except CorruptionError as error:
            await self._explain(error, lower_bound)
        return None

    async def find_max_timestamp(self, lower_bound: int, upper_bound: int) -> RecordBatch | None:
        bound = min(upper_bound, self._high_watermark)
        best: RecordBatch | None = None
        second = self._files.holder(max(bound - 1, 0))
        while second is not None:
            found: RecordBatch | None = None
            file = await self._files.file(second)
            for number in range(len(file.chunks)):
                for batch in (await self._chunk(file, number)).batches:
                    if (
                        batch.next_offset > lower_bound
                        and batch.next_offset <= bound
                        and (found is None or batch.max_timestamp_ms > found.max_timestamp_ms)
                    ):
                        found = batch
            if found is not None:
                if best is not None and found.max_timestamp_ms < best.max_timestamp_ms:
                    break
                best = found
            elif best is not None:
                break
            second = self._files.before(second)
        return best

    async def _read(self, file: LogFile, number: int) -> EntryWindow:
        """Read a chunk without the cache. Raises CorruptionError, FilerError."""
        data = await self._files.read(file, number)
        if len(data) <= self._shell.options.decoded_on_loop_bytes:
            return decode_window(data)
        return await self._shell.run(partial(decode_window, data))

    async def _chunk(self, file: LogFile, number: int) -> DecodedChunk:
        """Return a chunk, from the cache if possible. Raises CorruptionError, StorageError."""
        place = ChunkPlace(file, number, file.chunks[number], 0, 0, 0, decode)
        try:
            return await self._shell.chunks.get(self._files, place)
        except FilerError as error:
            text = f"cannot read partition {self._name}: {error}"
            self._shell.refusals.note(READS, text)
            raise StorageError(text) from error

    # --- operations that only the broker does ----------------------------------------------------

    async def drop_before(self, offset: int) -> None:
        raise ReadOnlyError(f"records of {self._name} are removed by SeaweedMQ alone")

    async def replay(self, from_offset: int) -> AsyncIterator[RecordBatch]:
        """Yield nothing, because the broker's batches have no producers or transactions."""
        nothing: tuple[RecordBatch, ...] = ()
        for batch in nothing:
            yield batch

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Do nothing, because no state is derived from these records."""

    async def load_snapshot(self) -> Snapshot | None:
        return None

    def configure(self, settings: LogSettings) -> None:
        """Do nothing, because the broker manages its files."""

    async def aclose(self) -> None:
        """Stop following, and fail the appends that were not confirmed."""
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(CancelledError):
                await task
        if self._publisher is not None:
            await self._publisher.aclose()
