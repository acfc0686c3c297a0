"""Copies files and computes their checksums, without filling the page cache.

Bytes that a copy has read into the page cache are removed from it afterwards. Written bytes are
synced during the copy, because a large sync at the end would delay the syncs of a server.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded.files.fs import RealFs
from kgw.errors import CorruptionError
from kgw.system import sync, sync_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CHUNK_BYTES: Final = 128 << 10
_UNSYNCED_BYTES: Final = 8 << 20
_TOGETHER: Final = 64
"""The most files that are synced at a time."""


class Part(NamedTuple):
    """A range of a file."""

    path: str
    position: int
    size_bytes: int


class Copier:
    """Copies files at a limited rate, computes checksums and reports the progress."""

    def __init__(
        self,
        advance: Callable[[int], None],
        rate: int,
        monotonic_s: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """`rate` is in bytes a second, 0 for no limit. `advance` is called with bytes read."""
        self._advance = advance
        self._rate = rate
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._due_s = monotonic_s()
        self._buffer = memoryview(bytearray(_CHUNK_BYTES))
        self._unsynced: list[str] = []
        self._directories: dict[str, None] = {}

    def hash(self, part: Part) -> str:
        """Return the SHA-256 of a range. Raises CorruptionError if the file is shorter, OSError."""
        digest = hashlib.sha256()
        self._read(part, digest.update)
        return digest.hexdigest()

    def copy(self, parts: Sequence[Part], target: str, tail: bytes = b"") -> str:
        """Write ranges and then `tail` into a new file; return the file's SHA-256.

        Durable after `sync`. Raises the errors of `hash`.
        """
        digest = hashlib.sha256()
        with self._written(target) as write:
            for part in parts:
                self._read(part, digest.update, write)
            digest.update(tail)
            write(memoryview(tail))
        return digest.hexdigest()

    def copy_all(self, parts: Sequence[Part], target: str) -> list[str]:
        """Write ranges into a new file, in order; return the SHA-256 of each range.

        Durable after `sync`. Raises the errors of `hash`.
        """
        digests = []
        with self._written(target) as write:
            for part in parts:
                digest = hashlib.sha256()
                self._read(part, digest.update, write)
                digests.append(digest.hexdigest())
        return digests

    @contextmanager
    def _written(self, target: str) -> Iterator[Callable[[memoryview], None]]:
        """Create a file and yield a function that appends to it, with a sync now and then."""
        written = synced = 0

        def write(chunk: memoryview) -> None:
            nonlocal written, synced
            written += _write(descriptor, chunk)
            if written - synced >= _UNSYNCED_BYTES:
                sync_data(descriptor)
                _drop_cached(descriptor, synced, written - synced)
                synced = written

        descriptor = os.open(
            target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            yield write
        finally:
            os.close(descriptor)
        self.note_file(target)

    def write(self, content: bytes, target: str) -> str:
        """Write a new file. Durable after `sync`."""
        return self.copy((), target, content)

    def note_file(self, path: str) -> None:
        """Remember a file for the next sync."""
        self._unsynced.append(path)
        self.note_directory(os.path.dirname(path))  # noqa: PTH120 - as in files/fs
        if len(self._unsynced) >= _TOGETHER:
            self._sync_files()

    def note_directory(self, path: str) -> None:
        """Remember a directory whose names the next sync makes durable."""
        self._directories[path] = None

    def sync(self) -> None:
        """Make all written files and names durable. Raises OSError."""
        self._sync_files()
        for path in self._directories:
            RealFs().sync_directory(path)
        self._directories.clear()

    def _sync_files(self) -> None:
        paths, self._unsynced = self._unsynced, []
        for path in paths:
            with _opened(path) as descriptor:
                sync(descriptor)

    def _read(self, part: Part, *takers: Callable[[memoryview], None]) -> None:
        """Read a range at the limited rate; pass each chunk to `takers`, which must not keep it."""
        with _opened(part.path) as descriptor:
            done = 0
            while done < part.size_bytes:
                chunk = self._buffer[: min(_CHUNK_BYTES, part.size_bytes - done)]
                self._wait(len(chunk))
                _read_chunk(descriptor, chunk, part, done)
                for take in takers:
                    take(chunk)
                done += len(chunk)
                self._advance(len(chunk))

    def _wait(self, size_bytes: int) -> None:
        if not self._rate:
            return
        now_s = self._monotonic_s()
        if self._due_s > now_s:
            self._sleep(self._due_s - now_s)
        self._due_s = max(self._due_s, now_s) + size_bytes / self._rate


@contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_chunk(descriptor: int, buffer: memoryview, part: Part, done: int) -> None:
    # Imported late: it uses ctypes, whose import would delay every start.
    from kgw.backend.embedded.files.page_cache import cached_bytes

    position = part.position + done
    cached = cached_bytes(descriptor, position, len(buffer))
    filled = 0
    while filled < len(buffer):
        read_bytes = os.preadv(descriptor, (buffer[filled:],), position + filled)
        if not read_bytes:
            raise CorruptionError(
                f"{part.path} ends at {position + filled}: it had {part.position + part.size_bytes}"
            )
        filled += read_bytes
    if cached is not None and cached < len(buffer):
        _drop_cached(descriptor, position, len(buffer))


def _write(descriptor: int, chunk: memoryview) -> int:
    done = 0
    while done < len(chunk):
        done += os.write(descriptor, chunk[done:])
    return done


def _drop_cached(descriptor: int, position: int, size_bytes: int) -> None:
    advise = getattr(os, "posix_fadvise", None)
    if advise is not None:
        advise(descriptor, position, size_bytes, os.POSIX_FADV_DONTNEED)
