"""What the file operations do with the calls that they make."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kgw.backend.embedded.files.fs import DIRECT_BLOCK_BYTES
from kgw.backend.embedded.files.read_buffers import ReadBuffers
from kgw.backend.embedded.files.real_fs import RealFs
from tests.simulated_fs import SimulatedFile, SimulatedFs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from kgw.types import Buffer


def test_as_many_buffers_as_a_call_takes_are_written_with_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of more than IOV_MAX buffers each call takes IOV_MAX, in their order, until none is left."""
    fs = SimulatedFs()
    file = fs.open("/file", create=True)
    taken: list[int] = []
    write_once = SimulatedFile.write_once

    def note(file: SimulatedFile, buffers: Sequence[Buffer], position: int) -> int:
        taken.append(len(buffers))
        return write_once(file, buffers, position)

    monkeypatch.setattr(SimulatedFile, "write_once", note)
    buffers = [b"%04d" % number for number in range(2 * 1024 + 3)]
    file.pwrite(buffers, 5)
    assert [1024, 1024, 3] == taken
    assert bytes(5) + b"".join(buffers) == fs.content("/file")


def test_a_read_past_the_page_cache_brings_nothing_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte comes through the descriptor that was opened for direct reads."""
    file = RealFs().open(str(tmp_path / "file"), create=True)
    data = os.urandom(3 * DIRECT_BLOCK_BYTES)
    plain_open, plain_preadv = os.open, os.preadv
    flags: list[int] = []
    cached_bytes = 0

    def note_open(path: str, flag: int) -> int:
        flags.append(flag & os.O_DIRECT)
        # Not every file system can do it.
        return plain_open(path, flag & ~os.O_DIRECT)

    def note_read(descriptor: int, buffers: tuple[memoryview], position: int) -> int:
        nonlocal cached_bytes
        read_bytes = plain_preadv(descriptor, buffers, position)
        if descriptor == file.fileno():
            cached_bytes += read_bytes
        return read_bytes

    try:
        file.pwrite((data,), 0)
        monkeypatch.setattr(os, "open", note_open)
        monkeypatch.setattr(os, "preadv", note_read)
        room = ReadBuffers(1).take_pages(len(data))
        assert len(data) == file.pread_direct(room, 0)
        assert data == bytes(room)
    finally:
        monkeypatch.undo()
        file.close()
    assert ([os.O_DIRECT], 0) == (flags, cached_bytes)
