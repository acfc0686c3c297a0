from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kgw.errors import DataDirectoryError
from kgw.state.base import Change, Row
from kgw.state.sql.commit_note import NOTE_SUFFIX, encode_note, read_note
from kgw.state.sql.sqlite import SqliteStateStore
from tests.state.support import beside, opened

FRAME_BYTES = 24 + 4096
FRAMES_A_COMMIT = 2
SUFFIXES = ("", "-wal", NOTE_SUFFIX)


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """Return a database as a kill leaves it after three commits of one row."""
    path = tmp_path / "meta.sqlite"
    copied = tmp_path / "killed" / "meta.sqlite"
    copied.parent.mkdir()
    async with opened(SqliteStateStore(path)) as store:
        for number in range(3):
            await store.apply([Change("topic", "a", b"%d" % number)])
        for suffix in SUFFIXES:
            shutil.copy(beside(path, suffix), beside(copied, suffix))
    return copied


async def load(path: Path) -> tuple[dict[str, Row], tuple[str, ...]]:
    """Return the rows of a database, and what was found wrong with it."""
    async with opened(SqliteStateStore(path, quick_check=True)) as store:
        return await store.load("topic"), store.problems


def noted(path: Path) -> int | None:
    """Return the count in a database's note."""
    return read_note(beside(path, NOTE_SUFFIX))


def contents(directory: Path) -> dict[str, bytes]:
    """Return what lies beside a database."""
    return {entry.name: entry.read_bytes() for entry in directory.iterdir() if "-" in entry.name}


def flip(path: Path, position: int) -> None:
    """Flip a bit of a file; a position below zero counts from its end."""
    content = bytearray(path.read_bytes())
    content[position] ^= 16
    path.write_bytes(content)


