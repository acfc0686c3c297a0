"""The reference backend: all data is in memory and lost when the process ends.

It is the simplest implementation of the contract in `kgw.backend.base`, and the default in fast
tests. All appends that are submitted in one iteration of the event loop are committed together in
the next iteration. So callers see the same order of events as with a disk.
"""

from __future__ import annotations

from asyncio import get_running_loop
from bisect import bisect_left, bisect_right
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from kgw.backend.append import Append, AppendResult, refused_append
from kgw.backend.base import (
    HOT_BATCHES,
    NOT_OPEN,
    Backend,
    EpochStart,
    Health,
    LogSettings,
    PartitionLog,
    ReadResult,
    Recompressed,
    Segmented,
    SegmentInfo,
    Snapshot,
)
from kgw.backend.managed_log import ManagedLog
from kgw.clock import SystemClock
from kgw.completion import until_done
from kgw.errors import DataDirectoryError, StorageError
from kgw.offsets.manager import PartitionOffsetManager
from kgw.problems import DAMAGE, Problem
from kgw.records.batch import read_batch
from kgw.state.memory import MemoryStateStore
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from kgw.backend.base import (
        BatchLook,
        CompactionJob,
        CompactionReport,
        FoundT,
        RecompressionJob,
        RecompressionReport,
    )
    from kgw.clock import Clock
    from kgw.records.batch import RecordBatch
    from kgw.state.base import StateStore
    from kgw.types import Buffer, PartitionKey, TopicName


class _Segment:
    """Base offset, creation time and size of a segment."""

    __slots__ = ("base_offset", "begun_ms", "size_bytes")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.begun_ms = NO_TIMESTAMP_MS
        self.size_bytes = 0


class _Contents:
    """The contents of a partition. They outlive the log objects that are opened on them."""

    __slots__ = (
        "base_offsets",
        "batches",
        "compacted_end",
        "epochs",
        "log_start_offset",
        "recompressed",
        "segments",
        "snapshot",
    )

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.base_offsets: list[int] = []
        self.epochs = [EpochStart(0, 0)]
        self.log_start_offset = 0
        self.snapshot: Snapshot | None = None
        self.segments: list[_Segment] = []
        self.compacted_end = 0
        self.recompressed = Recompressed()

    @property
    def next_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.log_start_offset

    def raise_epoch(self) -> None:
        """Begin the next leader epoch at the end of the log."""
        self.epochs.append(EpochStart(self.epochs[-1].leader_epoch + 1, self.next_offset))

    def add(self, batch: RecordBatch, segment_bytes: int, now_ms: int) -> None:
        segment = self.segments[-1] if self.segments else self.roll(batch.base_offset)
        if segment.size_bytes and segment.size_bytes + batch.size_bytes > segment_bytes:
            segment = self.roll(batch.base_offset)
        if not segment.size_bytes:
            segment.begun_ms = now_ms
        segment.size_bytes += batch.size_bytes
        self.batches.append(batch)
        self.base_offsets.append(batch.base_offset)

    def roll(self, base_offset: int) -> _Segment:
        """Begin a new segment."""
        segment = _Segment(base_offset)
        self.segments.append(segment)
        return segment

    def batches_of(self, number: int) -> list[RecordBatch]:
        """Return the batches of the segment with this index."""
        segments = self.segments
        start = bisect_left(self.base_offsets, segments[number].base_offset)
        end = len(self.batches)
        if number + 1 < len(segments):
            end = bisect_left(self.base_offsets, segments[number + 1].base_offset)
        return self.batches[start:end]

    def drop_before(self, offset: int) -> None:
        """Remove the batches that lie wholly below `offset`."""
        segments = self.segments
        while len(segments) > 1 and segments[1].base_offset <= offset:
            del segments[0]
        kept = self.position_of(offset)
        del self.batches[:kept]
        del self.base_offsets[:kept]
        if segments:
            segments[0].size_bytes = sum(batch.size_bytes for batch in self.batches_of(0))
        self.log_start_offset = offset

    def replace(self, pieces: list[list[RecordBatch]]) -> None:
        """Replace the batches of the first segments with new ones."""
        rest = sum(len(self.batches_of(number)) for number in range(len(pieces)))
        self.batches[:rest] = [batch for piece in pieces for batch in piece]
        self.base_offsets = [batch.base_offset for batch in self.batches]
        for segment, piece in zip(self.segments, pieces, strict=False):
            segment.size_bytes = sum(batch.size_bytes for batch in piece)

    def position_of(self, offset: int) -> int:
        """Return the index of the first batch that ends after `offset`."""
        position = bisect_right(self.base_offsets, offset)
        if position and self.batches[position - 1].next_offset > offset:
            position -= 1
        return position

    def between(self, lower_bound: int, upper_bound: int) -> Iterable[RecordBatch]:
        """Yield the batches that end above `lower_bound` and lie wholly below `upper_bound`."""
        for position in range(self.position_of(lower_bound), len(self.batches)):
            batch = self.batches[position]
            if batch.next_offset > upper_bound:
                return
            yield batch


