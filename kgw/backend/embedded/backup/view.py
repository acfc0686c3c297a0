"""Presents a backup as a data directory, so that the checks of logs can read it."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from contextlib import closing
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NoReturn

from kgw.backend.embedded import layout
from kgw.backend.embedded.backup.manifest import log_directory
from kgw.backend.embedded.files.fs import File, FileSystem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.backup.manifest import Manifest, StoredLog
    from kgw.types import Buffer

_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW


def small_files(log: StoredLog) -> dict[str, bytes]:
    """Return the small files of a log's directory, made from the manifest."""
    state = layout.encode_log_state(log.state)
    return {
        layout.PARTITION_NAME: layout.encode_partition(
            layout.PartitionIdentity(log.topic, log.key)
        ),
        layout.LOG_STATE_NAME: state,
        layout.LOG_STATE_COPY_NAME: state,
        layout.EPOCHS_NAME: layout.encode_epochs(log.state.epochs),
    }


class BackupView(FileSystem):
    """The files of a backup, with their paths in a data directory at "/". Read-only."""

    __slots__ = ("_contents", "_directories", "_pieces")

    def __init__(self, path: str, manifest: Manifest) -> None:
        """`path` is the backup's directory."""
        self._pieces = {
            f"/{name}": [(f"{path}/{one}", file.size_bytes) for one, file in files.items()]
            for name, files in manifest.log_files().items()
        }
        """For each file of the view: path and size of the backup's files that contain its parts."""
        self._contents = {
            f"/{layout.FORMAT_NAME}": layout.encode_small({"format": layout.FORMAT_VERSION})
        }
        self._directories: dict[str, list[str]] = {f"/{layout.PARTITIONS_DIRECTORY}": []}
        for log in manifest.logs:
            directory = f"/{log_directory(log.key)}"
            for name, content in small_files(log).items():
                self._contents[f"{directory}/{name}"] = content
            self._directories[f"/{layout.PARTITIONS_DIRECTORY}"].append(str(log.key))
            self._directories[directory] = []
        for name in (*self._pieces, *self._contents):
            above, _, last = name.rpartition("/")
            if above in self._directories:
                self._directories[above].append(last)

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            _refuse(path)
        if path in self._contents:
            return _Content(path, self._contents[path])
        if path not in self._pieces:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return _FileInParts(path, self._pieces[path])

    def exists(self, path: str) -> bool:
        return path in self._contents or path in self._pieces or path in self._directories

    def is_directory(self, path: str) -> bool:
        return path in self._directories

    def file_size(self, path: str) -> int:
        with closing(self.open(path)) as file:
            return file.size()

    def listdir(self, path: str) -> list[str]:
        return sorted(self._directories[path])

    def mkdir(self, path: str) -> None:
        _refuse(path)

    def rename(self, source: str, target: str) -> None:
        _refuse(target)

    def unlink(self, path: str) -> None:
        _refuse(path)

    def rmdir(self, path: str) -> None:
        _refuse(path)

    def sync_directory(self, path: str) -> None:
        _refuse(path)

    def free_bytes(self, path: str) -> int:
        return _refuse(path)

    def total_bytes(self, path: str) -> int:
        return _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


class _ReadOnly(File):
    """Base of the read-only files of a view."""

    __slots__ = ()

    def peek_into(self, buffer: memoryview, position: int) -> int:
        return 0

    def uncached_bytes(self, position: int, size_bytes: int) -> int:
        return 0

    def pread_direct(self, buffer: memoryview, position: int) -> int:
        return self.pread_into(buffer, position)

    def read_into_once(self, buffer: memoryview, position: int) -> int:
        data = self.read_once(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def write_once(self, buffers: Sequence[Buffer], position: int) -> int:
        return _refuse(self.path)

    def fdatasync(self) -> None:
        _refuse(self.path)

    def truncate(self, size: int) -> None:
        _refuse(self.path)


class _Content(_ReadOnly):
    """A small file whose content comes from the manifest."""

    __slots__ = ("_content",)

    def __init__(self, path: str, content: bytes) -> None:
        super().__init__(path)
        self._content = content

    def read_once(self, size: int, position: int) -> bytes:
        return self._content[position : position + size]

    def size(self) -> int:
        return len(self._content)

    def close(self) -> None:
        pass


class _FileInParts(_ReadOnly):
    """A file that is stored in parts."""

    __slots__ = ("_descriptor", "_ends", "_names", "_number")

    def __init__(self, path: str, pieces: Sequence[tuple[str, int]]) -> None:
        super().__init__(path)
        self._names = [name for name, _ in pieces]
        self._ends = list(accumulate(size_bytes for _, size_bytes in pieces))
        self._number = -1
        """The number of the open part. Only one part is open at a time, because a file may have
        many."""
        self._descriptor = -1

    def read_once(self, size: int, position: int) -> bytes:
        number = bisect_right(self._ends, position)
        if number == len(self._ends):
            return b""
        if number != self._number:
            self.close()
            self._descriptor = os.open(self._names[number], os.O_RDONLY | _FLAGS)
            self._number = number
        end = self._ends[number]
        start = self._ends[number - 1] if number else 0
        return os.pread(self._descriptor, min(size, end - position), position - start)

    def size(self) -> int:
        return self._ends[-1] if self._ends else 0

    def close(self) -> None:
        if self._number >= 0:
            self._number = -1
            os.close(self._descriptor)
