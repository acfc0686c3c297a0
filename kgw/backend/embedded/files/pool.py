"""Open files, a bounded number of them, shared by the flusher and the readers.

A file in use is never closed under its user, and one with unsynced bytes stays open: a descriptor
opened after a failed write-back might not be told of the error (durability.md 4.3).

For the same reason there is one sync of a file at a time, and none counts after one that failed:
Linux tells an open file of an error once, so that of two syncs of it side by side one fails and the
other succeeds (docs/decisions/0069-one-sync-of-a-file-at-a-time.md).

The pool's lock is held for a few steps in memory alone, as the event loop takes it, too: files are
opened and closed outside of it. A file that somebody is about to open has its place already, so
that nobody opens it a second time, and that whoever removes it meanwhile finds it.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING

from kgw.backend.embedded.failures import SyncFailedError, is_out_of_descriptors
from kgw.backend.embedded.files.durability import sync_directory, sync_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.files.fs import File, FileSystem


class PooledFile:
    """A file, who uses it, and whether it must stay open."""

    __slots__ = ("dirty", "file", "forgotten", "is_open", "opening", "path", "syncing", "users")

    def __init__(self, path: str) -> None:
        self.path = path
        self.file: File
        """Set by whoever opens it."""
        self.is_open = False
        self.opening = Lock()
        """Held by whoever opens the file, until it is open or cannot be."""
        self.users = 0
        self.dirty = False
        self.forgotten = False
        self.syncing = Lock()
        """Held by whoever syncs the file, until it is noted what became of that."""


class FilePool:
    """Files by path; the least recently used clean one is closed when there are too many."""

    def __init__(self, fs: FileSystem, limit: int) -> None:
        self._fs = fs
        self._limit = limit
        self._files: dict[str, PooledFile] = {}
        self._lock = Lock()
        self._unclosed: list[PooledFile] = []
        """Forgotten files that the event loop was the last to use: a thread closes them."""
        self.loading = Lock()
        """Held by whoever is the first to say what a segment's side file holds."""
        self.sync_failure: SyncFailedError | None = None
        """What a sync that failed has said. What it was about may be on no disk, and no
        other sync of that file will tell, not even after it was closed and opened again."""

    def __len__(self) -> int:
        return len(self._files)

    def acquire(self, path: str, *, create: bool = False) -> PooledFile:
        """Return the file, open, until `release`. Raises OSError."""
        while True:
            idle: Sequence[PooledFile] = ()
            with self._lock:
                pooled = self._files.pop(path, None)
                is_first = pooled is None
                if pooled is None:
                    pooled = PooledFile(path)
                    pooled.opening.acquire()
                    if len(self._files) >= self._limit:
                        idle = self._take_idle(len(self._files) + 1 - self._limit)
                pooled.users += 1
                # Dictionaries keep their order of insertion: the last one in was used last.
                self._files[path] = pooled
            if is_first:
                self._open_first(pooled, idle, create=create)
            elif not pooled.is_open:
                with pooled.opening:
                    pass  # another opens it
            if pooled.is_open:
                return pooled
            # That one could not, and nobody else has it: perhaps there was no file yet.

    def acquire_open(self, path: str) -> PooledFile | None:
        """Return a file as `acquire`, until `leave`, if it is open; never waits."""
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
        """Open a file that has its place in the pool; who waits for it goes on then."""
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

    def sync_directory(self, path: str) -> None:
        """Sync the names in a directory. Raises OSError, SyncFailedError."""
        sync_directory(self._fs, path)

    def sync_directories(self, paths: Sequence[str]) -> list[OSError | SyncFailedError | None]:
        """Sync the names in directories; return what went wrong with each.

        OSError for want of a descriptor, when no sync was tried.
        """
        return [
            error if error is None or is_out_of_descriptors(error) else _failed(path, error)
            for path, error in zip(paths, self._fs.sync_all((), paths), strict=True)
        ]

    def release(self, pooled: PooledFile) -> None:
        """Give back what `acquire` returned. Raises OSError when a removed one cannot be closed."""
        with self._lock:
            pooled.users -= 1
            if not pooled.forgotten or pooled.users:
                return
        pooled.file.close()

    def leave(self, pooled: PooledFile) -> None:
        """Give back what `acquire_open` returned; never waits.

        To close a file that has no name any more may be to free its space, which takes a while.
        """
        with self._lock:
            pooled.users -= 1
            if pooled.forgotten and not pooled.users:
                self._unclosed.append(pooled)

    # --- syncing -------------------------------------------------------------------------------

    def sync(self, pooled: PooledFile) -> None:
        """Sync a file in use. Waits for others who do. Raises SyncFailedError."""
        with pooled.syncing:
            if self.sync_failure is not None:
                raise SyncFailedError(str(self.sync_failure))
            # First: what the flusher writes while this runs makes the file dirty again.
            pooled.dirty = False
            try:
                sync_file(pooled.file)
            except SyncFailedError as error:
                self.sync_failure = error
                raise

    def begin_sync(self, pooled: PooledFile) -> bool:
        """Let somebody else sync a file in use, until `end_sync` or `give_up_sync`.

        Never waits: False while the file is synced, or when no sync counts any more.
        """
        if not pooled.syncing.acquire(blocking=False):
            return False
        if self.sync_failure is not None:
            pooled.syncing.release()
            return False
        pooled.dirty = False
        return True

    def end_sync(self, pooled: PooledFile, failure: SyncFailedError | None) -> None:
        """Note what became of a sync that `begin_sync` has allowed."""
        if failure is not None:
            self.sync_failure = failure
        pooled.syncing.release()

    def give_up_sync(self, pooled: PooledFile) -> None:
        """Note that a sync that `begin_sync` has allowed was not tried."""
        pooled.dirty = True
        pooled.syncing.release()

    # --- closing -------------------------------------------------------------------------------

    def forget(self, path: str) -> None:
        """Close a file that was removed or renamed, as soon as nobody uses it."""
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
        """Close every file that is not in use."""
        for path in list(self._files):
            self.forget(path)
        self._close_left()

    def _take_idle(self, most: int) -> list[PooledFile]:
        """Take so many of the files that nobody needs, the least recently used first."""
        idle = list(
            islice((one for one in self._files.values() if one.users == 0 and not one.dirty), most)
        )
        for pooled in idle:
            del self._files[pooled.path]
        return idle

    def _close_left(self) -> None:
        """Close what the event loop has left to a thread."""
        if self._unclosed:
            with self._lock:
                left, self._unclosed = self._unclosed, []
            _close_all(left)


def _close_all(files: Sequence[PooledFile]) -> None:
    """Close files that hold nothing unsynced, or nothing that is needed."""
    for pooled in files:
        with suppress(OSError):
            pooled.file.close()


def _failed(path: str, error: OSError) -> SyncFailedError:
    return SyncFailedError(f"{path}: {error}")
