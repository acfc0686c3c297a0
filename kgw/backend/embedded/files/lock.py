"""Makes sure that only one process uses a data directory.

The lock file also stores the inode numbers of the directory and of files in it. These numbers stay
the same if the directory is renamed, and in a snapshot of the whole file system. A copy that was
made file by file has other numbers.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from kgw.backend.embedded.files.fs import File, FileSystem

_NUMBERED: Final = ("", f"/{layout.LOCK_NAME}", f"/{layout.PARTITIONS_DIRECTORY}")
"""Several files are compared, because a copied file may have the same inode number by chance."""

COPIED: Final = (
    "is a copy, made file by file, of a directory that a server used or was killed in: if it wrote "
    "meanwhile, files are of different moments, and acknowledged records may be missing. Take "
    "backups with `kgw backup` (docs/backup.md)"
)
"""The problem of a directory for which `is_copy` is true. In the report it follows the directory's
name."""


def is_copy(fs: FileSystem, root: str) -> bool:
    """Return whether a directory is a file-by-file copy of one that a server has locked."""
    path = f"{root}/{layout.LOCK_NAME}"
    try:
        if not fs.exists(path):
            return False
        noted: object = layout.decode_small(fs.read_bytes(path))["numbers"]
        return noted != _numbers(root)
    except (OSError, layout.SmallFileError, KeyError):
        return False


def _numbers(root: str) -> list[int]:
    return [os.stat(root + name).st_ino for name in _NUMBERED]  # noqa: PTH116 - as in fs


class DirectoryLock:
    """An advisory lock, which the system releases when the process ends or is killed."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        name: str = layout.LOCK_NAME,
        holder: str = "another process",
    ) -> None:
        """`holder` names the process that has the lock, in messages."""
        self._fs = fs
        self._root = root
        self._name = name
        self._holder = holder
        self._file: File | None = None

    def acquire(self) -> None:
        """Acquire the lock. Raises DataDirectoryError if another process holds it."""
        path = f"{self._root}/{self._name}"
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
                    f"{self._root} is in use by {self._holder} (lock on {self._name})"
                ) from error
        self._file = file

    def note_directory(self) -> None:
        """Store which directory this is, for `is_copy`. An error is ignored."""
        file = self._file
        if file is None or not hasattr(file, "fileno"):
            return
        with suppress(OSError):
            content = layout.encode_small({"numbers": _numbers(self._root)})
            file.truncate(0)
            file.pwrite((content,), 0)

    def release(self) -> None:
        """Release the lock. Releasing twice is harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
