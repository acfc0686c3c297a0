"""Finds rows of a SQLite database with a flipped bit in the kind or key, and repairs them.

Rows are looked up by kind and key. A row with a changed kind or key is not found, as if it had not
been written: a group without its committed offset would begin elsewhere. The checksum shows which
bit was flipped, as each bit of a row changes the CRC-32C differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.state.sql import schema

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

# Damage may have changed a column's type, or made its bytes invalid UTF-8.
_SELECT: Final = (
    "SELECT CAST(kind AS BLOB), CAST(entry_key AS BLOB), entry_value, version, checksum, "
    "typeof(kind) = 'text' AND typeof(entry_key) = 'text' FROM state_entry"
)
_DELETE: Final = (
    "DELETE FROM state_entry WHERE CAST(kind AS BLOB) = ? AND CAST(entry_key AS BLOB) = ?"
)
_INSERT: Final = (
    "INSERT OR IGNORE INTO state_entry (kind, entry_key, entry_value, version, checksum) "
    "VALUES (?, ?, ?, ?, ?)"
)


class MisplacedRow(NamedTuple):
    """A row with a damaged kind or key, and the right kind and key."""

    stored_kind: bytes
    stored_key: bytes
    kind: str
    key: str
    value: bytes
    version: int
    checksum: int

    def __str__(self) -> str:
        return (
            f"the {self.kind} row {self.key!r} was found as {self.stored_kind + self.stored_key!r}"
        )


def find_misplaced(connection: sqlite3.Connection) -> list[MisplacedRow]:
    """Return every row with a flipped bit in its kind or key. Raises sqlite3.Error."""
    found = []
    for kind, key, value, version, checksum, has_texts in connection.execute(_SELECT):
        place = _place(kind, key, value, version, checksum)
        if place is not None and not (has_texts and place == (kind, key)):
            texts = place[0].decode(), place[1].decode()
            found.append(MisplacedRow(kind, key, *texts, value, version, checksum))
    return found


def put_back(connection: sqlite3.Connection, rows: list[MisplacedRow]) -> None:
    """Store rows under the right kind and key, unless there is a newer row. Raises sqlite3.Error.

    The caller begins and ends the transaction.
    """
    for row in rows:
        connection.execute(_DELETE, (row.stored_kind, row.stored_key))
        connection.execute(_INSERT, row[2:])


def _place(
    kind: bytes, key: bytes, value: Any, version: Any, checksum: object
) -> tuple[bytes, bytes] | None:
    """Return the kind and key that match the row's checksum; None if there are none."""
    if not (isinstance(value, bytes) and isinstance(version, int)) or not -(1 << 63) <= version < (
        1 << 63
    ):
        return None
    for place in _candidates(kind, key):
        try:
            texts = place[0].decode(), place[1].decode()
        except UnicodeDecodeError:
            continue
        if schema.row_checksum(*texts, value, version) == checksum:
            return place
    return None


def _candidates(kind: bytes, key: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and key unchanged, which is nearly always right, then with each bit flipped."""
    yield kind, key
    whole = bytearray(kind + key)
    for position in range(len(whole)):
        for bit in range(8):
            whole[position] ^= 1 << bit
            yield bytes(whole[: len(kind)]), bytes(whole[len(kind) :])
            whole[position] ^= 1 << bit
