"""Opens, recovers, creates, deletes and checkpoints the logs of a data directory.

Plain code on the file-system interface, without threads, so that a simulation can stop it after any
operation. `backend` runs all changes of segments in the flusher's thread, and the syncs of a
checkpoint in another thread. Opening and reading may run in any thread.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import SyncFailedError, storage_error
from kgw.backend.embedded.files.durability import replace_durably
from kgw.backend.embedded.log.data_directory import DataDirectory
from kgw.backend.embedded.log.index_files import write_indexes
from kgw.backend.embedded.log.new_directories import NewDirectories
from kgw.backend.embedded.log.removals import Removals
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.log.segmented_log import SegmentedLog
from kgw.backend.embedded.log.swap import remove_directory, swap_segment
from kgw.backend.embedded.recover.journal_replay import replay_journal
from kgw.backend.embedded.recover.recovery import LogRecovery
from kgw.backend.embedded.trimming import LogTrimmer
from kgw.backend.embedded.write.segment_syncs import sync_all_files
from kgw.backend.embedded.write.write_path import WritePath
from kgw.errors import DataDirectoryError, StorageError
from kgw.offsets.manager import PartitionOffsetManager
from kgw.offsets.recovery import AnomalyKind
from kgw.problems import DAMAGE
from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.base import LogSettings
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.swap import CompactedSegment
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.offsets.recovery import Checkpoint
    from kgw.types import PartitionKey, TopicName


_STATE_PIECE_BYTES: Final = 4 << 20


class CheckpointPlan:
    """The checkpoints to store, and the segments to sync before they are stored."""

    def __init__(self, *, is_clean: bool) -> None:
        self.is_clean = is_clean
        self.checkpoints: list[Checkpoint] = []
        self.segments: list[tuple[SegmentedLog, Segment]] = []
        self.logs: list[SegmentedLog] = []

    def give_up(self) -> None:
        """Let the next checkpoint include these logs, because this checkpoint failed."""
        for log in self.logs:
            log.is_changed = True


class Store:
    """The logs of a data directory; the state store is separate."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        options: EmbeddedOptions,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self.fs = fs
        self.directory = DataDirectory(fs, root, options, wall_ms)
        self.writes = WritePath(self.directory)
        self.logs: dict[PartitionKey, SegmentedLog] = {}
        self.anomaly_counts = Counter(dict.fromkeys(AnomalyKind, 0))
        """Number of anomalies in recovery, by kind."""
        self.clean_stop = False
        """Whether the last stop was orderly, according to the directory's clean-stop marker."""
        self.on_disk: set[PartitionKey] = set()
        """Partitions whose directories existed at the start."""
        self.unopenable: dict[PartitionKey, str] = {}
        """For each partition that could not be opened, the reason of the last attempt."""
        self.removals = Removals(fs, root, self.writes.journal, self.writes.journaled.switch)
        self.trimmer = LogTrimmer(self.directory, self.writes)
        self._proven: dict[PartitionKey, int] = {}
        self.rest: Callable[[], None] | None = None
        """Called by a checkpoint during long work. The backend sleeps in this function, so that the
        event loop gets the interpreter."""

    # --- opening and closing ----------------------------------------------------------------------

    def open(self) -> None:
        """Prepare the directory; partitions are opened one by one afterwards.

        Raises DataDirectoryError if the directory cannot be used.
        """
        try:
            self._open()
        except (OSError, SyncFailedError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or error
            raise DataDirectoryError(f"{self.directory.root}: {reason}") from error

    def _open(self) -> None:
        fs, root = self.fs, self.directory.root
        for name in (
            layout.PARTITIONS_DIRECTORY,
            layout.JOURNAL_DIRECTORY,
            layout.QUARANTINE_DIRECTORY,
        ):
            if not fs.is_directory(f"{root}/{name}"):
                fs.mkdir(f"{root}/{name}")
        self._check_format()
        self.directory.quarantine.look()
        partitions = f"{root}/{layout.PARTITIONS_DIRECTORY}"
        names = fs.listdir(partitions)
        for name in names:
            if name.endswith(layout.DELETED_SUFFIX):
                fs.remove_tree(f"{partitions}/{name}")
        self.on_disk.update(layout.partition_keys(names))
        self.clean_stop = self._take_clean_marker()
        # Sync even if this start has changed nothing, because an earlier start may have ended
        # between a change and its sync. Otherwise a power loss could remove a directory with its
        # records. Or it could bring the clean-stop marker back, and a start that finds the marker
        # does not read the journal.
        for path in (root, partitions):
            fs.sync_directory(path)
        if not self.clean_stop:
            findings = self.writes.journal.recover()
            for problem in findings.problems:
                self.directory.report(problem, DAMAGE)
            self._proven = replay_journal(self.directory, findings.redos)
            self.writes.journal.void()

    def _check_format(self) -> None:
        path = f"{self.directory.root}/{layout.FORMAT_NAME}"
        if self.fs.exists(path):
            layout.check_format(self.fs.read_bytes(path))
        else:
            self.fs.replace_durably(path, layout.encode_small({"format": layout.FORMAT_VERSION}))

    def _take_clean_marker(self) -> bool:
        """Remove the marker of an orderly stop and return whether the directory was left in order.

        The caller makes the removal durable, even if there was no marker.
        """
        copied_path = f"{self.directory.root}/{layout.COPIED_NAME}"
        if self.fs.exists(copied_path):
            # A server uses the directory from now on, so it has more than copied records.
            self.fs.unlink(copied_path)
        path = f"{self.directory.root}/{layout.CLEAN_NAME}"
        if not self.fs.exists(path):
            return not self.on_disk
        problem: str | None = None
        try:
            left = layout.decode_clean(self.fs.read_bytes(path))
            if left is not None and left != look_at_state(self.fs, self.directory.root):
                # Pages of the database have no checksum. If a page was damaged while the directory
                # was not in use, rows such as checkpoints and committed offsets may be missing.
                problem = f"{layout.STATE_NAME} is not as the last stop left it"
        except layout.SmallFileError as error:
            problem = f"{layout.CLEAN_NAME}: {error}"
        is_clean = problem is None
        if problem is not None:
            self.directory.report(f"{problem}; recovering as after a crash")
        self.fs.unlink(path)
        return is_clean

    def prepare_journal(self) -> None:
        """Write the journal's files, which takes long; until then appends sync their segments."""
        journal, directory = self.writes.journal, self.directory
        if directory.options.journal_append_bytes == 0 or journal.is_ready or directory.failure:
            return
        try:
            journal.prepare()
        except OSError as error:
            directory.report(f"journal: {error}; every append syncs its segment")

    def close(self) -> list[Checkpoint]:
        """Make all logs durable; the caller must store the checkpoints before `mark_clean`.

        Raises StorageError if that fails; the next start then recovers.
        """
        self.writes.is_closed = True
        checkpoints = self.checkpoint(clean=True)
        try:
            if self.directory.failure is None:
                with self.directory.attempt("empty the journal"):
                    self.writes.journal.void()
        finally:
            self.writes.journal.close()
            self.directory.pool.close()
        return checkpoints

    def mark_clean(self) -> None:
        """Write the clean-stop marker, with the size and checksum of the state database.

        The caller has closed the state store. Raises StorageError.
        """
        if self.directory.failure is not None:
            return
        if self.fs.exists(f"{self.directory.root}/{layout.STATE_NAME}-wal"):
            raise StorageError(f"{layout.STATE_NAME} could not take over its write-ahead log")
        with self.directory.attempt("note that the stop was in order"):
            content = layout.encode_clean(look_at_state(self.fs, self.directory.root))
            replace_durably(self.fs, f"{self.directory.root}/{layout.CLEAN_NAME}", content)

    def abandon(self) -> None:
        """Close the files without making anything durable."""
        self.writes.is_closed = True
        self.writes.journal.close()
        self.directory.pool.close()

    # --- partitions -------------------------------------------------------------------------------

    def create_log(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> SegmentedLog:
        """Create an empty log, durably, or return the open one. Raises StorageError."""
        log = self.logs.get(key)
        if log is not None:
            return log
        self.begin_creation([(key, topic)])
        return self._create_log(key, topic, settings)

    def begin_creation(self, places: Sequence[tuple[PartitionKey, TopicName]]) -> None:
        """Check that logs may be created now. Raises StorageError."""
        self.directory.check_writable()
        with self.directory.attempt("create partitions"):
            self.removals.finish()
        for key, topic in places:
            if self.removals.is_unfinished(key):
                raise StorageError(f"partition {key} of {topic} is still being deleted; try again")

    def _create_log(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings
    ) -> SegmentedLog:
        try:
            made = self.make_directories([(key, topic)])
            if made.failures:
                raise made.failures[key]
        except OSError as error:
            raise storage_error(error, f"cannot create partition {key} of {topic}") from error
        return self.take_in(key, topic, settings, is_new=key in made.new)

    def make_directories(self, places: Sequence[tuple[PartitionKey, TopicName]]) -> NewDirectories:
        """Make the directories of empty logs, durably, for keys that have no directory with a log.

        May be called in any thread. Raises OSError if none of the directories can be used.
        """
        made = NewDirectories(self.fs, self.directory.partition_path)
        made.make(places)
        self.fs.sync_directory(f"{self.directory.root}/{layout.PARTITIONS_DIRECTORY}")
        return made

    def take_in(
        self, key: PartitionKey, topic: TopicName, settings: LogSettings, *, is_new: bool
    ) -> SegmentedLog:
        """Use a directory that `make_directories` made or found. Raises StorageError."""
        if not is_new:
            return self.open_log(key, topic, settings)
        log = SegmentedLog(self.directory, key, topic, settings, PartitionOffsetManager())
        log.is_changed = True
        self.logs[key] = log
        return log

    def open_log(
        self,
        key: PartitionKey,
        topic: TopicName,
        settings: LogSettings,
        checkpoint: Checkpoint | None = None,
        *,
        checkpoint_damaged: bool = False,
    ) -> SegmentedLog:
        """Open and recover a log; create and report a missing one. Raises StorageError."""
        log = self.logs.get(key)
        if log is not None:
            return log
        recover = partial(
            LogRecovery,
            self.directory,
            self.anomaly_counts,
            key,
            topic,
            settings,
            checkpoint,
            checkpoint_damaged=checkpoint_damaged,
            proven_end=self._proven.get(key, 0),
        )
        try:
            if not self.fs.is_directory(self.directory.partition_path(key)):
                log = self._create_log(key, topic, settings)
                problem = f"partition {key} of {topic} has no directory; it was created empty"
                if checkpoint is None or checkpoint.next_offset == 0:
                    self.anomaly_counts[AnomalyKind.LOG_MISSING] += 1
                else:
                    # The lost log's offsets must not be assigned again. If the directory vanished
                    # after the replay, the journal has proved some of them.
                    del self.logs[key]
                    log = recover(clean_stop=False).run()
                self.directory.report(problem, DAMAGE, partial(_is_deleted, log))
            else:
                log = recover(clean_stop=self.clean_stop).run()
        except (OSError, SyncFailedError) as error:
            raise StorageError(f"cannot open partition {key} of {topic}: {error}") from error
        self.logs[key] = log
        return log

    def retire_log(self, key: PartitionKey) -> SegmentedLog | None:
        """Take a log out of use, so that no more appends are accepted."""
        log = self.logs.pop(key, None)
        if log is not None:
            log.is_deleted = True
        return log

    def remove_log(self, key: PartitionKey, log: SegmentedLog | None) -> str | None:
        """Durably delete a partition; return a renamed directory that the caller must remove.

        After an error, another call completes the deletion. Raises StorageError.
        """
        path = self.directory.partition_path(key)
        target = path + layout.DELETED_SUFFIX
        with self.directory.attempt(f"delete partition {key}"):
            if log is not None:
                for segment in log.segments:
                    segment.forget()
                    self.writes.journaled.forget(segment)
                self.writes.relaxed.settle(log)
            if self.fs.is_directory(path):
                self.removals.take_away(key, path, target)
                self.on_disk.discard(key)
            self.removals.finish()
            return target if self.fs.is_directory(target) else None

    @property
    def unclaimed(self) -> list[PartitionKey]:
        """Partitions on disk that are not open, because they have no topic. They may be adopted."""
        return sorted(self.on_disk - self.logs.keys())

    # --- segments ---------------------------------------------------------------------------------

    def roll(self, log: SegmentedLog) -> None:
        """Begin a new segment, unless the last one is empty. Raises StorageError."""
        self.directory.check_writable()
        if log.is_deleted or not log.segments or log.segments[-1].size_bytes == 0:
            return
        with self.directory.attempt(f"roll partition {log.key}"):
            log.begin_write()
            try:
                self.writes.load_last(log)
                log.is_changed = True
                log.roll(log.written_end)
                self.writes.relaxed.settle(log)
            except OSError:
                self.writes.undo(log)
                raise

    def swap_segment(self, log: SegmentedLog, compacted: CompactedSegment) -> list[str]:
        """Replace segments by a compacted segment with `swap.swap_segment`. Raises StorageError."""
        return swap_segment(self.directory, log, compacted, self.writes.journaled.forget)

    def finish_compaction(self, log: SegmentedLog, compacted_end: int) -> None:
        """Store how far a log has been compacted, and remove temporary files of the run.

        Raises StorageError.
        """
        self.directory.check_writable()
        if log.is_deleted:
            return
        log.compacted_end = max(log.compacted_end, compacted_end)
        with self.directory.attempt(f"note what was compacted of {log.key}"):
            remove_directory(self.fs, log.path)
            log.save_state()

    def swap_recompressed(
        self, log: SegmentedLog, segment: CompactedSegment, end_offset: int, bytes_before: int
    ) -> list[str]:
        """Replace a segment by the recompressed one with `swap_segment`. Raises StorageError.

        `end_offset` and `bytes_before` are those of the old segment.
        """
        # Store this before the replacement, so that it is known after any stop. Below this offset,
        # consumers without zstd get converted batches.
        if log.recompressed.begun_end < end_offset:
            log.recompressed = log.recompressed._replace(begun_end=end_offset)
            self._save_recompressed(log)
        paths = self.swap_segment(log, segment)
        if paths:
            log.recompressed = log.recompressed.add(end_offset, bytes_before, segment.size_bytes)
            self._save_recompressed(log)
        return paths

    def finish_recompression(self, log: SegmentedLog, recompressed_end: int) -> None:
        """Store how far a log has been recompressed. Raises StorageError."""
        self.directory.check_writable()
        log.recompressed = log.recompressed.add(recompressed_end)
        self._save_recompressed(log)

    def _save_recompressed(self, log: SegmentedLog) -> None:
        if not log.is_deleted:
            with self.directory.attempt(f"note what was recompressed of {log.key}"):
                log.save_state()

    # --- checkpoints ------------------------------------------------------------------------------

    def checkpoint(self, *, clean: bool = False) -> list[Checkpoint]:
        """Make everything durable and return a checkpoint for each changed log.

        Raises StorageError.
        """
        return self.finish_checkpoint(self.begin_checkpoint(clean=clean))

    def begin_checkpoint(self, *, clean: bool = False) -> CheckpointPlan:
        """Collect the checkpoints of changed logs and write side files. Raises StorageError."""
        self.directory.check_writable()
        plan = CheckpointPlan(is_clean=clean)
        self.writes.appended_bytes = 0
        try:
            with self.directory.attempt("make a checkpoint"):
                for log in list(self.logs.values()):
                    if not log.is_changed and (log.has_clean_checkpoint or not clean):
                        continue
                    plan.logs.append(log)
                    if clean and log.durable is not None:
                        log.segments[-1].sync()
                        self.writes.relaxed.settle(log)
                    durable = log.durable
                    log.is_changed = durable is not None
                    log.has_clean_checkpoint = clean
                    if log.segments:
                        log.segments[-1].write_side(
                            at_least_bytes=1,
                            durable_count=None if durable is None else durable.entry_count,
                        )
                    plan.segments += [(log, one) for one in (*log.unindexed, *log.segments[-1:])]
                    plan.checkpoints.append(log.make_checkpoint(clean=clean))
        except StorageError:
            plan.give_up()
            raise
        return plan

    def finish_checkpoint(self, plan: CheckpointPlan) -> list[Checkpoint]:
        """Sync the segments of a checkpoint.

        If this raises StorageError, the plan must be given up.
        """
        with self.directory.attempt("make a checkpoint"):
            sync_all_files([segment for _, segment in plan.segments])
            for log, segment in plan.segments:
                if not segment.is_removed:
                    self._write_indexes(log, segment, is_clean=plan.is_clean)
        return plan.checkpoints

    def _write_indexes(self, log: SegmentedLog, segment: Segment, *, is_clean: bool) -> None:
        """Update Kafka's indexes. Errors are only reported: kgw itself does not read the indexes.

        An active segment that has grown only a little is skipped. Otherwise two files would be
        opened and written for each of many segments.
        """
        is_sealed = segment is not log.segments[-1]
        builder = segment.index_builder
        grown_bytes = segment.size_bytes - (0 if builder is None else builder.end_position)
        if not (is_sealed or is_clean) and grown_bytes < self.directory.options.indexed_bytes:
            return
        try:
            write_indexes(
                self.fs,
                segment,
                log.settings.index_interval_bytes,
                is_final=is_sealed or is_clean,
                rest=None if is_clean else self.rest,
            )
        except (OSError, SideFileDamagedError) as error:
            if segment.is_removed:
                return
            self.directory.report(f"{segment.stem_path}: the indexes could not be written: {error}")
        else:
            if is_sealed:
                log.unindexed.pop(segment, None)


def _is_deleted(log: SegmentedLog) -> bool:
    return log.is_deleted


def look_at_state(fs: FileSystem, root: str) -> layout.LeftState | None:
    """Return size and checksum of the directory's state database; None if there is none."""
    path = f"{root}/{layout.STATE_NAME}"
    if not fs.exists(path):
        return None
    crc = position = 0
    with closing(fs.open(path)) as file:
        while piece := file.pread(_STATE_PIECE_BYTES, position):
            crc = crc32c(piece, crc)
            position += len(piece)
    return layout.LeftState(position, crc)


def is_as_left(fs: FileSystem, root: str) -> bool:
    """Return whether a directory and its database are as an orderly stop left them."""
    path = f"{root}/{layout.CLEAN_NAME}"
    if not fs.exists(path):
        return False
    try:
        left = layout.decode_clean(fs.read_bytes(path))
    except layout.SmallFileError:
        return False
    return left is None or left == look_at_state(fs, root)
