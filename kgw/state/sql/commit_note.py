"""Detects that the last commits of a SQLite database are lost.

If the last commit in a write-ahead log is damaged, or the log was cut or lost, SQLite silently
drops the commit, although it was acknowledged, as if a power loss had torn it. Therefore commits
are counted twice: in the database, within each commit, and in a file beside it, which is written
after the commit has returned. This file, `NOTE_SUFFIX`, is synced when it is made and not
afterwards, as that would double the cost of a commit. It survives when the process is killed; after
a power loss it may have an older count.

Its count is never above the number of durable commits: a database with a lower count has lost
acknowledged commits. If the database has a higher count at a start, the file is not changed, as the
last of these commits may not be synced.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final

from kgw.records.crc import crc32c
from kgw.state.sql.small_files import read_if_there, remove_if_there
from kgw.system import sync_data

if TYPE_CHECKING:
    from os import PathLike

NOTE_SUFFIX: Final = "-commits"
NEW_NOTE_SUFFIX: Final = f"{NOTE_SUFFIX}.new"
"""The suffix of the file until it is durable."""

_NOTE: Final = Struct(">8sQI")
_MAGIC: Final = b"kgwState"
_CHECKED_BYTES: Final = 16
_SELECT_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE name = 'commit_count'"
_SELECT_COUNT: Final = "SELECT commits, checksum FROM commit_count WHERE id = 1"
_REPLACE_COUNT: Final = "INSERT OR REPLACE INTO commit_count VALUES (1, ?, ?)"


class CountedConnection(sqlite3.Connection):
    """A connection whose commits are counted, from `count_commits` on."""

    _count = 0
    _path: str | None = None
    _descriptor: int | None = None

    def count_commits(self, path: str, count: int, noted: int | None) -> None:
        """Count the commits of the database at `path`, from `count` on. Raises OSError.

        `noted` is the count in the file, which is kept until the first commit; None makes a new
        file.
        """
        self._path = f"{path}{NOTE_SUFFIX}"
        if noted is not None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        else:
            self._descriptor = self._make_note(f"{path}{NEW_NOTE_SUFFIX}", self._path, count)
        self._count = count

    def _make_note(self, new_path: str, path: str, count: int) -> int:
        """Make a new file with the count, and return its descriptor. Raises OSError.

        The file is renamed when it is durable. So a kill or power loss leaves no empty or cut file
        at `path`, and such a file is damaged.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(new_path, flags, 0o600)
        try:
            os.pwrite(descriptor, encode_note(count), 0)
            sync_data(descriptor)
            os.rename(new_path, path)  # noqa: PTH104 - as in small_files
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def commit(self) -> None:
        """Commit with the new count, then write the count to the file. Raises sqlite3.Error."""
        if self._descriptor is None or not self.in_transaction:
            super().commit()
            return
        count = self._count + 1
        checksum = _checksum(count)
        self.execute(_REPLACE_COUNT, (count, checksum))
        super().commit()
        self._count = count
        # If this fails, the file keeps an older count, which may detect less but is not wrong.
        with suppress(OSError):
            os.pwrite(self._descriptor, _NOTE.pack(_MAGIC, count, checksum), 0)

    def close(self) -> None:
        """Close, which moves the write-ahead log into the database; then remove the file."""
        super().close()
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and self._path is not None:
            os.close(descriptor)
            remove_if_there(self._path)


def has_count(connection: sqlite3.Connection) -> bool:
    """Return whether the schema has the table that counts commits."""
    return connection.execute(_SELECT_TABLE).fetchone() is not None


def stored_count(connection: sqlite3.Connection) -> int | None:
    """Return the count of commits in the database, or None if its row is damaged."""
    row = connection.execute(_SELECT_COUNT).fetchone()
    if row is None:
        return 0
    count, checksum = row
    if not isinstance(count, int) or not 0 <= count < 1 << 63:
        return None
    return count if _checksum(count) == checksum else None


def read_note(path: str | PathLike[str]) -> int | None:
    """Return the count of commits in a file, or None if there is no file.

    Raises ValueError for a damaged file, OSError.
    """
    content = read_if_there(path)
    if content is None:
        return None
    if len(content) != _NOTE.size:
        raise ValueError(f"it has {len(content)} bytes, not {_NOTE.size}")
    magic, count, checksum = _NOTE.unpack(content)
    if magic != _MAGIC or checksum != crc32c(content[:_CHECKED_BYTES]):
        raise ValueError("its checksum does not match")
    return int(count)


def _checksum(count: int) -> int:
    return crc32c(_NOTE.pack(_MAGIC, count, 0)[:_CHECKED_BYTES])


def encode_note(count: int) -> bytes:
    """Return the content of a file with this count."""
    return _NOTE.pack(_MAGIC, count, _checksum(count))
