"""Queues appends, writes them in groups, syncs each group once and answers the appends in order.

All guarantees depend on this order. The bytes are written, then synced (in the journal or in their
segments), then the high watermark moves, then the appends succeed. In a relaxed log the sync comes
last (`relaxed`).

Plain code without threads, so that a simulation can stop it after any operation. `submit` and
`complete_group` are called in the event loop, `take_group` and `write_group` in the flusher's
thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.append import Append, AppendResult
from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import SyncFailedError, is_out_of_space, storage_error
from kgw.backend.embedded.files.durability import sync_directories
from kgw.backend.embedded.log.journal import Journal
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.write.relaxed import RelaxedLogs
from kgw.backend.embedded.write.segment_syncs import sync_segments
from kgw.errors import DiskFullError, StorageError
from kgw.problems import BATCH_ROOM, ROOM, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kgw.backend.embedded.log.data_directory import DataDirectory
    from kgw.backend.embedded.log.journal import Redo
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import DurableMark, SegmentedLog
    from kgw.records.batch import RecordBatch


WRITE_BACK_BYTES: Final = 256 << 10
"""After this many new bytes in a segment, the system is asked to write them back. Otherwise a later
sync would write all of them at once, and other syncs would wait for it
(docs/decisions/0071-writing-back-as-segments-grow.md)."""


class DiskAppend(Append):
    """An append of batches to a log on the disk."""

    __slots__ = ("attempt", "batches", "is_durable", "log", "size_bytes")

    error: StorageError | None

    def __init__(self, log: SegmentedLog, batches: Sequence[RecordBatch], base_offset: int) -> None:
        super().__init__()
        self.log = log
        self.batches = batches
        self.attempt = log.attempt
        last = batches[-1]
        self.result = AppendResult(base_offset, last.last_offset, last.leader_epoch)
        self.is_durable = True
        """Whether the batches are durable when the append succeeds. In a relaxed log they may not
        be."""
        # A fast path for a single batch, because this runs ten thousand times a second.
        self.size_bytes = (
            len(batches[0].buffer)
            if len(batches) == 1
            else sum(len(batch.buffer) for batch in batches)
        )


class _LogWrite(NamedTuple):
    """The result of writing a group's batches for one log to segments."""

    redos: list[Redo]
    before: DurableMark | None
    """The end of the log before this write. None if the log already had unsynced batches, or if its
    appends wait for the sync."""
    may_wait: bool
    """Whether the log's appends are acknowledged before a sync."""


class Retirement(NamedTuple):
    """A full journal file, and the segments that must be synced before it can be reused."""

    journal_number: int
    segments: list[Segment]


class JournaledSegments:
    """The segments whose newest bytes are durable only in the journal.

    Small appends to many partitions share one sync of the journal. When a journal file is full,
    `retire` syncs its segments, so that the file can be reused. `retire` runs in a thread that may
    wait for the disk, all other methods in the flusher's thread.
    """

    def __init__(self, directory: DataDirectory, journal: Journal) -> None:
        self._directory = directory
        self._journal = journal
        self.retire_soon: Callable[[Retirement], object] = self.retire
        """Handles a full journal file, by default at once. The backend sets a function that does it
        in a thread."""
        self._dirty: dict[Segment, None] = {}
        """Segments with bytes that are durable only in the journal."""
        self._postponed: Retirement | None = None
        """A full journal file that could not be made reusable, because the disk is full."""

    def note(self, segment: Segment) -> None:
        """Record that the journal has made a segment's newest bytes durable."""
        self._dirty[segment] = None

    def forget(self, segment: Segment) -> None:
        """Record that a segment has been synced or removed."""
        self._dirty.pop(segment, None)

    def append(self, redos: Sequence[Redo]) -> bool:
        """Write small appends as one frame of the journal. Return False if that is impossible.

        The caller then syncs their segments.
        """
        journal = self._journal
        size_bytes = 0
        for redo in redos:
            size_bytes += redo.size_bytes
        options = self._directory.options
        if not journal.is_ready or size_bytes > len(redos) * options.journal_append_bytes:
            return False
        crowded = len(self._dirty) >= options.dirty_segments
        if (crowded or not journal.has_room(len(redos), size_bytes)) and not (
            self.switch() and journal.has_room(len(redos), size_bytes)
        ):
            return False
        try:
            journal.append(redos)
        except OSError as error:
            # The journal ignores the failed frame. If a start reads it after a crash, it only
            # repeats bytes that are already in the segments.
            self._directory.report(f"journal: {error}; this group syncs its segments")
            return False
        return True

    def switch(self) -> bool:
        """Continue in the other journal file; return False while that file cannot be used."""
        if self._postponed is not None:
            retirement, self._postponed = self._postponed, None
            self.retire_soon(retirement)
        if not self._journal.has_free_file:
            return False
        retirement = Retirement(self._journal.switch(), list(self._dirty))
        self._dirty.clear()
        self.retire_soon(retirement)
        return True

    def retire(self, retirement: Retirement) -> None:
        """Sync the segments of a full journal file, and make the file usable again."""
        directory = self._directory
        if directory.failure is not None:
            return
        try:
            # Sync all segments together, because until this is done each group may have to sync its
            # segments.
            left = [segment for segment in retirement.segments if not segment.is_removed]
            for failure in sync_segments(left):
                if failure is not None:
                    raise failure
            self._journal.retire(retirement.journal_number)
        except (OSError, SyncFailedError) as error:
            if isinstance(error, OSError) and is_out_of_space(error):
                # On file systems that do not overwrite in place, even this write may fail because
                # the disk is full. The segments are durable. Groups of appends sync their
                # segments until the journal's file can be used again.
                directory.report(f"journal: {error}; every append syncs its segment for now")
                self._postponed = retirement
            else:
                directory.fail(error)


