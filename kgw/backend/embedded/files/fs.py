"""The interface of the few file operations that the embedded backend uses.

All operations that can lose data use this interface, so that a test can lose unsynced writes, tear
the last write, or fail the n-th call (`tests.simulated_fs`). Paths are absolute and of type `str`.
All errors are `OSError` with the errno of the failed call.

`File.fdatasync` makes the bytes and the length of a file durable, `FileSystem.sync_directory` the
names in a directory. Until then, a crash may lose writes, and undo the creation, renaming and
removal of files.
"""

# ruff: noqa: PTH102, PTH104, PTH106, PTH108, PTH120, PTH208 - here paths meet system calls
from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from kgw.backend.embedded.failures import error_of
from kgw.system import sync, sync_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kgw.backend.embedded.files.sync_batch import SyncBatch
    from kgw.types import Buffer

_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_FEWEST_TOGETHER: Final = 2
"""Fewer syncs than this are made one after the other."""
_DIRECTORIES_TOGETHER: Final = 64
"""The most directories that are open at a time."""
_NO_MODULE: Final = (OSError, ImportError)
"""Errors that an import raises if no more files can be opened. For a shared library this is
ImportError."""
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_DIRECT: Final[int | None] = getattr(os, "O_DIRECT", None)
_IOV_MAX: Final = 1024
_TEMPORARY_SUFFIX: Final = ".tmp"

DIRECT_BLOCK_BYTES: Final = 4096
"""Direct reads (O_DIRECT) need a position, length and memory address that are multiples of this."""


