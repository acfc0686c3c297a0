"""Reads of the simulated file system: the page cache, and calls that fail."""

from __future__ import annotations

from random import Random

import pytest

from kgw.backend.embedded.files.fs import DIRECT_BLOCK_BYTES
from tests.simulated_disk import SECTOR_BYTES, CrashMode
from tests.simulated_fs import SimulatedFs

PATH = "/file"
CONTENT = bytes(range(256)) * 8


def make_fs() -> SimulatedFs:
    """Return a file system with one file that is durable."""
    fs = SimulatedFs()
    file = fs.open(PATH, create=True)
    file.pwrite((CONTENT,), 0)
    file.fdatasync()
    fs.sync_directory("/")
    return fs


def peek(fs: SimulatedFs, size: int = len(CONTENT), position: int = 0) -> bytes:
    """Return what a peek finds."""
    room = memoryview(bytearray(size))
    return bytes(room[: fs.open(PATH).peek_into(room, position)])


def test_what_was_written_is_peeked_at() -> None:
    """A write leaves its bytes in the page cache."""
    fs = make_fs()
    assert (CONTENT, 0) == (peek(fs), fs.open(PATH).uncached_bytes(0, len(CONTENT)))


@pytest.mark.parametrize("loses_power", [True, False])
def test_a_read_brings_its_sectors_into_the_page_cache(loses_power: bool) -> None:
    """After a power loss, or when pages were dropped, a peek finds what has been read since."""
    fs = make_fs()
    if loses_power:
        fs = fs.power_loss(Random(1), CrashMode.NOTHING)
    else:
        fs.drop_page_cache()
    file = fs.open(PATH)
    assert b"" == peek(fs)
    assert len(CONTENT) == file.uncached_bytes(0, len(CONTENT))
    assert CONTENT[:10] == file.pread(10, 0)
    assert CONTENT[:SECTOR_BYTES] == peek(fs)
    assert len(CONTENT) - SECTOR_BYTES == file.uncached_bytes(0, len(CONTENT))


def test_what_is_not_synced_stays_in_the_page_cache() -> None:
    """Dirty pages are not dropped."""
    fs = make_fs()
    fs.open(PATH).pwrite((b"new",), SECTOR_BYTES)
    fs.drop_page_cache()
    assert (b"", b"new") == (peek(fs), peek(fs, 3, SECTOR_BYTES))


def test_a_read_past_the_page_cache_brings_nothing_there() -> None:
    """A direct read returns the bytes, and a peek finds none of them."""
    fs = make_fs()
    fs.drop_page_cache()
    room = memoryview(bytearray(DIRECT_BLOCK_BYTES))
    filled = fs.open(PATH).pread_direct(room, 0)
    assert (CONTENT, b"") == (bytes(room[:filled]), peek(fs))
