"""The files of the operating system."""

# ruff: noqa: PTH102, PTH104, PTH106, PTH108, PTH208 - here paths meet system calls
from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, cast

from kgw.backend.embedded.files.fs import DIRECT_BLOCK_BYTES, File, FileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
        os.fdatasync(self._descriptor)

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
            os.fsync(descriptor)

    def free_bytes(self, path: str) -> int:
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize


@contextmanager
def _open_directory(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