class File(ABC):
    """One open file, read and written by position; it has no cursor."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def pread(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position` on, or fewer if the file ends before."""
        data = self.read_once(size, position)
        while len(data) < size:
            more = self.read_once(size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer from `position` on; return the number of bytes, smaller only at the end."""
        done = 0
        while done < len(buffer):
            read_bytes = self.read_into_once(buffer[done:], position + done)
            if not read_bytes:
                break
            done += read_bytes
        return done

    @abstractmethod
    def peek_into(self, buffer: memoryview, position: int) -> int:
        """Read bytes that are in the page cache into a buffer; return their number.

        Never waits for the disk and never raises. Returns 0 if it is unknown which bytes are
        cached.
        """

    @abstractmethod
    def uncached_bytes(self, position: int, size_bytes: int) -> int:
        """Return how many bytes of a range are not in the page cache; 0 if it is unknown.

        Reads nothing into the page cache, and never raises.
        """

    @abstractmethod
    def pread_direct(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer as `pread_into` does, but bypass the page cache if the system allows it.

        Position, length and memory address are multiples of `DIRECT_BLOCK_BYTES`.
        """

    @abstractmethod
    def read_into_once(self, buffer: memoryview, position: int) -> int:
        """Make one system call, which may read less than requested, but 0 only at the end."""

    def pwrite(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all of the buffers one after the other from `position` on.

        Raises OSError, after which any part of the bytes may be in the file.
        """
        for start in range(0, len(buffers), _IOV_MAX):
            rest = buffers[start : start + _IOV_MAX]
            rest_bytes = sum(map(len, rest))
            while rest_bytes:
                written = self.write_once(rest, position)
                if written <= 0:
                    # Nothing was written and no error was reported, so a retry could loop forever.
                    raise OSError(errno.EIO, "write made no progress", self.path)
                position += written
                rest_bytes -= written
                if rest_bytes:
                    rest = (b"".join(rest)[written:],)

    @abstractmethod
    def read_once(self, size: int, position: int) -> bytes:
        """Make one system call, which may return less than requested, but b"" only at the end."""

    @abstractmethod
    def write_once(self, buffers: Sequence[Buffer], position: int) -> int:
        """Make one system call with at most IOV_MAX buffers; return the number of written bytes."""

    @abstractmethod
    def fdatasync(self) -> None:
        """Return once the bytes and the length written so far would survive a power loss.

        After an error, the state of all bytes written since the last successful sync is unknown. A
        further call proves nothing, because the kernel has marked the pages clean.
        """

    def begin_write_back(self, position: int, size: int) -> None:  # noqa: B027 - most cannot
        """Ask the system to begin writing bytes to the disk. This makes nothing durable.

        Errors are reported by the next `fdatasync`.
        """

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or extend it with zeros."""

    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def close(self) -> None:
        """Close the descriptor, without making anything durable. A second call does nothing."""


class FileSystem(ABC):
    """Names and directories. Implementations are safe to use from several threads."""

    __slots__ = ()

    @abstractmethod
    def open(self, path: str, *, create: bool = False) -> File:
        """Open a regular file for reading and writing, but never a symbolic link.

        With `create` a missing file is created empty; otherwise FileNotFoundError is raised.
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
        """Create one directory that only the owner can use. Raises FileExistsError."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; a file at `target` is replaced atomically."""

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
        """Return how many bytes an unprivileged process may still write to the file system."""

    @abstractmethod
    def total_bytes(self, path: str) -> int:
        """Return the size of the file system of a path, in bytes."""

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> list[OSError | None]:
        """Sync files as `fdatasync` does, and the names in directories, in any order.

        Returns the error or None of each file, then of each directory.
        """
        return [
            *(error_of(file.fdatasync) for file in files),
            *(error_of(partial(self.sync_directory, path)) for path in directories),
        ]

    def read_bytes(self, path: str) -> bytes:
        """Return the content of a small file."""
        with closing(self.open(path)) as file:
            return file.pread(file.size(), 0)

    def replace_durably(self, path: str, data: Buffer) -> None:
        """Replace a small file so that after a crash it has either its old or its new content.

        The new content is durable on return. A crash may leave a temporary file whose name ends in
        ".tmp", which the next call overwrites.
        """
        self.replace_all_durably({path: data})

    def replace_all_durably(self, contents: Mapping[str, Buffer]) -> None:
        """Replace several small files of one directory, each as `replace_durably` does.

        After a crash each of them has either the old content or the new. Syncs the directory only
        once.
        """
        for path, data in contents.items():
            with closing(self.open(path + _TEMPORARY_SUFFIX, create=True)) as file:
                file.truncate(0)
                file.pwrite((data,), 0)
                file.fdatasync()
        for path in contents:
            self.rename(path + _TEMPORARY_SUFFIX, path)
        self.sync_directory(os.path.dirname(path))

    def make_directory_durably(self, path: str) -> None:
        """Create a directory if it is missing; on return its name is durable."""
        if not self.is_directory(path):
            self.mkdir(path)
        self.sync_directory(os.path.dirname(path))

    def make_directories_durably(self, path: str) -> None:
        """Create a directory and its missing parents; on return all their names are durable.

        Names of existing directories are synced, too, because the process that created them may
        have ended before its sync. If this process may not open a directory, the names in it are
        not synced.
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
        """Remove a directory and everything in it. Not atomic and not synced."""
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
        """Return the descriptor, for calls that exist only for real files."""
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
            # EAGAIN if the bytes are not in memory. Some file systems do not support the flag.
            return 0

    def uncached_bytes(self, position: int, size_bytes: int) -> int:
        # Imported late: it uses ctypes, whose import would delay every start.
        from kgw.backend.embedded.files.page_cache import cached_bytes

        cached = cached_bytes(self._descriptor, position, size_bytes)
        return 0 if cached is None else max(size_bytes - cached, 0)

    def pread_direct(self, buffer: memoryview, position: int) -> int:
        # Open the file through its descriptor, because its path may belong to another file by now.
        # Each read opens it again, which takes a hundredth of the read's time: so no second
        # descriptor must be kept, counted and closed.
        if _DIRECT is None:
            return self.pread_into(buffer, position)
        path = f"/proc/self/fd/{self._descriptor}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _DIRECT)
        except OSError:
            # There is no /proc, or the file system does not support O_DIRECT.
            return self.pread_into(buffer, position)
        done = 0
        try:
            while done < len(buffer) and done % DIRECT_BLOCK_BYTES == 0:
                read_bytes = os.preadv(descriptor, (buffer[done:],), position + done)
                if not read_bytes:
                    break
                done += read_bytes
        except OSError:
            # For example, the disk has larger blocks. Other errors will occur again in the plain
            # read below.
            pass
        finally:
            os.close(descriptor)
        # Read the rest through the page cache: network file systems may return less than requested.
        # At the end of the file this reads nothing.
        return done + self.pread_into(buffer[done:], position + done)

    def write_once(self, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._descriptor, buffers, position)

    def fdatasync(self) -> None:
        sync_data(self._descriptor)

    def begin_write_back(self, position: int, size: int) -> None:
        # Imported late: it uses ctypes, whose import would delay every start.
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
    """The local file system: files 0600, directories 0700; symbolic links are not followed."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: list[SyncBatch] = []
        """Idle `SyncBatch` objects, which no thread uses now."""

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
            # Test and take in one step, because another thread may take the last batch.
            batch = self._batches.pop()
        except IndexError:
            try:
                from kgw.backend.embedded.files.sync_batch import SyncBatch

                batch = SyncBatch()
            except _NO_MODULE:
                # Not Linux, a sandbox forbids the calls, or no descriptor is free to import the
                # module.
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
                # Sync the directories one by one, to find out which one fails or whether too many
                # files are open.
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
