"""The statements on the one table of state rows, and the checksum that each row carries.

A database page has no checksum of its own, so that a flipped bit in a stored value would be read
back as if it had been written.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

SELECT_KIND: Final = (
    "SELECT entry_key, entry_value, version, checksum FROM state_entry WHERE kind = ?"
)
UPSERT: Final = (
    "INSERT INTO state_entry (kind, entry_key, entry_value, version, checksum) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, entry_key) DO UPDATE SET "
    "entry_value = excluded.entry_value, version = excluded.version, checksum = excluded.checksum"
)
DELETE: Final = "DELETE FROM state_entry WHERE kind = ? AND entry_key = ?"

VERSIONS_PER_SELECT: Final = 400
"""Two parameters each; SQLite before 3.32 took 999 in all."""

_LENGTHS: Final = Struct(">IIq")


def select_versions(places: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """Return a query for the versions of these (kind, key), and its parameters."""
    wanted = ",".join(["(?,?)"] * len(places))
    statement = (
        f"WITH wanted (kind, entry_key) AS (VALUES {wanted}) "  # noqa: S608 - placeholders alone
        "SELECT state_entry.kind, state_entry.entry_key, state_entry.version "
        "FROM wanted CROSS JOIN state_entry "
        "ON state_entry.kind = wanted.kind AND state_entry.entry_key = wanted.entry_key"
    )
    return statement, [part for place in places for part in place]


def row_checksum(kind: str, key: str, value: bytes, version: int) -> int:
    """CRC-32C over a row's parts; their lengths keep neighbours apart."""
    kind_bytes = kind.encode()
    key_bytes = key.encode()
    crc = crc32c(_LENGTHS.pack(len(kind_bytes), len(key_bytes), version))
    crc = crc32c(kind_bytes, crc)
    crc = crc32c(key_bytes, crc)
    return crc32c(value, crc)
