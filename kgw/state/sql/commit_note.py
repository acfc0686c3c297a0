"""Notices that the last commits of a SQLite database are gone.

Damage in the very last commit of a write-ahead log, or a log that was cut or lost, looks to SQLite
like a commit that a power loss has torn: it is dropped without a word, although it was answered.
So commits are counted: in the database, within each commit, and in a note beside it, written when
the commit has returned. The note is synced when it is made and not afterwards, which would double
the price of a commit: it outlives a kill of the process, and a power loss may leave an older one.
It never runs ahead of what was durable, so that a database which lacks commits of the note has lost
answered ones. So a start that finds more commits than the note knows leaves the note as it is: the
last of them may never have been synced.
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
"""The name that a note has until it is durable."""

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
        """Keep the note of the database at `path`, going on from `count`. Raises OSError.

        What is noted already, if that is known, stays until the first commit.
        """
        self._path = f"{path}{NOTE_SUFFIX}"
        if noted is not None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        else:
            self._descriptor = self._make_note(f"{path}{NEW_NOTE_SUFFIX}", self._path, count)
        self._count = count

    def _make_note(self, new_path: str, path: str, count: int) -> int:
        """Return the descriptor of a new note. Raises OSError.

        It gets its name when it is durable: neither a kill nor a power loss leaves one that is
        empty or cut, so that such a note is always damage.
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
        """Commit with the count of it, then note that. Raises sqlite3.Error."""
        if self._descriptor is None or not self.in_transaction:
            super().commit()
            return
        count = self._count + 1
        note = encode_note(count)
        self.execute(_REPLACE_COUNT, (count, _checksum(note)))
        super().commit()
        self._count = count
        # A note that cannot be written is an older one: it proves less, and nothing wrong.
        with suppress(OSError):
            os.pwrite(self._descriptor, note, 0)

    def close(self) -> None:
        """Close; then everything is in the database, and the note goes with the log."""
        super().close()
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and self._path is not None:
            os.close(descriptor)
            remove_if_there(self._path)


def has_count(connection: sqlite3.Connection) -> bool:
    """Whether the schema is one that counts commits."""
    return connection.execute(_SELECT_TABLE).fetchone() is not None


def stored_count(connection: sqlite3.Connection) -> int | None:
    """Return how many commits the database knows of, None when that row is damaged."""
    row = connection.execute(_SELECT_COUNT).fetchone()
    if row is None:
        return 0
    count, checksum = row
    if not isinstance(count, int) or not 0 <= count < 1 << 63:
        return None
    return count if _checksum(encode_note(count)) == checksum else None


def read_note(path: str | PathLike[str]) -> int | None:
    """Return how many commits were noted, None when there is no note.

    Raises ValueError for a damaged one, OSError.
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


def _checksum(note: bytes) -> int:
    return int.from_bytes(note[_CHECKED_BYTES:], "big")


def encode_note(count: int) -> bytes:
    """Return the content of a note."""
    content = _NOTE.pack(_MAGIC, count, 0)[:_CHECKED_BYTES]
    return content + crc32c(content).to_bytes(4, "big")
