"""The few file operations that the embedded backend uses, as a seam.

Everything that can lose data passes through here, so that a test can lose unsynced writes, tear the
last one, or fail the n-th call (`tests.simulated_fs`). Paths are absolute text. Errors are
`OSError` with the errno of the call that failed, and nothing else.

What a call makes durable is what the simulator assumes, too: `File.fdatasync` the bytes and the
length of that file; `FileSystem.sync_directory` the names in that directory. Creating, renaming and
unlinking are lost by a crash until their directory is synced.
"""

# ruff: noqa: PTH102, PTH104, PTH106, PTH108, PTH120, PTH208 - here paths meet system calls
from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from kgw.system import sync, sync_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kgw.backend.embedded.files.sync_batch import SyncBatch
    from kgw.types import Buffer

_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_FEWEST_TOGETHER: Final = 2
"""Fewer syncs than that are made one after the other."""
_DIRECTORIES_TOGETHER: Final = 64
"""So many directories are open at a time."""
_NO_MODULE: Final = (OSError, ImportError)
"""What importing raises where files cannot be opened; ImportError for a shared library."""
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_DIRECT: Final[int | None] = getattr(os, "O_DIRECT", None)
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

    @abstractmethod
    def peek_into(self, buffer: memoryview, position: int) -> int:
        """Put into a buffer what can be had without waiting for a disk; returns how much.

        Never raises: 0 says that nothing is known.
        """

    @abstractmethod
    def uncached_bytes(self, position: int, size_bytes: int) -> int:
        """Return how much of a range would have to come from a disk; 0 where nothing can tell.

        It brings nothing into memory, and never raises.
        """

    @abstractmethod
    def pread_direct(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer as `pread_into`, past the page cache where the system lets one.

        Position, length and memory are multiples of `DIRECT_BLOCK_BYTES`.
        """

    @abstractmethod
    def read_into_once(self, buffer: memoryview, position: int) -> int:
        """One call: may read less than the buffer holds, nothing only at the end of the file."""

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

    @abstractmethod
    def total_bytes(self, path: str) -> int:
        """Return the size of the file system there, in bytes."""

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

    def make_directories_durably(self, path: str) -> None:
        """Create a directory and those above it where they are missing; all names survive a crash.

        Also of those that are there: who has created them may have ended before they were durable.
        What is above one that may not be looked into is left alone.
        """
        above = os.path.dirname(path)
        if above == path:
            return
        self.make_directories_durably(above)
        is_there = self.is_directory(path)
        try:
            self.make_directory_durably(path)
        except PermissionError:
            if not is_there:
                raise

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all that is in it. Not at one stroke, and not synced."""
        for name in self.listdir(path):
            child = f"{path}/{name}"
            if self.is_directory(child):
                self.remove_tree(child)
            else:
                self.unlink(child)
        self.rmdir(path)


class RealFile(File):
    """A descriptor of the operating system."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str, descriptor: int) -> None:
        super().__init__(path)
        self._descriptor = descriptor

    def fileno(self) -> int:
        """Return the descriptor, for calls that only a real file knows."""
        return self._descriptor

    def read_once(self, size: int, position: int) -> bytes:
        return os.pread(self._descriptor, size, position)

    def read_into_once(self, buffer: memoryview, position: int) -> int:
        return os.preadv(self._descriptor, (buffer,), position)

    def peek_into(self, buffer: memoryview, position: int) -> int:
        if _NO_WAIT is None:
            return 0
        try:
            return os.preadv(self._descriptor, (buffer,), position, _NO_WAIT)
        except OSError:
            # EAGAIN: not in memory. Not every file system knows the flag.
            return 0

    def uncached_bytes(self, position: int, size_bytes: int) -> int:
        # With ctypes: nothing that a start should wait for.
        from kgw.backend.embedded.files.page_cache import cached_bytes

        cached = cached_bytes(self._descriptor, position, size_bytes)
        return 0 if cached is None else max(size_bytes - cached, 0)

    def pread_direct(self, buffer: memoryview, position: int) -> int:
        # By its descriptor: the name may be another file's by now. Opened for each read, which
        # takes a hundredth of it: there is no second descriptor to keep, to count and to close.
        if _DIRECT is None:
            return self.pread_into(buffer, position)
        path = f"/proc/self/fd/{self._descriptor}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _DIRECT)
        except OSError:
            # No such file system, or one that always goes through the page cache.
            return self.pread_into(buffer, position)
        done = 0
        try:
            while done < len(buffer) and done % DIRECT_BLOCK_BYTES == 0:
                read_bytes = os.preadv(descriptor, (buffer[done:],), position + done)
                if not read_bytes:
                    break
                done += read_bytes
        except OSError:
            # A disk with larger blocks, say. What else is wrong shows in the plain read.
            pass
        finally:
            os.close(descriptor)
        # Nothing, where the file ends. Network file systems stop in the middle, too.
        return done + self.pread_into(buffer[done:], position + done)

    def write_once(self, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._descriptor, buffers, position)

    def fdatasync(self) -> None:
        sync_data(self._descriptor)

    def begin_write_back(self, position: int, size: int) -> None:
        # With ctypes: nothing that a start should wait for.
        from kgw.backend.embedded.files.page_cache import begin_write_back

        begin_write_back(self._descriptor, position, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealFs(FileSystem):
    """The local file system: files 0600, directories 0700, links never followed at the end."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: list[SyncBatch] = []
        """Ways to sync many files at a time that nobody uses just now."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        if create:
            flags |= os.O_CREAT
        descriptor = os.open(path, flags, _FILE_MODE)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
        except OSError:
            os.close(descriptor)
            raise
        return RealFile(path, descriptor)

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> list[OSError | None]:
        if len(files) + len(directories) < _FEWEST_TOGETHER:
            return super().sync_all(files, directories)
        try:
            # In one step: another thread may take the last one.
            batch = self._batches.pop()
        except IndexError:
            try:
                from kgw.backend.embedded.files.sync_batch import SyncBatch

                batch = SyncBatch()
            except _NO_MODULE:
                # Another system, a sandbox that refuses it, or no descriptor for the module.
                return super().sync_all(files, directories)
        descriptors = [file.fileno() for file in cast("Sequence[RealFile]", files)]
        outcomes = batch.sync_files(descriptors)
        for start in range(0, len(directories), _DIRECTORIES_TOGETHER):
            outcomes += self._sync_directories(
                batch, directories[start : start + _DIRECTORIES_TOGETHER]
            )
        if not batch.is_broken:
            self._batches.append(batch)
        return outcomes

    def _sync_directories(
        self, batch: SyncBatch, directories: Sequence[str]
    ) -> list[OSError | None]:
        with ExitStack() as opened:
            try:
                descriptors = [opened.enter_context(_open_directory(path)) for path in directories]
            except OSError:
                # Which one it is, or whether there are too many, shows one by one.
                opened.close()
                return super().sync_all((), directories)
            return batch.sync_directories(descriptors)

    def exists(self, path: str) -> bool:
        try:
            os.lstat(path)
        except FileNotFoundError:
            return False
        return True

    def is_directory(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(os.lstat(path).st_mode)
        except FileNotFoundError:
            return False

    def file_size(self, path: str) -> int:
        return os.lstat(path).st_size

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        os.mkdir(path, _DIRECTORY_MODE)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        with _open_directory(path) as descriptor:
            sync(descriptor)

    def free_bytes(self, path: str) -> int:
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize

    def total_bytes(self, path: str) -> int:
        figures = os.statvfs(path)
        return figures.f_blocks * figures.f_frsize


@contextmanager
def _open_directory(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _outcome(sync: Callable[[], None]) -> OSError | None:
    try:
        sync()
    except OSError as error:
        return error
    return None
