"""Raises log starts, and removes files and directories that are not needed any more.

While a backup makes links to the files of all logs, removals are delayed. Plain code without
threads, like `store`.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from kgw.backend.embedded.failures import SyncFailedError
from kgw.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.backend.embedded.log.data_directory import DataDirectory
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.write.write_path import WritePath


class LogTrimmer:
    """Raises the starts of logs, and removes segments, directories and renamed files."""

    def __init__(self, directory: DataDirectory, writes: WritePath) -> None:
        self._directory = directory
        self._writes = writes
        self._is_held = False
        self._starts: dict[SegmentedLog, int] = {}
        """For each log with delayed removals, the offset below which segments will be removed. Used
        by the flusher only."""
        self._directories: list[str] = []
        """Directories whose removal is delayed."""
        self._lock = Lock()
        """Guards `_directories` and `_is_held`: directories may be removed in any thread."""

    def make_durable_below(self, log: SegmentedLog, offset: int) -> None:
        """Make the records below `offset` durable, because a log start at `offset` implies that.

        Raises StorageError.
        """
        self._directory.check_writable()
        with self._directory.attempt(f"move the start of partition {log.key}"):
            if not log.is_deleted and offset > log.durable_end:
                log.segments[-1].sync()
                self._writes.relaxed.settle(log)

    def save_log_start(self, log: SegmentedLog, offset: int) -> None:
        """Store a new log start durably, before anybody sees it. May be called in any thread.

        All records below it must be durable. Raises StorageError.
        """
        self._directory.check_writable()
        with self._directory.attempt(f"move the start of partition {log.key}"):
            try:
                log.save_log_start(offset)
            except SyncFailedError as error:
                if log.is_deleted:
                    # The log is being deleted, so its files may be missing. This is no failure of
                    # the disk.
                    raise StorageError(str(error)) from error
                raise

    def remove_below(self, log: SegmentedLog, offset: int) -> list[str]:
        """Remove the segments of a log that lie below its stored start.

        Returns files that the caller must remove after the log's `delete_delay_ms`. While removals
        are held, does nothing; `release_removals` removes the segments. Raises StorageError.
        """
        if self._is_held:
            self._starts[log] = max(offset, self._starts.get(log, 0))
            return []
        paths: list[str] = []
        with self._directory.attempt(f"remove segments of {log.key}"):
            for segment in log.remove_below(offset):
                self._writes.journaled.forget(segment)
                if log.settings.delete_delay_ms > 0:
                    paths += segment.set_aside(self._directory.fs)
                else:
                    segment.unlink(self._directory.fs)
        return paths

    def remove_files(self, paths: Iterable[str]) -> None:
        """Remove the files that `remove_below` returned.

        The next start removes any remaining files.
        """
        for path in paths:
            try:
                self._directory.fs.unlink(path)
            except FileNotFoundError:
                continue  # perhaps removed with the whole partition
            except OSError as error:
                self._directory.report(f"{path}: {error}")

    def remove_directory(self, path: str) -> None:
        """Remove the directory that `remove_log` returned.

        The next start removes any remaining files.
        """
        with self._lock:
            if self._is_held:
                self._directories.append(path)
                return
        try:
            self._directory.fs.remove_tree(path)
        except FileNotFoundError:
            pass  # another attempt at the same deletion has removed the directory
        except OSError as error:
            self._directory.report(f"{path}: {error}")

    # --- backups ----------------------------------------------------------------------------------

    def hold_removals(self) -> None:
        """Remove no segment and no directory until `release_removals`. Runs in the flusher.

        The caller makes sure that no segment is replaced in this time.
        """
        with self._lock:
            self._is_held = True

    def release_removals(self) -> tuple[list[tuple[SegmentedLog, list[str]]], list[str]]:
        """Make the delayed removals. Runs in the flusher.

        Returns logs with files that must be removed after their `delete_delay_ms`, and directories
        for `remove_directory`. Removing them here would delay appends. Errors are reported; the
        next start removes the remaining files.
        """
        with self._lock:
            self._is_held = False
            directories, self._directories = self._directories, []
        starts, self._starts = self._starts, {}
        aside: list[tuple[SegmentedLog, list[str]]] = []
        for log, offset in starts.items():
            if log.is_deleted:
                continue
            try:
                aside.append((log, self.remove_below(log, offset)))
            except StorageError as error:
                self._directory.report(str(error))
        return aside, directories
