from __future__ import annotations

import sqlite3
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from kgw.state.sql.write_ahead_log import find_damage

FRAME_BYTES = 24 + 4096
COMMITS = 8


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the write-ahead log of a database that was killed after eight commits."""
    path = tmp_path_factory.mktemp("wal") / "state.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE rows (value BLOB)")
    for number in range(COMMITS - 1):
        connection.execute("INSERT INTO rows VALUES (?)", (b"%d" % number * 1_500,))
    content = Path(f"{path}-wal").read_bytes()
    connection.close()
    return content


def _find(tmp_path: Path, content: bytes) -> str | None:
    path = tmp_path / "state.sqlite-wal"
    path.write_bytes(content)
    return find_damage(path)


def _last_commit(log: bytes) -> int:
    """Return where the frames of the last commit begin."""
    commits = [
        place
        for place in range(32, len(log), FRAME_BYTES)
        if log[place + 4 : place + 8] != bytes(4)
    ]
    return commits[-2] + FRAME_BYTES


def test_a_log_as_it_was_left_is_whole(tmp_path: Path, log: bytes) -> None:
    """A kill between commits leaves nothing to complain about, nor do missing and empty files."""
    assert _find(tmp_path, log) is None
    assert _find(tmp_path, b"") is None
    assert _find(tmp_path, bytes(len(log))) is None
    assert find_damage(tmp_path / "missing-wal") is None


def test_a_log_that_is_cut_is_whole(tmp_path: Path, log: bytes) -> None:
    """What a crash leaves of an unfinished commit is no damage."""
    for size in range(32, len(log), 1_013):
        assert _find(tmp_path, log[:size]) is None, size


def test_a_torn_last_commit_is_no_damage(tmp_path: Path, log: bytes) -> None:
    """Any sectors of the last commit may be missing."""
    random = Random(5)
    start = _last_commit(log)
    for _ in range(50):
        torn = bytearray(log)
        for sector in range(start // 512 + 1, len(log) // 512):
            if random.random() < 0.5:
                torn[sector * 512 : sector * 512 + 512] = bytes(512)
        assert _find(tmp_path, bytes(torn)) is None


def test_a_flipped_bit_before_the_last_commit_is_found(tmp_path: Path, log: bytes) -> None:
    """SQLite would drop every commit behind it without a word."""
    random = Random(6)
    for _ in range(200):
        rotten = bytearray(log)
        rotten[random.randrange(_last_commit(log))] ^= 1 << random.randrange(8)
        assert _find(tmp_path, bytes(rotten)) is not None


@pytest.mark.slow
def test_a_flipped_bit_in_the_header_before_the_last_commit_is_found(
    tmp_path: Path, log: bytes
) -> None:
    """Size, salts and checksum of a frame stand for nothing but are what a reader goes by."""
    commits = [
        place
        for place in range(32, len(log), FRAME_BYTES)
        if log[place + 4 : place + 8] != bytes(4)
    ]
    for place, following in pairwise(commits):
        rotten = bytearray(log[: following + FRAME_BYTES])
        for bit in range(24 * 8):
            rotten[place + bit // 8] ^= 1 << bit % 8
            assert _find(tmp_path, bytes(rotten)) is not None, (place, bit)
            rotten[place + bit // 8] ^= 1 << bit % 8


def test_frames_of_an_earlier_round_are_no_damage(tmp_path: Path) -> None:
    """After a checkpoint the log is written over from its beginning; old frames stay behind."""
    path = tmp_path / "state.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE rows (value BLOB)")
    for number in range(6):
        connection.execute("INSERT INTO rows VALUES (?)", (b"%d" % number * 1_500,))
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    connection.execute("INSERT INTO rows VALUES (?)", (b"again",))
    assert find_damage(Path(f"{path}-wal")) is None
    connection.close()
