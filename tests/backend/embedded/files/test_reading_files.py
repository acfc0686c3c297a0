"""Real files are read past the page cache, and looked at in it, as far as the system lets one."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.files import page_cache
from kgw.backend.embedded.files.fs import DIRECT_BLOCK_BYTES, RealFs
from kgw.backend.embedded.files.read_buffers import BUFFER_BYTES, ReadBuffers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kgw.backend.embedded.files.fs import RealFile

DATA = os.urandom(3 * DIRECT_BLOCK_BYTES + 100)
_open, _preadv = os.open, os.preadv


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RealFile]:
    """Return a file that holds three blocks and a bit."""
    file = RealFs().open(str(tmp_path / "file"), create=True)
    file.pwrite((DATA,), 0)
    yield file
    file.close()


def _room() -> memoryview:
    return ReadBuffers(1).take_pages(4 * DIRECT_BLOCK_BYTES)


def test_a_direct_read_goes_to_the_end_of_the_file(file: RealFile) -> None:
    """Whatever is in memory, or not yet on the disk."""
    room = _room()
    assert len(DATA) == file.pread_direct(room, 0)
    assert DATA == bytes(room[: len(DATA)])
    rest = DATA[DIRECT_BLOCK_BYTES:]
    assert len(rest) == file.pread_direct(room, DIRECT_BLOCK_BYTES)
    assert rest == bytes(room[: len(rest)])
    assert 0 == file.pread_direct(room, 4 * DIRECT_BLOCK_BYTES)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread_direct(room, 0)


def test_a_file_system_without_direct_reads_is_read_as_ever(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so when the file is opened."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    room = _room()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert len(DATA) == file.pread_direct(room, 0)
    assert DATA == bytes(room[: len(DATA)])


def test_a_direct_read_brings_nothing_into_the_page_cache(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte comes through the descriptor that was opened for direct reads."""
    flags: list[int] = []
    cached_bytes = 0

    def note_open(path: str, flag: int) -> int:
        flags.append(flag & os.O_DIRECT)
        # Not every file system can do it.
        return _open(path, flag & ~os.O_DIRECT)

    def note_read(descriptor: int, buffers: tuple[memoryview], position: int) -> int:
        nonlocal cached_bytes
        read_bytes = _preadv(descriptor, buffers, position)
        if descriptor == file.fileno():
            cached_bytes += read_bytes
        return read_bytes

    room = _room()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", note_open)
        patch.setattr(os, "preadv", note_read)
        assert len(DATA) == file.pread_direct(room, 0)
    assert DATA == bytes(room[: len(DATA)])
    assert ([os.O_DIRECT], 0) == (flags, cached_bytes)


@pytest.mark.parametrize("most_bytes", [0, 100, DIRECT_BLOCK_BYTES])
@pytest.mark.parametrize("error", [0, errno.EINVAL, errno.EIO])
def test_a_direct_read_that_stops_is_finished_as_ever(
    file: RealFile, monkeypatch: pytest.MonkeyPatch, most_bytes: int, error: int
) -> None:
    """At once, short as on network file systems, or behind the first block."""

    def stop_early(descriptor: int, buffers: tuple[memoryview], position: int) -> int:
        if descriptor == file.fileno():
            return _preadv(descriptor, buffers, position)
        if error and (position or not most_bytes):
            raise OSError(error, os.strerror(error))
        return _preadv(descriptor, (buffers[0][:most_bytes],), position)

    room = _room()
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", stop_early)
        assert len(DATA) == file.pread_direct(room, 0)
    assert DATA == bytes(room[: len(DATA)])


def test_what_is_in_memory_is_told(file: RealFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was just written is; where the system cannot tell, nothing is said to be missing."""
    assert 0 == file.uncached_bytes(0, len(DATA))
    assert file.uncached_bytes(0, 8 << 12) in {0, 4 << 12}
    monkeypatch.setattr(page_cache, "cached_bytes", lambda *_: None)
    assert 0 == file.uncached_bytes(0, 8 << 20)


def test_a_file_is_looked_into(file: RealFile) -> None:
    """What was just written is in memory; behind its end there is nothing."""
    room = memoryview(bytearray(8))
    # 0 where the system cannot tell what is in memory.
    assert file.peek_into(room[:3], 0) in {0, 3}
    assert 0 == file.peek_into(room, len(DATA))
    file.close()
    assert 0 == file.peek_into(room, 0)


def test_a_buffer_is_used_again_when_no_view_of_it_is_left() -> None:
    """One that somebody still looks at is never given out."""
    buffers = ReadBuffers(2)
    first, second = buffers.take(100_000), buffers.take(BUFFER_BYTES)
    assert first.obj is not second.obj
    third = buffers.take(100_000)
    assert 100_000 == len(third)
    assert third.obj not in (first.obj, second.obj)
    assert 2 == len(buffers)
    kept = first[10:20].toreadonly()
    memory = id(first.obj)
    del first
    assert memory != id(buffers.take(100_000).obj)
    del kept
    assert memory == id(buffers.take(100_000).obj)


def test_small_and_large_reads_have_memory_of_their_own() -> None:
    """Small memory is cheap, and nothing larger than a buffer fits into one."""
    buffers = ReadBuffers(2)
    assert [10, BUFFER_BYTES + 1] == [len(buffers.take(size)) for size in (10, BUFFER_BYTES + 1)]
    assert 0 == len(buffers)
