"""The SQL statements of the stores for each database, and the checksums of their rows.

Database pages have no checksum. Without the checksums of rows, a value with a flipped bit would not
be noticed.

Statements have `?` as placeholders, which are replaced by those of the database.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.state.base import RowKey
    from kgw.state.history import LagHistoryPoint, SampleFilter

Batch = tuple[str, "Sequence[Sequence[Any]]"]
"""A statement, and the rows of parameters with which it runs."""

VERSIONS_PER_SELECT: Final = 400
"""A row takes two parameters; SQLite before 3.32 allows 999 in all."""

_LENGTHS: Final = Struct(">IIq")
_SAMPLE: Final = Struct(">iqqq?")
_SIGNED: Final = Struct(">q")

_SAMPLE_COLUMNS: Final = (
    "group_hash, sampled_at_ms, series_hash, group_id, topic, topic_partition, "
    "committed_offset, high_watermark, time_lag_ms, checksum"
)
SAMPLE_VALUES: Final = f"lag_sample ({_SAMPLE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Dialect:
    """The statements that differ between databases, and the form of text in their columns.

    Servers store keys as bytes and index them by a hash, so that any text can be a key and no
    collation makes two keys equal.
    """

    select_kinds = "SELECT DISTINCT kind FROM state_entry ORDER BY kind"
    select_kind = "SELECT entry_key, entry_value, version, checksum FROM state_entry WHERE kind = ?"
    upsert_entry: str
    """Writes a row: the columns of `entry_place`, value, version, checksum."""
    delete_entry = "DELETE FROM state_entry WHERE kind = ? AND key_hash = ?"
    upsert_sample: str
    select_sample_time = (
        "SELECT sampled_at_ms FROM lag_sample ORDER BY sampled_at_ms DESC LIMIT 1 OFFSET ?"
    )
    delete_samples = "DELETE FROM lag_sample WHERE sampled_at_ms < ?"
    select_newest_change = "SELECT COALESCE(MAX(version), 1) FROM state_change"
    select_changes = (
        "SELECT version, kind, entry_key, entry_value, checksum FROM state_change "
        "WHERE version >= ? ORDER BY version LIMIT ?"
    )
    insert_change = (
        "INSERT INTO state_change (version, kind, entry_key, entry_value, checksum) "
        "VALUES (?, ?, ?, ?, ?)"
    )
    delete_changes = "DELETE FROM state_change WHERE version <= ?"

    def entry_place(self, kind: str, key: str) -> tuple[Any, ...]:
        """Return the columns that identify a row."""
        return kind, key_hash(key), key.encode()

    def deletions(self, places: Sequence[Sequence[Any]]) -> Sequence[Batch]:
        """Return the statements that delete rows; `places` has columns from `entry_place`."""
        return [(self.delete_entry, [place[:2] for place in places])]

    def text(self, text: str) -> str | bytes:
        """Return the column value for a text of any length with any characters."""
        return text.encode()

    def read_text(self, stored: object) -> str | None:
        """Return the text of a column value, or None if it is damaged and not a text."""
        try:
            return bytes(stored).decode() if isinstance(stored, (bytes, memoryview)) else None
        except UnicodeDecodeError:
            return None

    def select_versions(self, keys: Sequence[RowKey]) -> tuple[str, Sequence[Any]]:
        """Return a query for the kind, key and version of these rows, and its parameters."""
        wanted = ",".join(["(?,?)"] * len(keys))
        statement = (
            "SELECT kind, entry_key, version FROM state_entry "  # noqa: S608 - placeholders alone
            f"WHERE (kind, key_hash) IN ({wanted})"
        )
        return statement, [part for kind, key in keys for part in (kind, key_hash(key))]

    def select_samples(self, wanted: SampleFilter, limit: int) -> tuple[str, Sequence[Any]]:
        """Return a query for the newest chosen samples, newest first, and its parameters."""
        conditions = ["sampled_at_ms >= ?", "sampled_at_ms < ?"]
        parameters: list[Any] = [wanted.since_ms, wanted.until_ms]
        if wanted.group_id is not None:
            conditions += ["group_hash = ?", "group_id = ?"]
            parameters += [_number_of(wanted.group_id), self.text(wanted.group_id)]
        if wanted.topic is not None:
            conditions.append("topic = ?")
            parameters.append(self.text(wanted.topic))
        if wanted.partition is not None:
            conditions.append("topic_partition = ?")
            parameters.append(wanted.partition)
        statement = (
            f"SELECT {_SAMPLE_COLUMNS} FROM lag_sample "  # noqa: S608 - constants alone
            f"WHERE {' AND '.join(conditions)} ORDER BY sampled_at_ms DESC, group_id DESC, "
            "topic DESC, topic_partition DESC LIMIT ?"
        )
        return statement, [*parameters, limit]

    def sample_row(self, sample: LagHistoryPoint) -> tuple[Any, ...]:
        """Return a sample's columns."""
        return (
            _number_of(sample.group_id),
            sample.sampled_at_ms,
            _number_of(f"{sample.group_id}\0{sample.topic}\0{sample.partition}"),
            self.text(sample.group_id),
            self.text(sample.topic),
            sample.partition,
            sample.committed_offset,
            sample.high_watermark,
            sample.time_lag_ms,
            sample_checksum(sample),
        )

    def read_sample(self, row: Sequence[Any]) -> LagHistoryPoint | None:
        """Return the sample in a row, or None if the row is damaged."""
        from kgw.state.history import LagHistoryPoint

        _, sampled_at_ms, _, group_id, topic, *numbers, checksum = row
        sample = LagHistoryPoint(
            sampled_at_ms, self.read_text(group_id) or "", self.read_text(topic) or "", *numbers
        )
        try:
            return sample if sample_checksum(sample) == checksum else None
        except Exception:  # noqa: BLE001 - a flipped bit can change a column's very type
            return None


