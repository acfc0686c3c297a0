"""The few file operations that the embedded backend uses, as a seam.

Everything that can lose data passes through here, so that a test can lose unsynced writes, tear the
last one, or fail the n-th call (`kgw.testing.faults`). Paths are absolute text. Errors are
`OSError` with the errno of the call that failed, and nothing else.

What a call makes durable is what the simulator assumes, too: `File.fdatasync` the bytes and the
length of that file; `FileSystem.sync_directory` the names in that directory. Creating, renaming and
unlinking are lost by a crash until their directory is synced.
"""

# ruff: noqa: PTH120 - here paths meet system calls
from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kgw.types import Buffer

_IOV_MAX: Final = 1024
_TEMPORARY_SUFFIX: Final = ".tmp"

DIRECT_BLOCK_BYTES: Final = 4096
"""What reads past the page cache are aligned to: position, length and memory."""


class File(ABC):
    """One open file, read and written by position; it has no cursor."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def pread(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only where the file ends."""
        data = self.read_once(size, position)
        while len(data) < size:
            more = self.read_once(size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer from `position` on; returns how much, less only where the file ends."""
        done = 0
        while done < len(buffer):
            read_bytes = self.read_into_once(buffer[done:], position + done)
            if not read_bytes:
                break
            done += read_bytes
        return done

    def peek_into(self, buffer: memoryview, position: int) -> int:
        """Put into a buffer what can be had without waiting for a disk; returns how much.

        Never raises: 0 says that nothing is known.
        """
        try:
            return self.read_into_once(buffer, position)
        except OSError:
            return 0

    def uncached_bytes(self, position: int, size_bytes: int) -> int:
        """Return how much of a range would have to come from a disk; 0 where nothing can tell.

        It brings nothing into memory, and never raises.
        """
        return 0

    def pread_direct(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer as `pread_into`, past the page cache where the system lets one.

        Position, length and memory are multiples of `DIRECT_BLOCK_BYTES`.
        """
        return self.pread_into(buffer, position)

    def read_into_once(self, buffer: memoryview, position: int) -> int:
        """One call: may read less than the buffer holds, nothing only at the end of the file."""
        data = self.read_once(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all of the buffers back to back from `position`.

        Raises OSError when that was not possible; any part of the bytes may then be in the file.
        """
        for start in range(0, len(buffers), _IOV_MAX):
            rest = buffers[start : start + _IOV_MAX]
            rest_bytes = sum(map(len, rest))
            while rest_bytes:
                written = self.write_once(rest, position)
                if written <= 0:
                    # No progress and no reason: a retry could spin for ever.
                    raise OSError(errno.EIO, "write made no progress", self.path)
                position += written
                rest_bytes -= written
                if rest_bytes:
                    rest = (b"".join(rest)[written:],)

    @abstractmethod
    def read_once(self, size: int, position: int) -> bytes:
        """One call: may return less than asked for, nothing only at the end of the file."""

    @abstractmethod
    def write_once(self, buffers: Sequence[Buffer], position: int) -> int:
        """One call of at most IOV_MAX buffers: returns how many bytes it took."""

    @abstractmethod
    def fdatasync(self) -> None:
        """Return once the bytes and the length written so far would survive a power loss.

        After an error the state of everything since the last good sync is unknown, and a further
        call proves nothing: the kernel marks the pages clean all the same.
        """

    def begin_write_back(self, position: int, size: int) -> None:  # noqa: B027 - most cannot
        """Have the system begin to write bytes to the disk: a hint, which makes nothing durable.

        Whatever goes wrong is for the next `fdatasync` to say.
        """

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros."""

    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def close(self) -> None:
        """Let go of the descriptor; says nothing about durability. A second call does nothing."""


class FileSystem(ABC):
    """Names and directories. Implementations are safe to use from several threads."""

    __slots__ = ()

    @abstractmethod
    def open(self, path: str, *, create: bool = False) -> File:
        """Open a regular file for reading and writing, never through a link.

        With `create` a missing file is made, empty. Raises FileNotFoundError otherwise.
        """

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def is_directory(self, path: str) -> bool: ...

    @abstractmethod
    def file_size(self, path: str) -> int:
        """Return the length of a file without opening it. Raises FileNotFoundError."""

    @abstractmethod
    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Create one directory, for the owner alone. Raises FileExistsError."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name; a file at `target` is replaced at one stroke."""

    @abstractmethod
    def unlink(self, path: str) -> None: ...

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory would survive a power loss."""

    @abstractmethod
    def free_bytes(self, path: str) -> int:
        """Return the bytes that an ordinary process may still write to the file system there."""

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> list[OSError | None]:
        """Sync files, as `fdatasync`, and the names in directories, in any order.

        Returns what went wrong with each, in this order.
        """
        return [
            *(_outcome(file.fdatasync) for file in files),
            *(_outcome(partial(self.sync_directory, path)) for path in directories),
        ]

    def read_bytes(self, path: str) -> bytes:
        """Return the whole of a small file."""
        file = self.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def replace_durably(self, path: str, data: Buffer) -> None:
        """Put a small file in place so that a crash leaves the old content or the new.

        Durable on return. A temporary file beside it may be left behind by a crash; its name ends
        in ".tmp" and it is overwritten by the next call.
        """
        self.replace_all_durably({path: data})

    def replace_all_durably(self, contents: Mapping[str, Buffer]) -> None:
        """Put several small files of one directory in place, as `replace_durably` does each.

        A crash leaves the old content or the new of each of them. With one sync of the directory.
        """
        for path, data in contents.items():
            file = self.open(path + _TEMPORARY_SUFFIX, create=True)
            try:
                file.truncate(0)
                file.pwrite((data,), 0)
                file.fdatasync()
            finally:
                file.close()
        for path in contents:
            self.rename(path + _TEMPORARY_SUFFIX, path)
        self.sync_directory(os.path.dirname(path))

    def make_directory_durably(self, path: str) -> None:
        """Create a directory where there is none; its name survives a crash on return."""
        if not self.is_directory(path):
            self.mkdir(path)
        self.sync_directory(os.path.dirname(path))

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all that is in it. Not at one stroke, and not synced."""
        for name in self.listdir(path):
            child = f"{path}/{name}"
            if self.is_directory(child):
                self.remove_tree(child)
            else:
                self.unlink(child)
        self.rmdir(path)


def _outcome(sync: Callable[[], None]) -> OSError | None:
    try:
        sync()
    except OSError as error:
        return error
    return None
