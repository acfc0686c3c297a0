"""One process, one data directory."""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from kgw.backend.embedded.files.fs import File, FileSystem


class DirectoryLock:
    """An advisory lock that goes with the process, however it ends."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs = fs
        self._root = root
        self._file: File | None = None

    def acquire(self) -> None:
        """Take the lock. Raises DataDirectoryError when another process has it."""
        path = f"{self._root}/{layout.LOCK_NAME}"
        try:
            file = self._fs.open(path, create=True)
        except OSError as error:
            raise DataDirectoryError(f"{path}: {error.strerror or error}") from error
        fileno = getattr(file, "fileno", None)  # a simulated file has no descriptor to lock
        if fileno is not None:
            try:
                fcntl.flock(fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.close()
                raise DataDirectoryError(
                    f"{self._root} is in use by another process (lock on {layout.LOCK_NAME})"
                ) from error
        self._file = file

    def release(self) -> None:
        """Give the lock back. Releasing twice is harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None
