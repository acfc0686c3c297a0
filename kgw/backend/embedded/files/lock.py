"""One process, one data directory.

The lock's file says which directory it was locked in, by the numbers that the file system has for
the directory and what is in it. They stay when a directory is renamed, and in a snapshot of the
whole file system; a copy that was made file by file has others.
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
"""Of several things, for one may have the same number by chance."""

COPIED: Final = (
    "is a copy, made file by file, of a directory that a server used or was killed in: if it wrote "
    "meanwhile, files are of different moments, and acknowledged records may be missing. Take "
    "backups with `kgw backup` (docs/backup.md)"
)
"""What is said of a directory for which `is_copy` holds, behind its name."""


def is_copy(fs: FileSystem, root: str) -> bool:
    """Whether a directory is a copy, made file by file, of one that was locked by a server."""
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

    def note_directory(self) -> None:
        """Note which directory it is, for `is_copy`. Where that cannot be, nothing is told."""
        file = self._file
        if file is None or not hasattr(file, "fileno"):
            return
        with suppress(OSError):
            content = layout.encode_small({"numbers": _numbers(self._root)})
            file.truncate(0)
            file.pwrite((content,), 0)

    def release(self) -> None:
        """Give the lock back. Releasing twice is harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None
