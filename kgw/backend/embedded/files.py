"""Open files, a bounded number of them, shared by the flusher and the readers.

A file in use is never closed under its user, and one with unsynced bytes stays open: a descriptor
opened after a failed write-back might not be told of the error (durability.md 4.3).
"""

from __future__ import annotations

from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING

from kgw.backend.embedded.failures import is_out_of_descriptors, sync_directory

if TYPE_CHECKING:
    from kgw.backend.embedded.fs import File, FileSystem


class PooledFile:
    """A file, who uses it, and whether it must stay open."""

    __slots__ = ("dirty", "file", "forgotten", "path", "users")

    def __init__(self, path: str, file: File) -> None:
        self.path = path
        self.file = file
        self.users = 0
        self.dirty = False
        self.forgotten = False


class FilePool:
    """Files by path; the least recently used clean one is closed when there are too many."""

    def __init__(self, fs: FileSystem, limit: int) -> None:
        self._fs = fs
        self._limit = limit
        self._files: dict[str, PooledFile] = {}
        self._lock = Lock()
        self.loading = Lock()
        """Held by whoever is the first to say what a segment's side file holds."""

    def __len__(self) -> int:
        return len(self._files)

    def has(self, path: str) -> bool:
        """Whether the file is open."""
        return path in self._files

    def acquire(self, path: str, *, create: bool = False) -> PooledFile:
        """Return the file, open, until `release`. Raises OSError."""
        with self._lock:
            pooled = self._files.pop(path, None)
            if pooled is None:
                pooled = PooledFile(path, self._open(path, create=create))
                if len(self._files) >= self._limit:
                    self._close_idle(len(self._files) + 1 - self._limit)
            pooled.users += 1
            # Dictionaries keep their order of insertion: the last one in was used last.
            self._files[path] = pooled
        return pooled

    def acquire_open(self, path: str) -> PooledFile | None:
        """Return a file as `acquire`, if it is open and nobody keeps the pool; never waits."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            pooled = self._files.pop(path, None)
            if pooled is not None:
                pooled.users += 1
                self._files[path] = pooled
            return pooled
        finally:
            self._lock.release()

    def _open(self, path: str, *, create: bool) -> File:
        try:
            return self._fs.open(path, create=create)
        except OSError as error:
            # Clients have taken what there was: do with fewer.
            if not is_out_of_descriptors(error) or not self._close_idle(self._limit):
                raise
        return self._fs.open(path, create=create)

    def sync_directory(self, path: str) -> None:
        """Sync the names in a directory. Raises OSError, SyncFailedError."""
        try:
            sync_directory(self._fs, path)
        except OSError:
            with self._lock:
                if not self._close_idle(self._limit):
                    raise
            sync_directory(self._fs, path)

    def release(self, pooled: PooledFile) -> None:
        """Give back what `acquire` returned."""
        with self._lock:
            pooled.users -= 1
            if pooled.forgotten and pooled.users == 0:
                pooled.file.close()

    def forget(self, path: str) -> None:
        """Close a file that was removed or renamed, as soon as nobody uses it."""
        with self._lock:
            pooled = self._files.pop(path, None)
            if pooled is not None:
                pooled.forgotten = True
                if pooled.users == 0:
                    pooled.file.close()

    def close(self) -> None:
        """Close every file that is not in use."""
        for path in list(self._files):
            self.forget(path)

    def _close_idle(self, most: int) -> int:
        """Close so many of the files that nobody needs, the least recently used first."""
        idle = list(
            islice((one for one in self._files.values() if one.users == 0 and not one.dirty), most)
        )
        for pooled in idle:
            del self._files[pooled.path]
            pooled.file.close()
        return len(idle)
