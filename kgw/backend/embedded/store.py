"""All logs of a data directory: submit, flush a group, make a checkpoint, recover.

Plain code over the file-system seam, without threads, so that a simulator can stop it after any
operation. The shell (`backend`) runs it so: `submit` and `complete_group` in the event loop,
`take_group`, `write_group` and everything that changes segments in the flusher's thread, the
journal's retirement and a checkpoint's syncs in another; reading anywhere.

The order that every promise rests on: bytes are written, then synced (in the journal or in their
segments), then their appends succeed, then the high watermark moves.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kgw.backend.base import AppendResult
from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import (
    SideFileDamagedError,
    SyncFailedError,
    is_out_of_space,
    replace_durably,
    sync_directory,
)
from kgw.backend.embedded.files import FilePool
from kgw.backend.embedded.indexes import write_indexes
from kgw.backend.embedded.journal import Journal
from kgw.backend.embedded.log import DataDirectory, SegmentedLog
from kgw.backend.embedded.recovery import rebuild_side, recover_log, replay_journal
from kgw.errors import DataDirectoryError, DiskFullError, StorageError
from kgw.offsets.registry import PartitionOffsetRegistry

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterable, Sequence

    from kgw.backend.base import LogSettings
    from kgw.backend.embedded.fs import FileSystem
    from kgw.backend.embedded.journal import Redo
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.backend.embedded.segment import Segment
    from kgw.offsets.recovery import Checkpoint
    from kgw.records.batch import RecordBatch
    from kgw.types import PartitionKey, TopicName

_MAX_PROBLEMS: Final = 100


class Append:
    """Batches on their way to the disk; then `result` or `error` is set."""

    __slots__ = ("attempt", "batches", "error", "log", "result", "size_bytes", "waiter")

    def __init__(self, log: SegmentedLog, batches: Sequence[RecordBatch], base_offset: int) -> None:
        self.log = log
        self.batches = batches
        self.attempt = log.attempt
        self.result = AppendResult(base_offset, batches[-1].last_offset, batches[-1].leader_epoch)
        """Where it lands; it counts only once `error` has stayed None through `complete_group`."""
        self.error: StorageError | None = None
        self.size_bytes = sum(len(batch.buffer) for batch in batches)
        self.waiter: Future[AppendResult] | None = None
        """What the shell resolves when the append is complete."""


class Retirement:
    """A journal file that is full, and the segments whose bytes it vouches for."""

    __slots__ = ("journal_number", "segments")

    def __init__(self, journal_number: int, segments: list[Segment]) -> None:
        self.journal_number = journal_number
        self.segments = segments


class CheckpointPlan:
    """What a checkpoint is about to note, once its files are synced."""

    __slots__ = ("checkpoints", "is_clean", "logs", "segments")

    def __init__(self, *, is_clean: bool) -> None:
        self.is_clean = is_clean
        self.checkpoints: list[Checkpoint] = []
        self.segments: list[tuple[SegmentedLog, Segment]] = []
        self.logs: list[SegmentedLog] = []


class Store:
    """The records half of a data directory."""

    def __init__(self, fs: FileSystem, root: str, options: EmbeddedOptions) -> None:
        self.fs = fs
        self.root = root
        self.options = options
        self.pool = FilePool(fs, options.open_files)
        self.directory = DataDirectory(root, fs, self.pool, options, self.report)
        self.logs: dict[PartitionKey, SegmentedLog] = {}
        self.registry = PartitionOffsetRegistry()
        self.journal = Journal(fs, f"{root}/{layout.JOURNAL_DIRECTORY}", options.journal_bytes)
        self.problems: list[str] = []
        self.announce: Callable[[str], None] = _keep_quiet
        """Told of each problem once, as it is found, by whichever thread finds it."""
        self.failure: StorageError | None = None
        """Why nothing is written any more: a sync failed, once and for all."""
        self.is_out_of_space = False
        self.clean_stop = False
        """Whether the directory was left in order when this store opened it."""
        self.on_disk: set[PartitionKey] = set()
        """Partitions whose directories were there at the start."""
        self.retire_soon: Callable[[Retirement], None] = self.retire
        """What to do with a full journal file; at once unless a shell has something better."""
        self.is_closed = False
        """Whether nothing more is taken: the store is being closed, or is."""
        self.appended_bytes = 0
        """Bytes written since the last checkpoint was planned."""
        self._pending: deque[Append] = deque()
        self._dirty: dict[Segment, None] = {}
        self._proven: dict[PartitionKey, int] = {}
        self._unnoted_deletions: set[PartitionKey] = set()

    # --- opening and closing ---------------------------------------------------------------------

    def open(self) -> None:
        """Bring the directory into order; partitions are opened one by one after that.

        Raises DataDirectoryError when it cannot be used.
        """
        try:
            self._open()
        except (OSError, SyncFailedError) as error:
            raise DataDirectoryError(f"{self.root}: {error}") from error

    def _open(self) -> None:
        fs, root = self.fs, self.root
        for name in (
            layout.PARTITIONS_DIRECTORY,
            layout.JOURNAL_DIRECTORY,
            layout.QUARANTINE_DIRECTORY,
        ):
            if not fs.is_directory(f"{root}/{name}"):
                fs.make_directory_durably(f"{root}/{name}")
        self._check_format()
        partitions = f"{root}/{layout.PARTITIONS_DIRECTORY}"
        for name in fs.listdir(partitions):
            if name.endswith(layout.DELETED_SUFFIX):
                fs.remove_tree(f"{partitions}/{name}")
                continue
            key = layout.parse_directory_name(name)
            if key is not None:
                self.on_disk.add(key)
        self.clean_stop = self._take_clean_marker()
        if not self.clean_stop:
            findings = self.journal.recover()
            for problem in findings.problems:
                self.report(problem)
            self._proven = replay_journal(self.directory, findings.redos)
            self.journal.void()

    def _check_format(self) -> None:
        path = f"{self.root}/{layout.FORMAT_NAME}"
        if self.fs.exists(path):
            layout.check_format(self.fs.read_bytes(path))
        else:
            self.fs.replace_durably(path, layout.encode_small({"format": layout.FORMAT_VERSION}))

    def _take_clean_marker(self) -> bool:
        """Remove the marker of an orderly stop, durably, and say whether it stood there."""
        path = f"{self.root}/{layout.CLEAN_NAME}"
        if not self.fs.exists(path):
            return not self.on_disk
        try:
            layout.decode_small(self.fs.read_bytes(path))
            is_clean = True
        except layout.SmallFileError as error:
            self.report(f"{layout.CLEAN_NAME}: {error}; recovering as after a crash")
            is_clean = False
        self.fs.unlink(path)
        self.fs.sync_directory(self.root)
        return is_clean

    def prepare_journal(self) -> None:
        """Write the journal's files, which takes a while; until then segments are synced."""
        if self.options.journal_append_bytes == 0 or self.journal.is_ready:
            return
        try:
            self.journal.prepare()
        except OSError as error:
            self.report(f"journal: {error}; every append syncs its segment")

    def close(self) -> list[Checkpoint]:
        """Make everything durable; the checkpoints are to be stored before `mark_clean`.

        Raises StorageError when that failed; the next start then recovers.
        """
        self.is_closed = True
        checkpoints = self.checkpoint(clean=True)
        try:
            if self.failure is None:
                self.journal.void()
        except (OSError, SyncFailedError) as error:
            raise StorageError(str(error)) from error
        finally:
            self.journal.close()
            self.pool.close()
        return checkpoints

    def mark_clean(self) -> None:
        """Note that the next start need not recover. Raises StorageError."""
        if self.failure is not None:
            return
        try:
            replace_durably(
                self.fs, f"{self.root}/{layout.CLEAN_NAME}", layout.encode_small({"clean": True})
            )
        except (OSError, SyncFailedError) as error:
            raise StorageError(str(error)) from error

    def abandon(self) -> None:
        """Let go of the files without making anything durable."""
        self.is_closed = True
        self.journal.close()
        self.pool.close()

    # --- partitions ------------------------------------------------------------------------------

    def create_log(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> SegmentedLog:
        """Create an empty log, durably; one that is open is returned. Raises StorageError."""
        log = self.logs.get(key)
        if log is not None:
            return log
        self._check_writable()
        try:
            self._note_deletions()
        except (OSError, SyncFailedError) as error:
            self.fail(error)
            raise StorageError(str(error)) from error
        return self._create_log(key, topic, settings)

    def _create_log(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> SegmentedLog:
        path = self.directory.partition_path(key)
        try:
            if self.journal.is_ready and key in self._unnoted_deletions:
                raise StorageError(f"partition {key} is still being deleted; try again")
            if self.fs.is_directory(path):
                if self._holds_log(path):
                    return self.open_log(key, topic, settings)
            else:
                self.fs.mkdir(path)
            identity = layout.encode_partition(layout.PartitionIdentity(topic, key))
            self._write_small(f"{path}/{layout.PARTITION_NAME}", identity)
            state = layout.encode_log_state(layout.LogState())
            self._write_small(f"{path}/{layout.LOG_STATE_NAME}", state)
            self.fs.sync_directory(path)
            self.fs.sync_directory(f"{self.root}/{layout.PARTITIONS_DIRECTORY}")
        except OSError as error:
            raise _storage_error(error, f"cannot create partition {key} of {topic}") from error
        self.registry.remove(key)
        log = SegmentedLog(self.directory, key, topic, settings, self.registry.create(key))
        log.is_changed = True
        self.logs[key] = log
        return log

    def _holds_log(self, path: str) -> bool:
        """Whether a directory is more than the beginning of a creation that was interrupted."""
        names = self.fs.listdir(path)
        return layout.LOG_STATE_NAME in names or any(
            layout.parse_stem(name, layout.LOG_SUFFIX) is not None for name in names
        )

    def _write_small(self, path: str, content: bytes) -> None:
        """Write a small file of a directory that nobody knows of yet."""
        file = self.fs.open(path, create=True)
        try:
            file.truncate(0)
            file.pwrite((content,), 0)
            file.fdatasync()
        finally:
            file.close()

    def open_log(
        self,
        key: PartitionKey,
        topic: TopicName,
        settings: LogSettings,
        checkpoint: Checkpoint | None = None,
        *,
        checkpoint_damaged: bool = False,
    ) -> SegmentedLog:
        """Open and recover a log; a missing one is created and reported. Raises StorageError."""
        log = self.logs.get(key)
        if log is not None:
            return log
        path = self.directory.partition_path(key)
        try:
            if not self.fs.is_directory(path):
                log = self._create_log(key, topic, settings)
                if checkpoint is not None and checkpoint.next_offset > 0:
                    log = self._go_on_without_log(log, checkpoint)
                self.report(f"partition {key} of {topic} has no directory; it was created empty")
                return log
            log = recover_log(
                self.directory,
                self.registry,
                key,
                topic,
                settings,
                checkpoint,
                checkpoint_damaged=checkpoint_damaged,
                clean_stop=self.clean_stop,
                proven_end=self._proven.get(key, 0),
            )
        except (OSError, SyncFailedError) as error:
            self.registry.remove(key)
            raise StorageError(f"cannot open partition {key} of {topic}: {error}") from error
        self.logs[key] = log
        return log

    def _go_on_without_log(self, log: SegmentedLog, checkpoint: Checkpoint) -> SegmentedLog:
        """The directory of a log is gone: its offsets must not come back with other values."""
        self.registry.remove(log.key)
        del self.logs[log.key]
        recovered = recover_log(
            self.directory,
            self.registry,
            log.key,
            log.topic,
            log.settings,
            checkpoint,
            checkpoint_damaged=False,
            clean_stop=False,
            proven_end=0,
        )
        self.logs[log.key] = recovered
        return recovered

    def retire_log(self, key: PartitionKey) -> SegmentedLog | None:
        """Take a log out of use, so that no append reaches it any more."""
        log = self.logs.pop(key, None)
        if log is not None:
            log.is_deleted = True
            self.registry.remove(key)
        return log

    def remove_log(self, key: PartitionKey, log: SegmentedLog | None) -> str | None:
        """Make a partition's files disappear, durably; returns a directory to be removed.

        Raises StorageError.
        """
        path = self.directory.partition_path(key)
        if not self.fs.is_directory(path):
            return None
        try:
            if log is not None:
                for segment in log.segments:
                    segment.forget()
                    self._dirty.pop(segment, None)
            target = path + layout.DELETED_SUFFIX
            if self.fs.is_directory(target):
                self.fs.remove_tree(target)
            self.fs.rename(path, target)
            sync_directory(self.fs, f"{self.root}/{layout.PARTITIONS_DIRECTORY}")
            if self.journal.is_ready:
                self._unnoted_deletions.add(key)
                self._note_deletions()
        except OSError as error:
            raise _storage_error(error, f"cannot delete partition {key}") from error
        except SyncFailedError as error:
            self.fail(error)
            raise StorageError(str(error)) from error
        self.on_disk.discard(key)
        return target

    def _note_deletions(self) -> None:
        """Tell the journal which partitions are gone, or a log that is created anew under an old
        key could be given old bytes by a later recovery. Raises OSError, SyncFailedError."""
        journal = self.journal
        while self._unnoted_deletions and journal.is_ready:
            if not journal.has_room(1, 0) and not self._switch_journal():
                return
            key = self._unnoted_deletions.pop()
            try:
                journal.append_deletion(key)
            except OSError:
                self._unnoted_deletions.add(key)
                raise
            try:
                journal.sync()
            except OSError as error:
                raise SyncFailedError(f"journal: {error}") from error

    def remove_directory(self, path: str) -> None:
        """Remove what `remove_log` returned. What is left over is removed at the next start."""
        try:
            self.fs.remove_tree(path)
        except OSError as error:
            self.report(f"{path}: {error}")

    # --- appending -------------------------------------------------------------------------------

    def submit(self, log: SegmentedLog, batches: Sequence[RecordBatch]) -> Append:
        """Give batches their offsets and queue them. Raises StorageError when nothing is written
        any more."""
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

    def drop_before(self, log: SegmentedLog, offset: int) -> None:
        """Move a log's start up to `offset`, which is not above its high watermark, durably, and
        remove the segments below it. Raises StorageError."""
        self.save_log_start(log, offset)
        log.offsets.raise_log_start(offset)
        self.remove_below(log, offset)

    def save_log_start(self, log: SegmentedLog, offset: int) -> None:
        """Note a log start durably, before anybody sees it. Raises StorageError."""
        self._check_writable()
        try:
            log.save_log_start(offset)
        except OSError as error:
            raise _storage_error(error, f"cannot move the start of partition {log.key}") from error
        except SyncFailedError as error:
            self.fail(error)
            raise StorageError(str(error)) from error

    def remove_below(self, log: SegmentedLog, offset: int) -> None:
        """Remove the segments of a log that lie below its noted start. Raises StorageError."""
        try:
            for segment in log.remove_below(offset):
                self._dirty.pop(segment, None)
        except OSError as error:
            raise _storage_error(error, f"cannot remove segments of {log.key}") from error

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
        pending = self._pending
        limit_bytes = self.options.group_bytes
        while pending and size_bytes < limit_bytes:
            append = pending.popleft()
            size_bytes += append.size_bytes
            group.append(append)
        return group

    def write_group(self, group: list[Append]) -> None:
        """Make a group durable; what failed carries its error."""
        by_log = self._admit(group)
        written: dict[SegmentedLog, list[Redo]] = {}
        for log, appends in by_log.items():
            redos = self._write(log, appends)
            if redos is not None:
                written[log] = redos
        if not written:
            return
        try:
            if self.failure is None and not self._sync_through_journal(written):
                self._sync_segments(written)
        except SyncFailedError as error:
            self.fail(error)
        if self.failure is not None:
            for log in written:
                _fail(by_log[log], self.failure)
        # What `_sync_segments` removed from `written` before a failure is durable.
        for appends in by_log.values():
            if appends[0].error is None:
                appends[0].log.written_end = appends[-1].result.last_offset + 1
                self.appended_bytes += sum(append.size_bytes for append in appends)

    def _admit(self, group: list[Append]) -> dict[SegmentedLog, list[Append]]:
        """Sort a group by log and refuse what cannot be written."""
        refusal = self.failure or self._space_refusal(group)
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

    def _space_refusal(self, group: list[Append]) -> StorageError | None:
        if not group or self.options.min_free_bytes <= 0:
            return None
        try:
            free_bytes = self.fs.free_bytes(self.root)
        except OSError as error:
            return StorageError(str(error))
        needed_bytes = self.options.min_free_bytes + sum(append.size_bytes for append in group)
        self.is_out_of_space = free_bytes < needed_bytes
        if not self.is_out_of_space:
            return None
        return DiskFullError(f"{free_bytes} bytes are free where {needed_bytes} are needed")

    def _write(self, log: SegmentedLog, appends: list[Append]) -> list[Redo] | None:
        """Write one log's share into its segments; None, and its appends failed, if that failed."""
        if self.failure is not None:
            _fail(appends, self.failure)
            return None
        batches = (
            appends[0].batches
            if len(appends) == 1
            else [batch for append in appends for batch in append.batches]
        )
        log.begin_write()
        try:
            try:
                self._load_last(log)
                redos = log.write(batches)
            except OSError as error:
                log.undo()
                _fail(appends, _storage_error(error, f"cannot append to partition {log.key}"))
                log.refused_attempt = appends[0].attempt
                return None
        except (OSError, SyncFailedError) as error:
            self.fail(error)
            _fail(appends, self.failure)
            return None
        return redos

    def _load_last(self, log: SegmentedLog) -> None:
        """Make sure that the segment's side file can be continued. Raises OSError,
        SyncFailedError."""
        if log.segments and log.segments[-1].side is None:
            try:
                log.segments[-1].load()
            except SideFileDamagedError as error:
                rebuild_side(self.directory, log, error.segment)

    def _sync_through_journal(self, written: dict[SegmentedLog, list[Redo]]) -> bool:
        """Make a group of small appends durable with one sync; False when it is not the way.

        Raises SyncFailedError.
        """
        journal = self.journal
        redos = [redo for several in written.values() for redo in several]
        size_bytes = sum(redo.size_bytes for redo in redos)
        if not journal.is_ready or size_bytes > self.options.journal_append_bytes * len(redos):
            return False
        crowded = len(self._dirty) >= self.options.dirty_segments
        if crowded or not journal.has_room(len(redos), size_bytes):
            switched = self._switch_journal()
            if not switched and not crowded:
                return False
            if not journal.has_room(len(redos), size_bytes):
                return False
        try:
            journal.append(redos)
        except OSError as error:
            # The frame counts for nothing; should it be read nevertheless after a crash, it
            # repeats what the segments are about to make durable.
            self.report(f"journal: {error}; this group syncs its segments")
            return False
        try:
            journal.sync()
        except OSError as error:
            raise SyncFailedError(f"journal: {error}") from error
        for log in written:
            # A roll has synced the segments before the last.
            self._dirty[log.segments[-1]] = None
            self._write_side(log.segments[-1])
        return True

    def _sync_segments(self, written: dict[SegmentedLog, list[Redo]]) -> None:
        """Sync each segment of a group; a log leaves `written` once its bytes are durable."""
        for log in list(written):
            # A roll has synced the segments before the last.
            segment = log.segments[-1]
            segment.sync()
            self._dirty.pop(segment, None)
            self._write_side(segment, at_least_bytes=1)
            del written[log]

    def _write_side(self, segment: Segment, **limit: int) -> None:
        """Write side entries of durable batches. When that fails they stay in memory for now."""
        try:
            segment.write_side(**limit)
        except OSError as error:
            self.report(f"{segment.side_path}: {error}")

    def complete_group(self, group: list[Append]) -> list[SegmentedLog]:
        """Move the durable ends, give up the offsets of what failed; returns the logs that moved.

        In the order in which groups were taken.
        """
        moved: dict[SegmentedLog, None] = {}
        for append in group:
            log = append.log
            if append.error is None:
                if log.offsets.advance_durable(append.result.last_offset + 1):
                    moved[log] = None
            elif append.attempt == log.attempt and not log.is_deleted and self.failure is None:
                log.offsets.rewind(log.offsets.durable_end)
                log.attempt += 1
        return list(moved)

    def fail(self, error: Exception) -> None:
        """Write nothing any more, until the next start: a sync has failed."""
        if self.failure is None:
            self.failure = StorageError(f"the data directory has failed: {error}")
            self.report(str(self.failure))

    # --- journal and checkpoints -----------------------------------------------------------------

    def _switch_journal(self) -> bool:
        if not self.journal.has_free_file:
            return False
        retirement = Retirement(self.journal.switch(), list(self._dirty))
        self._dirty.clear()
        self.retire_soon(retirement)
        return True

    def retire(self, retirement: Retirement) -> None:
        """Make a full journal file usable again: what it vouches for is synced where it belongs."""
        if self.failure is not None:
            return
        try:
            for segment in retirement.segments:
                if not segment.is_removed:
                    segment.sync()
            self.journal.retire(retirement.journal_number)
        except (OSError, SyncFailedError) as error:
            self.fail(error)

    def checkpoint(self, *, clean: bool = False) -> list[Checkpoint]:
        """Make everything durable where it belongs and say how far that is, for the logs that have
        changed. Raises StorageError."""
        return self.finish_checkpoint(self.begin_checkpoint(clean=clean))

    def begin_checkpoint(self, *, clean: bool = False) -> CheckpointPlan:
        """Note how far the logs have come and write their side files. Raises StorageError."""
        self._check_writable()
        plan = CheckpointPlan(is_clean=clean)
        self.appended_bytes = 0
        try:
            for log in list(self.logs.values()):
                if not log.is_changed and (log.has_clean_checkpoint or not clean):
                    continue
                log.is_changed = False
                log.has_clean_checkpoint = clean
                plan.logs.append(log)
                if log.segments:
                    log.segments[-1].write_side(at_least_bytes=1)
                plan.segments += [(log, one) for one in (*log.unindexed, *log.segments[-1:])]
                plan.checkpoints.append(log.make_checkpoint(clean=clean))
        except (OSError, SyncFailedError) as error:
            self._note_failed_checkpoint(plan, error)
            raise StorageError(f"cannot make a checkpoint: {error}") from error
        return plan

    def finish_checkpoint(self, plan: CheckpointPlan) -> list[Checkpoint]:
        """Sync what a checkpoint is about. Raises StorageError."""
        try:
            for log, segment in plan.segments:
                if not segment.is_removed:
                    segment.sync()
                    segment.sync_side()
                    self._write_indexes(log, segment, is_clean=plan.is_clean)
        except (OSError, SyncFailedError) as error:
            self._note_failed_checkpoint(plan, error)
            raise StorageError(f"cannot make a checkpoint: {error}") from error
        return plan.checkpoints

    def _write_indexes(self, log: SegmentedLog, segment: Segment, *, is_clean: bool) -> None:
        """Bring Kafka's indexes up to date; they are a convenience, and may fail."""
        is_sealed = segment is not log.segments[-1]
        try:
            write_indexes(
                self.fs,
                segment,
                log.settings.index_interval_bytes,
                is_final=is_sealed or is_clean,
            )
        except (OSError, SideFileDamagedError) as error:
            self.report(f"{segment.stem_path}: the indexes could not be written: {error}")
        else:
            if is_sealed:
                log.unindexed.pop(segment, None)

    def _note_failed_checkpoint(self, plan: CheckpointPlan, error: Exception) -> None:
        for log in plan.logs:
            log.is_changed = True
        if isinstance(error, SyncFailedError):
            self.fail(error)

    # --- what is wrong -----------------------------------------------------------------------------

    def report(self, problem: str) -> None:
        """Keep a sentence for `health`; the same one only once, and a bounded number."""
        if problem not in self.problems and len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)
            self.announce(problem)

    @property
    def is_writable(self) -> bool:
        """Whether appends are taken now; after a full disk the disk is asked again."""
        if self.is_out_of_space:
            try:
                free_bytes = self.fs.free_bytes(self.root)
            except OSError:
                return False
            self.is_out_of_space = free_bytes < self.options.min_free_bytes
        return self.failure is None and not self.is_out_of_space

    @property
    def unclaimed(self) -> list[PartitionKey]:
        """Partitions on disk that nobody has opened: without a topic, they wait for adoption."""
        return sorted(self.on_disk - self.logs.keys())

    def _check_writable(self) -> None:
        if self.failure is not None:
            raise self.failure


def _storage_error(error: OSError, what: str) -> StorageError:
    if is_out_of_space(error):
        return DiskFullError(f"{what}: {error}")
    return StorageError(f"{what}: {error}")


def _keep_quiet(_problem: str) -> None:
    """Do without a log."""


def _fail(appends: Iterable[Append], error: StorageError | None) -> None:
    for append in appends:
        append.error = error
