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
from typing import TYPE_CHECKING, Final, Self

from kgw.backend.embedded.failures import SyncFailedError
from kgw.backend.embedded.files.durability import sync_file
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.files.fs import File, FileSystem

LEAST_DESCRIPTORS: Final = 256
"""Half of them for files with unsynced bytes, which stay open."""


def check_descriptors() -> None:
    """Raise DataDirectoryError where this process may not open enough files."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < LEAST_DESCRIPTORS:
        raise DataDirectoryError(
            f"this process may open {limit} files, and needs {LEAST_DESCRIPTORS}; see ulimit -n"
        )


class PooledFile:
    """A file, who uses it, and whether it must stay open. `with` gives it back at the end."""

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.release(self)


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
                    pooled = PooledFile(self, path)
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

    def release(self, pooled: PooledFile) -> None:
        """Give back what `acquire` returned."""
        with self._lock:
            pooled.users -= 1
            if not pooled.forgotten or pooled.users:
                return
        _close_all((pooled,))

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

    def sync_together(
        self, files: Sequence[PooledFile]
    ) -> dict[PooledFile, SyncFailedError | None]:
        """Sync files in use side by side; return what went wrong with each.

        Nobody is waited for while files are kept from others, so that two who do this cannot wait
        for each other: a file that somebody else is syncing is left out. All are when no sync
        counts any more.
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
