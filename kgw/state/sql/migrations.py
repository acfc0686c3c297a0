"""The schema's history: numbered steps, each applied once, in a transaction of its own.

A step that was released is never edited; what is wrong with it becomes the next one.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Migration(NamedTuple):
    """One step from a schema to the next."""

    number: int
    name: str
    statements: tuple[str, ...]


CREATE_MIGRATIONS_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS schema_migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"
)
SELECT_MIGRATIONS: Final = "SELECT number, name FROM schema_migration ORDER BY number"
INSERT_MIGRATION: Final = "INSERT INTO schema_migration (number, name) VALUES (?, ?)"

MIGRATIONS: Final[tuple[Migration, ...]] = (
    Migration(
        1,
        "state-entries",
        (
            # Rows are looked up by kind, or by kind and key, and never by anything else: the
            # primary key is the table.
            """
            CREATE TABLE state_entry (
                kind TEXT NOT NULL,
                entry_key TEXT NOT NULL,
                entry_value BLOB NOT NULL,
                version INTEGER NOT NULL,
                checksum INTEGER NOT NULL,
                PRIMARY KEY (kind, entry_key)
            ) WITHOUT ROWID
            """,
        ),
    ),
)


class NewerSchemaError(Exception):
    """The database was written by a newer program than this one."""


class UnknownSchemaError(Exception):
    """The database's steps are not a beginning of this program's."""


def pending_migrations(
    applied: list[tuple[int, str]], known: tuple[Migration, ...] = MIGRATIONS
) -> tuple[Migration, ...]:
    """Return the steps that are still to be taken.

    Raises NewerSchemaError, UnknownSchemaError.
    """
    newest = known[-1].number if known else 0
    if applied and applied[-1][0] > newest:
        raise NewerSchemaError(
            f"its schema is number {applied[-1][0]} ({applied[-1][1]!r}), "
            f"this program knows up to {newest}"
        )
    for (number, name), migration in zip(applied, known, strict=False):
        if (number, name) != (migration.number, migration.name):
            raise UnknownSchemaError(
                f"it went through step {number} {name!r} where this program has "
                f"{migration.number} {migration.name!r}"
            )
    return known[len(applied) :]
