"""A bounded number of open files, shared by the flusher and the readers.

A file in use is never closed. A file with unsynced bytes stays open, too: after a failed
write-back, a new descriptor of the file might not get the error (durability.md 4.3).

Only one sync of a file runs at a time, and after a failed sync no other sync counts. Linux reports
an error to an open file only once, so one of two concurrent syncs would fail and the other succeed
(docs/decisions/0069-one-sync-of-a-file-at-a-time.md).

Files are opened and closed without the pool's lock, because the event loop takes it, too. A file is
added to the pool before it is opened, so that no other thread opens it a second time, and a thread
that removes the file finds it.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Final, Self

from kgw.backend.embedded.failures import SyncFailedError
from kgw.backend.embedded.files.durability import sync_file
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.files.fs import File, FileSystem

LEAST_DESCRIPTORS: Final = 256
"""The fewest descriptors that a process needs. Half of them are for files with unsynced bytes,
which stay open."""


def check_descriptors() -> None:
    """Raise DataDirectoryError if this process may not open enough files."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < LEAST_DESCRIPTORS:
        raise DataDirectoryError(
            f"this process may open {limit} files, and needs {LEAST_DESCRIPTORS}; see ulimit -n"
        )


class PooledFile:
    """An open file, its number of users, and whether it must stay open. `with` releases it."""

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self.path = path
        self.file: File
        """Set by the thread that opens it."""
        self.is_open = False
        self.opening = Lock()
        """Held by the thread that opens the file, until it is open or opening has failed."""
        self.users = 0
        self.dirty = False
        self.forgotten = False
        self.syncing = Lock()
        """Held by the thread that syncs the file, until the result is recorded."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.release(self)


class FilePool:
    """Open files by path. If there are too many, the least recently used clean file is closed."""

    def __init__(self, fs: FileSystem, limit: int) -> None:
        self._fs = fs
        self._limit = limit
        self._files: dict[str, PooledFile] = {}
        self._lock = Lock()
        self._unclosed: list[PooledFile] = []
        """Removed files whose last user was the event loop. A thread closes them later."""
        self.loading = Lock()
        """Held by the thread that reads a segment's side file for the first time."""
        self.sync_failure: SyncFailedError | None = None
        """The error of the first failed sync. Bytes of that file may not be on the disk, and later
        syncs would not report this, even after the file was closed and opened again."""

    def __len__(self) -> int:
        return len(self._files)

    def acquire(self, path: str, *, create: bool = False) -> PooledFile:
        """Return the open file, which stays open until `release`. Raises OSError."""
        while True:
            idle: Sequence[PooledFile] = ()
            with self._lock:
                pooled = self._files.pop(path, None)
                is_first = pooled is None
                if pooled is None:
                    pooled = PooledFile(self, path)
                    pooled.opening.acquire()
                    if len(self._files) >= self._limit:
                        idle = self._take_idle(len(self._files) + 1 - self._limit)
                pooled.users += 1
                # Dictionaries keep their order of insertion, so the last item is the most recently
                # used.
                self._files[path] = pooled
            if is_first:
                self._open_first(pooled, idle, create=create)
            elif not pooled.is_open:
                with pooled.opening:
                    pass  # another thread opens it
            if pooled.is_open:
                return pooled
            # The other thread failed to open the file, perhaps because it did not exist yet. Try
            # again.

    def acquire_open(self, path: str) -> PooledFile | None:
        """Return a file as `acquire` does, until `leave`, but only if it is open; never waits."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            pooled = self._files.get(path)
            if pooled is None or not pooled.is_open:
                return None
            del self._files[path]
            pooled.users += 1
            self._files[path] = pooled
            return pooled
        finally:
            self._lock.release()

    def _open_first(self, pooled: PooledFile, idle: Sequence[PooledFile], *, create: bool) -> None:
        """Open a file that was added to the pool; wake the threads that wait for it."""
        try:
            _close_all(idle)
            self._close_left()
            pooled.file = self._fs.open(pooled.path, create=create)
            pooled.is_open = True
        except BaseException:
            with self._lock:
                if self._files.get(pooled.path) is pooled:
                    del self._files[pooled.path]
            raise
        finally:
            pooled.opening.release()

    def release(self, pooled: PooledFile) -> None:
        """Release a file that `acquire` returned."""
        with self._lock:
            pooled.users -= 1
            if not pooled.forgotten or pooled.users:
                return
        _close_all((pooled,))

    def leave(self, pooled: PooledFile) -> None:
        """Release a file that `acquire_open` returned; never waits.

        Closing a removed file may free its disk space, which takes long. So a thread closes it
        later.
        """
        with self._lock:
            pooled.users -= 1
            if pooled.forgotten and not pooled.users:
                self._unclosed.append(pooled)

    # --- syncing -------------------------------------------------------------------------------

    def sync(self, pooled: PooledFile) -> None:
        """Wait for a running sync of the file, then sync it. Raises SyncFailedError."""
        with pooled.syncing:
            if self.sync_failure is not None:
                raise SyncFailedError(str(self.sync_failure))
            # Reset before the sync, because the flusher may write more bytes during the sync.
            pooled.dirty = False
            try:
                sync_file(pooled.file)
            except SyncFailedError as error:
                self.sync_failure = error
                raise

    def sync_together(
        self, files: Sequence[PooledFile]
    ) -> dict[PooledFile, SyncFailedError | None]:
        """Sync several files in use at the same time; return the error of each, or None.

        A file that another thread is syncing is left out, because waiting for it while holding
        other files could deadlock. After a failed sync no further sync counts, so the result is
        empty.
        """
        begun = [pooled for pooled in files if pooled.syncing.acquire(blocking=False)]
        try:
            if self.sync_failure is not None:
                return {}
            for pooled in begun:
                pooled.dirty = False
            try:
                errors = self._fs.sync_all([pooled.file for pooled in begun], ())
            except BaseException:
                for pooled in begun:
                    pooled.dirty = True
                raise
            outcomes: dict[PooledFile, SyncFailedError | None] = {}
            for pooled, error in zip(begun, errors, strict=True):
                failure = None if error is None else SyncFailedError(f"{pooled.path}: {error}")
                self.sync_failure = failure or self.sync_failure
                outcomes[pooled] = failure
            return outcomes
        finally:
            for pooled in begun:
                pooled.syncing.release()

    # --- closing -------------------------------------------------------------------------------

    def forget(self, path: str) -> None:
        """Close a removed or renamed file as soon as no thread uses it."""
        self._close_left()
        with self._lock:
            pooled = self._files.pop(path, None)
            if pooled is None:
                return
            pooled.forgotten = True
            if pooled.users:
                return
        _close_all((pooled,))

    def close(self) -> None:
        """Close all files that are not in use."""
        for path in list(self._files):
            self.forget(path)
        self._close_left()

    def _take_idle(self, most: int) -> list[PooledFile]:
        """Take up to `most` unused clean files out of the pool, the least recently used first."""
        idle = list(
            islice((one for one in self._files.values() if one.users == 0 and not one.dirty), most)
        )
        for pooled in idle:
            del self._files[pooled.path]
        return idle

    def _close_left(self) -> None:
        """Close the files in `_unclosed`."""
        if self._unclosed:
            with self._lock:
                left, self._unclosed = self._unclosed, []
            _close_all(left)


def _close_all(files: Sequence[PooledFile]) -> None:
    """Close files without unsynced bytes, or whose bytes are not needed any more."""
    for pooled in files:
        with suppress(OSError):
            pooled.file.close()
