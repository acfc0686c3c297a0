"""Open files, a bounded number of them, shared by the flusher and the readers.

A file in use is never closed under its user, and one with unsynced bytes stays open: a descriptor
opened after a failed write-back might not be told of the error (durability.md 4.3).
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

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

    def __len__(self) -> int:
        return len(self._files)

    def acquire(self, path: str, *, create: bool = False) -> PooledFile:
        """Return the file, open, until `release`. Raises OSError."""
        with self._lock:
            pooled = self._files.pop(path, None)
            if pooled is None:
                pooled = PooledFile(path, self._fs.open(path, create=create))
                if len(self._files) >= self._limit:
                    self._close_idle()
            pooled.users += 1
            # Dictionaries keep their order of insertion: the last one in was used last.
            self._files[path] = pooled
        return pooled

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

    def _close_idle(self) -> None:
        excess = len(self._files) + 1 - self._limit
        idle = [one for one in self._files.values() if one.users == 0 and not one.dirty]
        for pooled in idle[:excess]:
            del self._files[pooled.path]
            pooled.file.close()