class Images:
    """Copies of a database's directory, as a crash after each call for a small file leaves it."""

    def __init__(self, database: Path, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.killed: list[Path] = []
        self.without_power: list[Path] = []
        """What has never been synced since it was written is empty: names may outlive content."""
        self._database = database
        self._into = into
        self._unsynced: set[int] = set()
        for name in ("open", "ftruncate", "pwrite", "write", "fsync", "fdatasync", "rename"):
            monkeypatch.setattr(os, name, self._watched(name))

    def _watched(self, name: str) -> Any:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            result = real(*arguments, **named)
            if name in {"ftruncate", "pwrite", "write"}:
                self._unsynced.add(os.fstat(arguments[0]).st_ino)
            elif name in {"fsync", "fdatasync"}:
                self._unsynced.discard(os.fstat(arguments[0]).st_ino)
            elif name == "open" and arguments[1] & os.O_CREAT and os.fstat(result).st_size == 0:
                self._unsynced.add(os.fstat(result).st_ino)
            self._take()
            return result

        return call

    def _take(self) -> None:
        number = len(self.killed)
        killed, without_power = self._into / f"killed-{number}", self._into / f"power-{number}"
        for directory in (killed, without_power):
            directory.mkdir(parents=True)
        for file in self._database.parent.glob(f"{self._database.name}*"):
            content = file.read_bytes()
            (killed / file.name).write_bytes(content)
            if file.stat().st_ino in self._unsynced:
                content = b""
            (without_power / file.name).write_bytes(content)
        self.killed.append(killed / self._database.name)
        self.without_power.append(without_power / self._database.name)


@pytest.mark.parametrize("before", ["new", "stopped", "killed"])
async def test_a_start_that_ends_anywhere_leaves_no_note_that_is_reported(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Neither a kill nor a power loss finds a note in the making, which damage looks like."""
    expected = {"a": Row(b"2", 3)}
    if before == "new":
        killed, expected = tmp_path / "new" / "meta.sqlite", {}
        killed.parent.mkdir()
    elif before == "stopped":
        await load(killed)
    store = SqliteStateStore(killed, quick_check=True)
    with monkeypatch.context() as watching:
        images = Images(killed, tmp_path / "images", watching)
        await store.open()
    await store.aclose()

    assert await asyncio.to_thread(noted, images.killed[-1]) == (0 if before == "new" else 3)
    assert await asyncio.to_thread(noted, images.without_power[-1]) is not None
    for image in (*images.killed, *images.without_power):
        assert (expected, ()) == await load(image), image


async def test_every_commit_is_noted(killed: Path) -> None:
    """A kill leaves the number of commits that were answered, and nothing is missed."""
    assert await asyncio.to_thread(noted, killed) == 3
    assert ({"a": Row(b"2", 3)}, ()) == await load(killed)


@pytest.mark.parametrize("position", [-1, -FRAME_BYTES + 1, -1_000])
async def test_damage_in_the_last_commit_is_noticed(killed: Path, position: int) -> None:
    """SQLite takes it for a torn commit; the note knows that it was answered."""
    flip(beside(killed, "-wal"), position)
    before = contents(killed.parent)

    with pytest.raises(DataDirectoryError, match="lacks the last 1 commits that were answered"):
        await load(killed)

    assert before == contents(killed.parent)


@pytest.mark.parametrize("kept_share", [0, 0.5, 0.9])
async def test_a_log_that_was_cut_or_lost_is_noticed(killed: Path, kept_share: float) -> None:
    """However many of the last commits are gone."""
    log = beside(killed, "-wal")
    content = log.read_bytes()
    log.write_bytes(content[: int(len(content) * kept_share)])

    with pytest.raises(DataDirectoryError, match="that were answered"):
        await load(killed)


async def test_without_the_note_the_database_is_taken_as_it_is(killed: Path) -> None:
    """Moving it away is how an operator goes on without the lost commits."""
    flip(beside(killed, "-wal"), -1)
    beside(killed, NOTE_SUFFIX).unlink()

    assert ({"a": Row(b"1", 2)}, ()) == await load(killed)


async def test_an_older_note_proves_less(killed: Path) -> None:
    """A power loss may leave one: a database that is ahead of it is whole."""
    beside(killed, NOTE_SUFFIX).write_bytes(encode_note(1))

    assert ({"a": Row(b"2", 3)}, ()) == await load(killed)


async def test_a_commit_that_was_never_synced_is_not_missed(killed: Path) -> None:
    """A process was killed before it had synced its last commit, and the power went later.

    The start in between has read that commit, and must not have noted it.
    """
    beside(killed, NOTE_SUFFIX).write_bytes(encode_note(2))
    between = killed.parent.with_name("between") / killed.name
    shutil.copytree(killed.parent, between.parent)
    async with opened(SqliteStateStore(between, quick_check=True)) as store:
        assert {"a": Row(b"2", 3)} == await store.load("topic")
        shutil.copy(beside(between, NOTE_SUFFIX), beside(killed, NOTE_SUFFIX))
    log = beside(killed, "-wal")
    log.write_bytes(log.read_bytes()[: -FRAMES_A_COMMIT * FRAME_BYTES])

    assert ({"a": Row(b"1", 2)}, ()) == await load(killed)


async def test_what_a_start_reads_from_the_log_is_synced(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is served from then on: a power loss must not take it back."""
    synced: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    await load(killed)
    assert f"{killed.name}-wal" in synced


@pytest.mark.parametrize("position", [0, 9, -1])
async def test_a_damaged_note_is_reported(killed: Path, position: int) -> None:
    """It is no reason to refuse, and is made anew."""
    flip(beside(killed, NOTE_SUFFIX), position)

    rows, problems = await load(killed)

    assert {"a": Row(b"2", 3)} == rows
    assert ["cannot be told" in problem for problem in problems] == [True]
    assert (await load(killed))[1] == ()


@pytest.mark.parametrize("kept", [b"", b"kgw"])
async def test_a_cut_note_is_reported(killed: Path, kept: bytes) -> None:
    """Shorter than it must be, it says nothing; empty, it has lost what it said."""
    beside(killed, NOTE_SUFFIX).write_bytes(kept)

    assert f"has {len(kept)} bytes" in (await load(killed))[1][0]


async def test_counting_goes_on_after_a_kill(killed: Path) -> None:
    """The next life's commits are missed as well when they are gone."""
    async with opened(SqliteStateStore(killed, quick_check=True)) as store:
        await store.apply([Change("topic", "a", b"later")])
        note = beside(killed, NOTE_SUFFIX).read_bytes()

    assert encode_note(4) == note
    assert not beside(killed, NOTE_SUFFIX).exists()