class WritePath:
    """The only writer of a data directory's batches."""

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self.journal = Journal(
            directory.fs,
            f"{directory.root}/{layout.JOURNAL_DIRECTORY}",
            directory.options.journal_bytes,
        )
        self.journaled = JournaledSegments(directory, self.journal)
        self.relaxed = RelaxedLogs(directory)
        directory.when_failed = self._stop
        self.write_back_soon: Callable[[Callable[[], None]], object] = _leave_it
        """Runs a function in a thread that may wait for the disk. The function asks the system to
        write back a grown segment."""
        self.is_closed = False
        """Whether new appends are refused because the store is closed or being closed."""
        self.appended_bytes = 0
        """Number of bytes in the groups since the last checkpoint began."""
        self.pending: deque[DiskAppend] = deque()
        """The queued appends. Both ends of a deque may be used from two threads."""
        self._is_disk_full = False
        """Whether the last check found too little free space for any append."""
        self._room = ""
        """The result of that check, as text for the operator."""
        self._refused_bytes = 0
        """Size of the last group that was refused for lack of space."""

    # --- the event loop --------------------------------------------------------------------------

    def submit(self, log: SegmentedLog, batches: Sequence[RecordBatch]) -> DiskAppend:
        """Assign offsets to batches and queue them.

        Raises StorageError if the directory has failed or is closed, or the log is deleted.
        """
        if self.directory.failure is not None:
            raise self.directory.failure
        if log.is_deleted or self.is_closed:
            raise StorageError(
                f"partition {log.key} has been deleted" if log.is_deleted else "the log is closed"
            )
        append = DiskAppend(log, batches, log.begin_append(batches))
        self.pending.append(append)
        return append

    def complete_group(self, group: list[DiskAppend]) -> list[SegmentedLog]:
        """Move the high watermarks of a written group, and free the offsets of failed appends.

        Returns the logs whose high watermark has moved.
        """
        # Only the last append of each log matters; a group may have fifty appends to one log.
        last: dict[SegmentedLog, DiskAppend] = {}
        refused: list[DiskAppend] = []
        for append in group:
            if append.error is None:
                last[append.log] = append
            else:
                refused.append(append)
        moved: list[SegmentedLog] = []
        for log, append in last.items():
            offsets = log.offsets
            advance = offsets.advance_durable if append.is_durable else offsets.advance_written
            if advance(append.result.last_offset + 1):
                moved.append(log)
        for append in refused:
            log = append.log
            if (
                append.attempt == log.attempt
                and not log.is_deleted
                and self.directory.failure is None
            ):
                log.offsets.rewind(log.offsets.high_watermark)
                log.attempt += 1
        return moved

    @property
    def is_writable(self) -> bool:
        """Whether the disk has space for appends now and no sync has failed."""
        self.look_for_room()
        return self.directory.failure is None and not self._is_disk_full

    @property
    def found(self) -> tuple[Problem, ...]:
        """The reasons why appends are refused, or were refused recently."""
        room = (Problem(ROOM, self._room),) if self._is_disk_full else ()
        lately = self.directory.refusals.problems
        # If the free space is below the reserve, every append is refused, so recent refusals need
        # no report.
        return room + tuple(one for one in lately if not room or one.reason is not BATCH_ROOM)

    # --- the flusher's thread --------------------------------------------------------------------

    def take_group(self) -> list[DiskAppend]:
        """Take appends from the queue, up to the limit of a group."""
        group: list[DiskAppend] = []
        size_bytes = 0
        options, pending = self.directory.options, self.pending
        logs: set[SegmentedLog] = set()
        while pending and size_bytes < options.group_bytes and len(logs) < options.group_partitions:
            append = pending.popleft()
            size_bytes += append.size_bytes
            logs.add(append.log)
            group.append(append)
        self.appended_bytes += size_bytes
        return group

    def write_group(self, group: list[DiskAppend]) -> None:
        """Write a group and make it durable; set the error of each failed append."""
        by_log = self._admit(group)
        shares: dict[SegmentedLog, _LogWrite] = {}
        for log, appends in by_log.items():
            share = self._write_share(log, appends)
            if share is not None:
                shares[log] = share
        self._sync_new_names(by_log, shares)
        durable = self._sync(by_log, shares)
        failure = self.directory.failure
        for log, appends in by_log.items():
            if failure is not None and log not in durable:
                _refuse(appends, failure)
            elif appends[0].error is None:
                log.written_end = appends[-1].result.last_offset + 1
                segment = log.segments[-1]
                unsent_bytes = segment.size_bytes - segment.sent_bytes
                if unsent_bytes >= WRITE_BACK_BYTES and not segment.is_handed_on:
                    segment.is_handed_on = True
                    self.write_back_soon(segment.write_back)

    def _admit(self, group: list[DiskAppend]) -> dict[SegmentedLog, list[DiskAppend]]:
        """Return a group's appends by log, after refusing those that cannot be written."""
        by_log: dict[SegmentedLog, list[DiskAppend]] = {}
        size_bytes = 0
        for append in group:
            log = append.log
            size_bytes += append.size_bytes
            if log in by_log:
                by_log[log].append(append)
            elif log.is_deleted:
                append.error = StorageError(f"partition {log.key} has been deleted")
            elif append.attempt <= log.refused_attempt:
                append.error = StorageError("an append before this one failed")
            else:
                by_log[log] = [append]
        refusal = self.directory.failure or self._look_for_room(size_bytes)
        if refusal is not None:
            for log, appends in by_log.items():
                _refuse(appends, refusal)
                log.refused_attempt = appends[-1].attempt
            by_log.clear()
        return by_log

    def look_for_room(self) -> None:
        """Check the free space of the disk without writing anything. In any thread."""
        self._look_for_room(0)

    def _look_for_room(self, size_bytes: int) -> StorageError | None:
        """Return an error if the disk has no space for this many bytes.

        Some space is reserved for the state store.
        """
        directory = self.directory
        reserve_bytes = directory.options.min_free_bytes
        if reserve_bytes <= 0:
            return None
        try:
            free_bytes = directory.fs.free_bytes(directory.root)
        except OSError as error:
            directory.refuse(f"nobody knows how much room there is: {error}", error)
            return StorageError(str(error))
        needed_bytes = reserve_bytes + size_bytes
        is_full = free_bytes < reserve_bytes
        if is_full:
            # Set this before `_is_disk_full`, because other threads read `_is_disk_full` first.
            self._room = f"{free_bytes} bytes are free where {reserve_bytes} are needed"
        self._is_disk_full = is_full
        if free_bytes >= needed_bytes:
            if self._refused_bytes and free_bytes >= reserve_bytes + self._refused_bytes:
                self._refused_bytes = 0
                directory.refusals.forget(BATCH_ROOM)
            return None
        refusal = f"{free_bytes} bytes are free where {needed_bytes} are needed"
        if size_bytes:
            self._refused_bytes = size_bytes
            directory.refusals.note(BATCH_ROOM, f"{size_bytes} bytes were refused: {refusal}")
        return DiskFullError(refusal)

    def _write_share(self, log: SegmentedLog, appends: list[DiskAppend]) -> _LogWrite | None:
        """Write the batches of one log into its segments; None if that fails.

        The names of new segments are made durable by `_sync_new_names`.
        """
        directory = self.directory
        if directory.failure is not None:
            return None
        batches = (
            appends[0].batches
            if len(appends) == 1
            else [batch for append in appends for batch in append.batches]
        )
        may_wait = False
        if log.settings.is_relaxed:
            may_wait = self.relaxed.may_wait(log, appends[-1].result.last_offset + 1)
        elif log.reserved_end:
            self.relaxed.release(log)
        log.begin_write()
        try:
            self.load_last(log)
            # Needed only if the whole log was durable. Otherwise `log.durable` is the end of the
            # durable batches.
            before = log.mark() if may_wait and log.durable is None else None
            return _LogWrite(log.write(batches), before, may_wait)
        except OSError as error:
            self._refuse_share(log, appends, error)
        except SyncFailedError as error:
            directory.fail(error)
        return None

    def load_last(self, log: SegmentedLog) -> None:
        """Make sure that the side file of the last segment can be appended to.

        Raises OSError, SyncFailedError.
        """
        if log.segments and log.segments[-1].side is None:
            try:
                log.segments[-1].load()
            except SideFileDamagedError as error:
                # Imported late: a start does not need it.
                from kgw.backend.embedded.recover.rebuilding import rebuild_side

                rebuild_side(self.directory, log, error.segment)

    def undo(self, log: SegmentedLog) -> None:
        """Undo the writes to a log since `begin_write`. If that fails, the directory has failed."""
        try:
            log.undo()
        except (OSError, SyncFailedError) as error:
            self.directory.fail(error)

    def _refuse_share(self, log: SegmentedLog, appends: list[DiskAppend], error: OSError) -> None:
        """Undo the write to one log, and refuse its appends."""
        self.undo(log)
        refusal = storage_error(error, f"cannot append to partition {log.key}")
        self.directory.refuse(str(refusal), error)
        _refuse(appends, refusal)
        log.refused_attempt = appends[0].attempt

    def _sync_new_names(
        self, by_log: dict[SegmentedLog, list[DiskAppend]], shares: dict[SegmentedLog, _LogWrite]
    ) -> None:
        """Sync the names of a group's new segments, before anything depends on them.

        All names are synced together, because the first records of 100 partitions need 100 syncs.
        """
        directory = self.directory
        logs = [log for log in shares if log.new_segments]
        if not logs or directory.failure is not None:
            return
        outcomes = sync_directories(directory.fs, [log.path for log in logs])
        for log, outcome in zip(logs, outcomes, strict=True):
            if isinstance(outcome, OSError):
                del shares[log]
                self._refuse_share(log, by_log[log], outcome)
            elif outcome is not None:
                del shares[log]
                directory.fail(outcome)

    def _sync(
        self, by_log: dict[SegmentedLog, list[DiskAppend]], shares: dict[SegmentedLog, _LogWrite]
    ) -> set[SegmentedLog]:
        """Sync the logs that need it, in the journal or segment by segment.

        Returns the logs that are durable. After a failed sync, nothing more is synced, because a
        later sync proves nothing about the failed one.
        """
        by_segment: list[SegmentedLog] = []
        by_journal: list[SegmentedLog] = []
        redos: list[Redo] = []
        for log, share in shares.items():
            if share.may_wait:
                self.relaxed.note(log, share.before)
                for append in by_log[log]:
                    append.is_durable = False
            elif log.durable is not None:
                # The journal may be used only if all earlier bytes of the segment are durable.
                by_segment.append(log)
            else:
                by_journal.append(log)
                redos += share.redos
        durable: set[SegmentedLog] = set()
        directory = self.directory
        if directory.failure is not None:
            return durable
        if by_journal and not self.journaled.append(redos):
            by_segment += by_journal
            by_journal = []
        if by_segment:
            outcomes = sync_segments([log.segments[-1] for log in by_segment])
            for log, failure in zip(by_segment, outcomes, strict=True):
                if failure is not None:
                    directory.fail(failure)
                else:
                    durable.add(log)
                    self._note_synced(log)
        if by_journal and directory.failure is None:
            try:
                self.journal.sync()
            except OSError as error:
                directory.fail(SyncFailedError(f"journal: {error}"))
            else:
                for log in by_journal:
                    durable.add(log)
                    # A roll has synced all segments before the last one.
                    segment = log.segments[-1]
                    self.journaled.note(segment)
                    self._write_side(segment)
        return durable

    def _note_synced(self, log: SegmentedLog) -> None:
        segment = log.segments[-1]
        self.journaled.forget(segment)
        if log.durable is not None:
            self.relaxed.settle(log)
        self._write_side(segment, at_least_bytes=1)

    def _write_side(self, segment: Segment, **limit: int) -> None:
        """Write side entries of durable batches. If that fails, the entries stay in memory."""
        try:
            segment.write_side(**limit)
        except OSError as error:
            self.directory.report(f"{segment.side_path}: {error}")

    def _stop(self) -> None:
        """Stop using the journal, and report records that a power loss may remove."""
        self.journal.end()
        at_risk = self.relaxed.at_risk()
        if at_risk is not None:
            self.directory.report(at_risk)


def _leave_it(_write_back: Callable[[], None]) -> None:
    """Do nothing: a later sync writes the bytes."""


def _refuse(appends: Iterable[DiskAppend], error: StorageError) -> None:
    for append in appends:
        append.error = error