class _Submitted(Append):
    """An append that is submitted and not yet committed."""

    __slots__ = ("batches", "log")

    def __init__(
        self, log: MemoryPartitionLog, batches: list[RecordBatch], result: AppendResult
    ) -> None:
        super().__init__()
        self.log = log
        self.batches = batches
        self.result = result

    def fail(self, reason: str) -> None:
        self.error = StorageError(reason)
        self.finish()


class MemoryPartitionLog(ManagedLog, Segmented):
    """One partition in memory."""

    def __init__(
        self,
        key: PartitionKey,
        contents: _Contents,
        settings: LogSettings,
        clock: Clock,
        submit: Callable[[_Submitted], None],
        hot_batches: int,
    ) -> None:
        self.key = key
        self._hot_batches = hot_batches
        self.settings = settings
        """The settings that are in effect now."""
        self._clock = clock
        self._contents = contents
        self._submit = submit
        self._offsets = PartitionOffsetManager(contents.log_start_offset, contents.next_offset)
        self._size_bytes = sum(batch.size_bytes for batch in contents.batches)
        self._failure: StorageError | None = None

    def __repr__(self) -> str:
        return f"<MemoryPartitionLog {self.key} [{self.log_start_offset}, {self.end_offset})>"

    @property
    def _epochs(self) -> Sequence[EpochStart]:
        return self._contents.epochs

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def append(self, batches: Sequence[RecordBatch]) -> Append:
        if self._failure is not None:
            return refused_append(self._failure)
        submitted = _Submitted(self, list(batches), self._assign(batches))
        self._submit(submitted)
        return submitted

    def store(self, batches: list[RecordBatch]) -> int:
        """Add the batches to the contents, and return their size in bytes.

        They are copied, so that the buffer of their request can be freed.
        """
        now_ms = self._clock.wall_ms()
        for batch in batches:
            copy = read_batch(bytes(batch.buffer))
            self._contents.add(copy, self.settings.segment_bytes, now_ms)
        size_bytes = sum(batch.size_bytes for batch in batches)
        self._size_bytes += size_bytes
        return size_bytes

    def give_up(self) -> None:
        """Free the offsets of batches that were not stored."""
        self._offsets.rewind(self._contents.next_offset)

    def commit(self, size_bytes: int) -> None:
        """Move the high watermark to the end of the stored batches, and call `on_advance`."""
        end_offset = self._contents.next_offset
        self._offsets.advance_durable(end_offset)
        if self.on_advance is not None:
            self.on_advance(end_offset, size_bytes)

    def retire(self, reason: str) -> None:
        """Refuse all appends from now on."""
        self._failure = StorageError(reason)

    def read_hot(self, offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
        return self._read(offset, max_bytes, upper_bound, at_least_one=True, most=self._hot_batches)

    async def read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
    ) -> ReadResult:
        return self._read(offset, max_bytes, upper_bound, at_least_one=at_least_one)

    def _read(
        self, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool, most: int = 0
    ) -> ReadResult:
        batches = self._contents.batches
        buffers: list[Buffer] = []
        size_bytes = 0
        next_offset = offset
        is_cut = False
        for position in range(self._contents.position_of(offset), len(batches)):
            batch = batches[position]
            if batch.next_offset > upper_bound:
                break
            if size_bytes + batch.size_bytes > max_bytes and (buffers or not at_least_one):
                break
            if most and len(buffers) >= most:
                is_cut = True
                break
            buffers.append(batch.buffer)
            size_bytes += batch.size_bytes
            next_offset = batch.next_offset
        return ReadResult(buffers, size_bytes, next_offset, len(buffers), is_cut)

    async def find_by_time(
        self, timestamp_ms: int, lower_bound: int, upper_bound: int, look: BatchLook[FoundT]
    ) -> FoundT | None:
        for batch in self._contents.between(lower_bound, upper_bound):
            if batch.max_timestamp_ms >= timestamp_ms:
                found = look(batch)
                if found is not None:
                    return found
        return None

    async def find_max_timestamp(self, lower_bound: int, upper_bound: int) -> RecordBatch | None:
        batches = self._contents.between(lower_bound, upper_bound)
        return max(batches, key=lambda batch: batch.max_timestamp_ms, default=None)

    async def drop_before(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self._offsets.raise_log_start(offset)
        self._contents.drop_before(offset)
        self._size_bytes = sum(batch.size_bytes for batch in self._contents.batches)

    async def replay(self, from_offset: int) -> AsyncIterator[RecordBatch]:
        position = self._contents.position_of(from_offset)
        for batch in self._contents.batches[position:]:
            yield batch

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        self._contents.snapshot = snapshot

    async def load_snapshot(self) -> Snapshot | None:
        snapshot = self._contents.snapshot
        if snapshot is None or snapshot.offset > self.end_offset:
            return None
        return snapshot

    def configure(self, settings: LogSettings) -> None:
        self.settings = settings

    @property
    def compacted_end(self) -> int:
        return max(self._contents.compacted_end, self.log_start_offset)

    async def segments(self) -> list[SegmentInfo]:
        contents = self._contents
        segments = contents.segments
        if not segments:
            return []
        ends = [*(segment.base_offset for segment in segments[1:]), contents.next_offset]
        return [
            SegmentInfo(
                segment.base_offset,
                ends[number],
                segment.size_bytes,
                max(
                    (batch.max_timestamp_ms for batch in contents.batches_of(number)),
                    default=NO_TIMESTAMP_MS,
                ),
                segment.begun_ms,
            )
            for number, segment in enumerate(segments)
        ]

    async def roll(self) -> None:
        contents = self._contents
        if contents.segments and contents.segments[-1].size_bytes:
            contents.roll(contents.next_offset)

    async def compact(self, job: CompactionJob) -> CompactionReport:
        from kgw.backend.memory_compaction import compact

        contents = self._contents
        sealed = contents.segments[:-1]
        pieces = [
            contents.batches_of(number)
            for number, segment in enumerate(sealed)
            if segment.base_offset < job.upper_bound
        ]
        compacted, report = compact(pieces, self.compacted_end, job)
        if not job.is_dry_run:
            contents.replace(compacted)
            contents.compacted_end = report.compacted_end
            self._size_bytes = sum(segment.size_bytes for segment in contents.segments)
        return report

    @property
    def recompressed(self) -> Recompressed:
        return self._contents.recompressed

    async def recompress(self, job: RecompressionJob) -> RecompressionReport:
        from kgw.backend.memory_compaction import recompress

        contents = self._contents
        ends = [segment.base_offset for segment in contents.segments[1:]]
        pieces = [
            contents.batches_of(number) for number, end in enumerate(ends) if end <= job.upper_bound
        ]
        recompressed, report = recompress(pieces, contents.recompressed.end_offset, job)
        contents.replace(recompressed)
        contents.recompressed = contents.recompressed.add(
            report.recompressed_end, report.bytes_before, report.bytes_after
        )
        self._size_bytes = sum(segment.size_bytes for segment in contents.segments)
        return report


class MemoryBackend(Backend):
    """Logs and state in memory. Closing and opening the backend again loses nothing."""

    def __init__(self, clock: Clock | None = None, hot_batches: int = HOT_BATCHES) -> None:
        """`hot_batches` is the most batches that one `read_hot` examines."""
        self._hot_batches = hot_batches
        self.state: StateStore = MemoryStateStore()
        self._clock = clock or SystemClock()
        self._contents: dict[PartitionKey, _Contents] = {}
        self._partitions: dict[PartitionKey, MemoryPartitionLog] = {}
        self._submitted: list[_Submitted] = []
        self._problems: list[str] = []
        self._is_open = False
        self._is_held = False
        self._is_commit_due = False
        self._fails_next = False

    def beside(self) -> MemoryBackend:
        """Return another backend over the same records and state, for a second node."""
        other = MemoryBackend(self._clock, self._hot_batches)
        other.state, other._contents = self.state, self._contents
        return other

    @property
    def location(self) -> str:
        return "memory"

    @property
    def partition_keys(self) -> list[PartitionKey]:
        """All partitions that have records stored, open or not."""
        return list(self._contents)

    async def open(self) -> None:
        if self._is_open:
            raise DataDirectoryError("this memory backend is open already")
        self._is_open = True

    async def aclose(self) -> None:
        self.release()
        self._commit()
        self._close("the backend is closed")

    async def crash(self) -> None:
        """Stop like a killed process: appends that are not committed yet fail.

        The records of these appends are lost. The next leader epoch begins, as after every unclean
        stop.
        """
        for submitted in self._take_submitted():
            submitted.fail("the backend has crashed")
        self._close("the backend has crashed")
        for contents in self._contents.values():
            contents.raise_epoch()

    def _close(self, reason: str) -> None:
        for log in self._partitions.values():
            log.retire(reason)
        self._partitions.clear()
        self._problems.clear()
        self._is_open = False
        self._is_held = False

    def hold(self) -> None:
        """Commit nothing until `release` is called, like a slow disk."""
        self._is_held = True

    def release(self) -> None:
        """Resume commits, beginning with the appends that were held back."""
        self._is_held = False
        if self._submitted:
            self._commit_soon()

    def fail_next_append(self) -> None:
        """Let the next append fail, like a disk without space.

        All appends to the same partition in that commit fail, too, and their offsets are assigned
        again.
        """
        self._fails_next = True

    @property
    def partitions(self) -> Mapping[PartitionKey, PartitionLog]:
        return MappingProxyType(self._partitions)

    async def create_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        self._contents.setdefault(key, _Contents())
        return self._open_log(key, settings)

    async def open_partition(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> PartitionLog:
        if key not in self._contents:
            self._contents[key] = _Contents()
            self._problems.append(f"partition {key} of topic {topic} was missing; created empty")
        return self._open_log(key, settings)

    def _open_log(self, key: PartitionKey, settings: LogSettings) -> MemoryPartitionLog:
        if not self._is_open:
            raise StorageError("the backend is not open")
        log = self._partitions.get(key)
        if log is None:
            contents = self._contents[key]
            log = MemoryPartitionLog(
                key, contents, settings, self._clock, self._submit, self._hot_batches
            )
            self._partitions[key] = log
        return log

    async def delete_partition(self, key: PartitionKey) -> None:
        self._contents.pop(key, None)
        log = self._partitions.pop(key, None)
        if log is None:
            return
        reason = f"partition {key} has been deleted"
        log.retire(reason)
        for submitted in self._take_submitted():
            if submitted.log is log:
                submitted.fail(reason)
            else:
                self._submitted.append(submitted)

    async def release_partition(self, key: PartitionKey) -> None:
        log = self._partitions.pop(key, None)
        if log is None:
            return
        log.retire(f"partition {key} has been released")
        for submitted in [one for one in self._submitted if one.log is log]:
            await until_done(submitted)
        self._contents[key].raise_epoch()

    async def forget_others(self) -> None:
        """Do nothing: there is no metadata beside the logs."""

    async def checkpoint(self) -> None:
        """Do nothing: there is no recovery."""

    @property
    def health(self) -> Health:
        if not self._is_open:
            return Health((NOT_OPEN,))
        return Health(tuple(Problem(DAMAGE, text) for text in self._problems))

    def _submit(self, submitted: _Submitted) -> None:
        self._submitted.append(submitted)
        if not self._is_held:
            self._commit_soon()

    def _commit_soon(self) -> None:
        if not self._is_commit_due:
            self._is_commit_due = True
            get_running_loop().call_soon(self._commit_due)

    def _commit_due(self) -> None:
        self._is_commit_due = False
        if not self._is_held:
            self._commit()

    def _commit(self) -> None:
        """Store all submitted appends, call `on_advance` of each partition, finish the appends."""
        group = self._take_submitted()
        if self._fails_next and group:
            self._fails_next = False
            group = _fail_log(group, group[0].log)
        stored: Counter[MemoryPartitionLog] = Counter()
        for submitted in group:
            stored[submitted.log] += submitted.log.store(submitted.batches)
        for log, size_bytes in stored.items():
            log.commit(size_bytes)
        for submitted in group:
            submitted.finish()

    def _take_submitted(self) -> list[_Submitted]:
        taken, self._submitted = self._submitted, []
        return taken


def _fail_log(group: list[_Submitted], log: MemoryPartitionLog) -> list[_Submitted]:
    """Fail all appends that were submitted to a log; return the others."""
    log.give_up()
    for submitted in group:
        if submitted.log is log:
            submitted.fail("the append was made to fail")
    return [submitted for submitted in group if submitted.log is not log]
