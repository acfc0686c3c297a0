"""Group commit: appends are queued, written together, synced once, completed in order.

Plain code without threads. `submit` and `complete_group` belong to the event loop, `take_group` and
`write_group` to the flusher, `retire` to a thread that may wait for the disk.

The order that every promise rests on: bytes are written, then synced (in the journal or in their
segments), then their appends succeed, then the high watermark moves. In a relaxed log the sync
comes last (`relaxed`).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import SyncFailedError, storage_error
from kgw.backend.embedded.files.pool import FilePool
from kgw.backend.embedded.log.journal import Journal
from kgw.backend.embedded.log.quarantine import Quarantine
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.log.segmented_log import DataDirectory, SegmentedLog
from kgw.backend.embedded.recover.rebuilding import rebuild_side
from kgw.backend.embedded.write.append import Append
from kgw.backend.embedded.write.disk_room import DiskRoom
from kgw.backend.embedded.write.journaled import JournaledSegments
from kgw.backend.embedded.write.relaxed import RelaxedLogs
from kgw.backend.embedded.write.segment_syncs import sync_segments
from kgw.backend.embedded.write.write_back import WRITE_BACK_BYTES
from kgw.backend.embedded.write.written import Begun, Written
from kgw.clock import SystemClock
from kgw.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kgw.backend.embedded.files.fs import File, FileSystem
    from kgw.backend.embedded.log.journal import Redo
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.backend.embedded.write.journaled import Retirement
    from kgw.backend.embedded.write.relaxed import Flush
    from kgw.records.batch import RecordBatch

_MAX_PROBLEMS: Final = 100
_MAX_REPORTED: Final = 10_000
"""A directory with more than that wrong says the rest no more: the log must not fill the disk."""


class GroupWriter:
    """The queue of a data directory and its way to the disk."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        options: EmbeddedOptions,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self.fs = fs
        self.root = root
        self.options = options
        self.pool = FilePool(fs, options.open_files)
        self.announce: Callable[[str], None] = _keep_quiet
        """Told of each problem once, as it is found, by whichever thread finds it."""
        self.remark: Callable[[str], None] = _keep_quiet
        """Told of what is in order, but not usual."""
        self.quarantine = Quarantine(
            fs,
            f"{root}/{layout.QUARANTINE_DIRECTORY}",
            options.quarantine_bytes,
            self.report,
            self.note,
        )
        self.directory = DataDirectory(
            root,
            fs,
            self.pool,
            options,
            self.report,
            wall_ms or SystemClock().wall_ms,
            self.note,
            self.quarantine,
        )
        self.journal = Journal(fs, f"{root}/{layout.JOURNAL_DIRECTORY}", options.journal_bytes)
        self.journaled = JournaledSegments(fs, self.journal, options, self.report, self.fail)
        self.journaled.retire_soon = self.retire  # at once, unless a shell has something better
        self.relaxed = RelaxedLogs(options, self.report, self.fail)
        self.room = DiskRoom(fs, root, options.min_free_bytes)
        self.problems: list[str] = []
        self._reported: dict[str, None] = {}
        self.failure: StorageError | None = None
        """Why nothing is written any more: a sync failed, once and for all."""
        self.write_back_soon: Callable[[Segment], object] = _leave_it
        """Told of segments that have grown, and that nobody is about to sync."""
        self.is_closed = False
        """Whether nothing more is taken: the store is being closed, or is."""
        self.appended_bytes = 0
        """Bytes written since the last checkpoint was planned."""
        self._pending: deque[Append] = deque()

    # --- appending -----------------------------------------------------------------------------

    def submit(self, log: SegmentedLog, batches: Sequence[RecordBatch]) -> Append:
        """Give batches their offsets and queue them.

        Raises StorageError when nothing is written any more.
        """
        if self.failure is not None:
            raise self.failure
        if log.is_deleted or self.is_closed:
            raise StorageError(
                f"partition {log.key} has been deleted" if log.is_deleted else "the log is closed"
            )
        append = Append(log, batches, log.begin_append(batches))
        self._pending.append(append)
        return append

    @property
    def has_pending(self) -> bool:
        """Whether appends wait for a flush."""
        return bool(self._pending)

    def flush_group(self) -> list[Append]:
        """Write, sync and complete what is queued, up to the size of a group."""
        group = self.take_group()
        self.write_group(group)
        self.complete_group(group)
        return group

    def take_group(self) -> list[Append]:
        """Take what is queued from the queue, up to the size of a group."""
        group: list[Append] = []
        size_bytes = 0
        options, pending = self.options, self._pending
        logs: set[SegmentedLog] = set()
        while pending and size_bytes < options.group_bytes and len(logs) < options.group_partitions:
            append = pending.popleft()
            size_bytes += append.size_bytes
            logs.add(append.log)
            group.append(append)
        return group

    def take_quick_group(self, *, may_sync: bool) -> list[Append] | None:
        """Take what is queued, if writing it waits for no disk; else None, and leave it there.

        Few bytes, files that are open, segments with room for them. Unless `may_sync`, all of it
        may be answered before it is durable. Of many small appends the first ones are taken: a
        thread that writes them would have to get the interpreter back after each.
        """
        options, pending = self.options, self._pending
        size_bytes = batch_count = count = 0
        last: dict[SegmentedLog, Append] = {}
        for append in islice(pending, options.quick_appends):
            if size_bytes + append.size_bytes > options.quick_bytes or (
                len(last) >= options.group_partitions and append.log not in last
            ):
                if size_bytes > count * options.journal_append_bytes:
                    return None
                break
            size_bytes += append.size_bytes
            batch_count += len(append.batches)
            count += 1
            last[append.log] = append
        if not count or not self.room.has_spare(size_bytes):
            return None
        for log, append in last.items():
            end_offset = append.result.last_offset + 1
            if not log.has_place_for(batch_count, size_bytes, end_offset) or not (
                may_sync or self.relaxed.may_wait(log, end_offset)
            ):
                return None
        self.room.spend(size_bytes)
        return [pending.popleft() for _ in range(count)]

    def write_group(self, group: list[Append]) -> None:
        """Make a group durable; what failed carries its error."""
        size_bytes = sum(append.size_bytes for append in group)
        refusal = self.failure or self.room.look(size_bytes)
        self.finish(self.write(group, refusal, in_thread=True))

    def finish(self, written: Written) -> None:
        """Do what must wait for the disk once a group is written: all that `write` has left."""
        self.undo_failed(written)
        self.settle(written, self.sync(written))

    def write(
        self, group: list[Append], refusal: StorageError | None, *, in_thread: bool = False
    ) -> Written:
        """Write a group, without a sync; refuse all of it for a given reason.

        What failed is in the segments in part, perhaps: `undo_failed` is due then. A thread has the
        disk begin with the first segments of a large group while it writes the others.
        """
        by_log = self._admit(group, refusal)
        begins_early = in_thread and self._syncs_segments(by_log)
        written = Written(by_log)
        begun: dict[SegmentedLog, Begun] = {}
        for log, appends in by_log.items():
            one = self._write(log, appends, written.failed)
            if one is not None:
                begun[log] = one
                segment = log.segments[-1]
                if begins_early and not one.may_wait and segment.unsent_bytes >= WRITE_BACK_BYTES:
                    segment.write_back()
        self._sync_new_names(by_log, begun)
        waiting: list[SegmentedLog] = []
        redos: list[Redo] = []
        for log, one in begun.items():
            if one.may_wait:
                self.relaxed.note(log, one.before)
                for append in by_log[log]:
                    append.is_durable = False
            elif log.durable is not None:
                # The journal cannot vouch for what lies behind bytes that no sync has covered.
                written.by_segment.append(log)
            else:
                waiting.append(log)
                redos += one.redos
        if waiting and self.failure is None and self.journaled.append(redos):
            written.by_journal = waiting
        else:
            written.by_segment += waiting
        return written

    def sync(self, written: Written) -> list[SyncFailedError | None]:
        """Sync what was written, in threads that may wait; returns what went wrong with each.

        In the order of `Written.syncs`. After a failure the journal's sync is not tried.
        """
        if self.failure is not None:
            return []
        outcomes = sync_segments(self.fs, [log.segments[-1] for log in written.by_segment])
        if written.by_journal and not any(outcomes):
            try:
                self.journal.sync()
            except OSError as error:
                outcomes.append(SyncFailedError(f"journal: {error}"))
            else:
                outcomes.append(None)
        return outcomes

    def begin_syncs(self, written: Written) -> list[File] | None:
        """Return the files to be synced, in the order of `Written.syncs`, until `end_syncs`.

        Or until `give_up_syncs`, which is due in any case where this returns no files.

        None when another syncs one of them, or such a sync has failed: a thread must wait for it.
        Raises OSError.
        """
        for log in written.by_segment:
            segment = log.segments[-1]
            pooled = segment.begin_sync()
            if pooled is None:
                return None
            written.in_use.append((segment, pooled))
        files = [pooled.file for _, pooled in written.in_use]
        if written.by_journal:
            files.append(self.journal.active_file)
        return files

    def end_syncs(self, written: Written, outcomes: Sequence[SyncFailedError | None]) -> None:
        """Give back what `begin_syncs` returned, with what went wrong with each.

        Before it is known here, no other sync of one of these files begins.
        """
        in_use, written.in_use = written.in_use, []
        # The last outcome may be the journal's.
        for (segment, pooled), failure in zip(in_use, outcomes, strict=False):
            self._give_back(segment, partial(segment.end_sync, pooled, failure))

    def give_up_syncs(self, written: Written) -> None:
        """Give back what `begin_syncs` has taken, none of it synced for all that is known."""
        in_use, written.in_use = written.in_use, []
        for segment, pooled in in_use:
            self._give_back(segment, partial(segment.give_up_sync, pooled))

    def _give_back(self, segment: Segment, give_back: Callable[[], None]) -> None:
        """Let go of one file; nothing that its being closed says keeps the others in use."""
        try:
            give_back()
        except OSError as error:
            # Only the files of removed segments are closed here: what they held is not needed.
            self.report(f"{segment.log_path}: {error}")

    def settle(self, written: Written, outcomes: Sequence[SyncFailedError | None]) -> None:
        """Take the outcomes of a group's syncs: fewer than `Written.syncs` when some were left."""
        durable: set[SegmentedLog] = set()
        for logs, failure in zip(written.syncs, outcomes, strict=False):
            if failure is not None:
                self.fail(failure)
            elif logs is written.by_journal:
                durable.update(logs)
                self._note_journaled(logs)
            else:
                durable.update(logs)
                self._note_synced(logs[0])
        for log, appends in written.by_log.items():
            if self.failure is not None and log not in durable:
                _fail(appends, self.failure)
            if appends[0].error is None:
                log.written_end = appends[-1].result.last_offset + 1
                self.appended_bytes += sum(append.size_bytes for append in appends)
                segment = log.segments[-1]
                if segment.unsent_bytes >= WRITE_BACK_BYTES:
                    self.write_back_soon(segment)

    def _admit(
        self, group: list[Append], refusal: StorageError | None
    ) -> dict[SegmentedLog, list[Append]]:
        """Sort a group by log and refuse what cannot be written."""
        by_log: dict[SegmentedLog, list[Append]] = {}
        for append in group:
            log = append.log
            if log.is_deleted:
                append.error = StorageError(f"partition {log.key} has been deleted")
            elif append.attempt <= log.refused_attempt:
                append.error = StorageError("an append before this one failed")
            elif refusal is not None:
                append.error = refusal
                log.refused_attempt = append.attempt
            elif log in by_log:
                by_log[log].append(append)
            else:
                by_log[log] = [append]
        return by_log

    def _write(
        self, log: SegmentedLog, appends: list[Append], failed: dict[SegmentedLog, OSError]
    ) -> Begun | None:
        """Write one log's share into its segments; None, and it is noted, if that failed.

        The names of segments that it began are left to `_sync_new_names`.
        """
        if self.failure is not None:
            _fail(appends, self.failure)
            return None
        batches = (
            appends[0].batches
            if len(appends) == 1
            else [batch for append in appends for batch in append.batches]
        )
        may_wait = self.relaxed.may_wait(log, appends[-1].result.last_offset + 1)
        log.begin_write()
        try:
            self._load_last(log)
            # Where the durable part ends matters while all of it is.
            before = log.mark() if may_wait and log.durable is None else None
            redos = log.write(batches)
        except OSError as error:
            failed[log] = error
        except SyncFailedError as error:
            self.fail(error)
            _fail(appends, self.failure)
        else:
            return Begun(redos, before, may_wait=may_wait)
        return None

    def _syncs_segments(self, by_log: dict[SegmentedLog, list[Append]]) -> bool:
        """Whether a group syncs several segments, as far as can be told before it is written.

        Those that the journal is about to vouch for would be in the way of its sync.
        """
        strict = [appends for log, appends in by_log.items() if not log.settings.is_relaxed]
        size_bytes = sum(append.size_bytes for appends in strict for append in appends)
        return len(strict) > 1 and not self.journaled.suits(len(strict), size_bytes)

    def undo_failed(self, written: Written) -> None:
        """Take back what `write` could not write all of, and refuse it: syncs, and may wait."""
        for log, error in written.failed.items():
            self._undo(log, written.by_log[log], error)

    def _undo(self, log: SegmentedLog, appends: list[Append], error: OSError) -> None:
        """Take back what was written of one log, and refuse it."""
        try:
            log.undo()
        except (OSError, SyncFailedError) as undoing:
            self.fail(undoing)
            _fail(appends, self.failure)
            return
        _fail(appends, storage_error(error, f"cannot append to partition {log.key}"))
        log.refused_attempt = appends[0].attempt

    def _sync_new_names(
        self,
        by_log: dict[SegmentedLog, list[Append]],
        begun: dict[SegmentedLog, Begun],
    ) -> None:
        """Make the segments durable that a group began, before anything rests on them.

        Together: the first records of 100 partitions need 100 syncs.
        """
        logs = [log for log in begun if log.has_new_names]
        if not logs or self.failure is not None:
            return
        outcomes = self.pool.sync_directories([log.path for log in logs])
        for log, outcome in zip(logs, outcomes, strict=True):
            if outcome is None:
                continue
            del begun[log]
            if isinstance(outcome, OSError):
                self._undo(log, by_log[log], outcome)
            else:
                self.fail(outcome)
                _fail(by_log[log], self.failure)

    def begin_flush(self, logs: Iterable[SegmentedLog]) -> list[Flush]:
        """Say which segments of relaxed logs are to be synced, as `RelaxedLogs.begin_flush`."""
        self.room.look()
        return self.relaxed.begin_flush(logs)

    def _load_last(self, log: SegmentedLog) -> None:
        """Make sure that the segment's side file can be continued.

        Raises OSError, SyncFailedError.
        """
        if log.segments and log.segments[-1].side is None:
            try:
                log.segments[-1].load()
            except SideFileDamagedError as error:
                rebuild_side(self.directory, log, error.segment)

    def _note_journaled(self, logs: list[SegmentedLog]) -> None:
        for log in logs:
            # A roll has synced the segments before the last.
            segment = log.segments[-1]
            self.journaled.note(segment)
            self._write_side(segment)

    def _note_synced(self, log: SegmentedLog) -> None:
        segment = log.segments[-1]
        self.journaled.forget(segment)
        if log.durable is not None:
            self.relaxed.settle(log)
        self._write_side(segment, at_least_bytes=1)

    def _write_side(self, segment: Segment, **limit: int) -> None:
        """Write side entries of durable batches. When that fails they stay in memory for now."""
        try:
            segment.write_side(**limit)
        except OSError as error:
            self.report(f"{segment.side_path}: {error}")

    def complete_group(self, group: list[Append]) -> list[SegmentedLog]:
        """Move the high watermarks and give up the offsets of what failed, group after group.

        Returns the logs whose high watermark has moved.
        """
        # The last of each log says it all: there may be fifty of one in a group.
        last: dict[SegmentedLog, Append] = {}
        refused: list[Append] = []
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
            if append.attempt == log.attempt and not log.is_deleted and self.failure is None:
                log.offsets.rewind(log.offsets.high_watermark)
                log.attempt += 1
        return moved

    def fail(self, error: Exception) -> None:
        """Write nothing any more, until the next start: a sync has failed."""
        if self.failure is None:
            self.failure = StorageError(f"the data directory has failed: {error}")
            self.journal.end()
            self.report(str(self.failure))
            at_risk = self.relaxed.at_risk()
            if at_risk is not None:
                self.report(at_risk)

    def retire(self, retirement: Retirement) -> None:
        """Make a full journal file usable again, as `JournaledSegments.retire`."""
        if self.failure is None:
            self.journaled.retire(retirement)

    # --- what is wrong -------------------------------------------------------------------------

    def report(self, problem: str) -> None:
        """Announce a sentence, once, and keep the first ones for `health`."""
        reported = self._reported
        if problem in reported or len(reported) >= _MAX_REPORTED:
            return
        reported[problem] = None
        if len(reported) <= _MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.problems[_MAX_PROBLEMS:] = [f"{len(reported) - _MAX_PROBLEMS} more are in the log"]
        self.announce(problem)

    def note(self, sentence: str) -> None:
        """Have something said in the log that is no problem."""
        self.remark(sentence)

    @property
    def is_writable(self) -> bool:
        """Whether appends are taken now; after a full disk the disk is asked again."""
        has_room = self.room.look_again()
        return self.failure is None and has_room

    def check_writable(self) -> None:
        if self.failure is not None:
            raise self.failure


def _leave_it(_segment: Segment) -> None:
    """Do without a thread: what is synced later is written then."""


def _keep_quiet(_problem: str) -> None:
    """Do without a log."""


def _fail(appends: Iterable[Append], error: StorageError | None) -> None:
    for append in appends:
        append.error = error