class SqliteDialect(Dialect):
    """SQLite stores any text unchanged, and its keys have no relevant limit."""

    upsert_entry = (
        "INSERT INTO state_entry (kind, entry_key, entry_value, version, checksum) "
        "VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, entry_key) DO UPDATE SET "
        "entry_value = excluded.entry_value, version = excluded.version, "
        "checksum = excluded.checksum"
    )
    delete_entry = "DELETE FROM state_entry WHERE kind = ? AND entry_key = ?"
    upsert_sample = f"INSERT OR REPLACE INTO {SAMPLE_VALUES}"

    def entry_place(self, kind: str, key: str) -> tuple[Any, ...]:
        return kind, key

    def text(self, text: str) -> str | bytes:
        return text

    def read_text(self, stored: object) -> str | None:
        return stored if isinstance(stored, str) else None

    def select_versions(self, keys: Sequence[RowKey]) -> tuple[str, Sequence[Any]]:
        wanted = ",".join(["(?,?)"] * len(keys))
        statement = (
            f"WITH wanted (kind, entry_key) AS (VALUES {wanted}) "  # noqa: S608 - placeholders
            "SELECT state_entry.kind, state_entry.entry_key, state_entry.version "
            "FROM wanted CROSS JOIN state_entry "
            "ON state_entry.kind = wanted.kind AND state_entry.entry_key = wanted.entry_key"
        )
        return statement, [part for key in keys for part in key]


def key_hash(key: str) -> bytes:
    """Return the hash of a key, for the index.

    PostgreSQL indexes at most 2,704 bytes and InnoDB 3,072, but the id of a group has no limit.
    Clients choose it, so that it must be hard to find two ids with the same hash.
    """
    from hashlib import sha256

    return sha256(key.encode()).digest()


def row_checksum(kind: str, key: str, value: bytes, version: int) -> int:
    """Return the CRC-32C of a row's parts and their lengths, which separate neighbouring parts."""
    kind_bytes = kind.encode()
    key_bytes = key.encode()
    lengths = _LENGTHS.pack(len(kind_bytes), len(key_bytes), version)
    return crc32c(value, crc32c(lengths + kind_bytes + key_bytes))


def change_checksum(version: int, kind: str, key: str, value: bytes | None) -> int:
    """Return the CRC-32C of a watched change. It differs for a deletion and an empty value."""
    return row_checksum(kind, key, value or b"", version if value is not None else -version)


def sample_checksum(sample: LagHistoryPoint) -> int:
    """Return the CRC-32C of all fields of a sample."""
    numbers = _SAMPLE.pack(
        sample.partition,
        sample.committed_offset,
        sample.high_watermark,
        sample.time_lag_ms or 0,
        sample.time_lag_ms is None,
    )
    return row_checksum(sample.group_id, sample.topic, numbers, sample.sampled_at_ms)


def _number_of(text: str) -> int:
    """Return a 64-bit hash of a text for an index. Queries also compare the text itself."""
    from hashlib import blake2b

    return int(_SIGNED.unpack(blake2b(text.encode(), digest_size=8).digest())[0])
