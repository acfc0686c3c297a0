"""The schema's history: numbered steps, each applied once and recorded in `schema_migration`.

SQLite and PostgreSQL apply and record a step in one transaction. MySQL commits each change of the
schema separately: after a crash a step may be incomplete and not recorded, and its statements run
again, which must be harmless.

A step that was released is never edited; the next step corrects its mistakes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Migration(NamedTuple):
    """One step from a schema to the next."""

    number: int
    name: str
    sqlite: tuple[str, ...]
    postgresql: tuple[str, ...] = ()
    mysql: tuple[str, ...] = ()


CREATE_MIGRATIONS_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS schema_migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"
)
SELECT_MIGRATIONS: Final = "SELECT number, name FROM schema_migration ORDER BY number"
INSERT_MIGRATION: Final = "INSERT INTO schema_migration (number, name) VALUES (?, ?)"

MIGRATIONS: Final[tuple[Migration, ...]] = (
    Migration(
        1,
        "state-entries",
        sqlite=(
            # Rows are found by kind, or by kind and key, and never otherwise: the primary key is
            # the table.
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
        postgresql=(
            # In PostgreSQL a text cannot contain a zero byte, but a key can.
            """
            CREATE TABLE state_entry (
                kind TEXT COLLATE "C" NOT NULL,
                key_hash BYTEA NOT NULL,
                entry_key BYTEA NOT NULL,
                entry_value BYTEA NOT NULL,
                version BIGINT NOT NULL,
                checksum BIGINT NOT NULL,
                PRIMARY KEY (kind, key_hash)
            )
            """,
            """
            CREATE TABLE state_owner (
                id INTEGER PRIMARY KEY,
                generation BIGINT NOT NULL,
                commits BIGINT NOT NULL
            )
            """,
            "INSERT INTO state_owner (id, generation, commits) VALUES (1, 0, 0)",
        ),
        mysql=(
            """
            CREATE TABLE IF NOT EXISTS state_entry (
                kind VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
                key_hash BINARY(32) NOT NULL,
                entry_key LONGBLOB NOT NULL,
                entry_value LONGBLOB NOT NULL,
                version BIGINT NOT NULL,
                checksum BIGINT NOT NULL,
                PRIMARY KEY (kind, key_hash)
            ) ENGINE = InnoDB
            """,
            """
            CREATE TABLE IF NOT EXISTS state_owner (
                id INTEGER PRIMARY KEY,
                generation BIGINT NOT NULL,
                commits BIGINT NOT NULL
            ) ENGINE = InnoDB
            """,
            "INSERT IGNORE INTO state_owner (id, generation, commits) VALUES (1, 0, 0)",
        ),
    ),
    Migration(
        2,
        "lag-samples",
        # An index by group and time for a group's chart, and one by time to remove the oldest
        # samples.
        sqlite=(
            """
            CREATE TABLE lag_sample (
                group_hash INTEGER NOT NULL,
                sampled_at_ms INTEGER NOT NULL,
                series_hash INTEGER NOT NULL,
                group_id TEXT NOT NULL,
                topic TEXT NOT NULL,
                topic_partition INTEGER NOT NULL,
                committed_offset INTEGER NOT NULL,
                high_watermark INTEGER NOT NULL,
                time_lag_ms INTEGER,
                checksum INTEGER NOT NULL,
                PRIMARY KEY (group_hash, sampled_at_ms, series_hash)
            ) WITHOUT ROWID
            """,
            "CREATE INDEX lag_sample_time ON lag_sample (sampled_at_ms)",
        ),
        postgresql=(
            """
            CREATE TABLE lag_sample (
                group_hash BIGINT NOT NULL,
                sampled_at_ms BIGINT NOT NULL,
                series_hash BIGINT NOT NULL,
                group_id BYTEA NOT NULL,
                topic BYTEA NOT NULL,
                topic_partition INTEGER NOT NULL,
                committed_offset BIGINT NOT NULL,
                high_watermark BIGINT NOT NULL,
                time_lag_ms BIGINT,
                checksum BIGINT NOT NULL,
                PRIMARY KEY (group_hash, sampled_at_ms, series_hash)
            )
            """,
            "CREATE INDEX lag_sample_time ON lag_sample (sampled_at_ms)",
        ),
        mysql=(
            """
            CREATE TABLE IF NOT EXISTS lag_sample (
                group_hash BIGINT NOT NULL,
                sampled_at_ms BIGINT NOT NULL,
                series_hash BIGINT NOT NULL,
                group_id MEDIUMBLOB NOT NULL,
                topic MEDIUMBLOB NOT NULL,
                topic_partition INTEGER NOT NULL,
                committed_offset BIGINT NOT NULL,
                high_watermark BIGINT NOT NULL,
                time_lag_ms BIGINT,
                checksum BIGINT NOT NULL,
                PRIMARY KEY (group_hash, sampled_at_ms, series_hash),
                KEY lag_sample_time (sampled_at_ms)
            ) ENGINE = InnoDB
            """,
        ),
    ),
    # For SQLite only: on a server, `state_owner` counts the commits. See `commit_note`.
    Migration(
        3,
        "commit-count",
        sqlite=(
            """
            CREATE TABLE commit_count (
                id INTEGER PRIMARY KEY,
                commits INTEGER NOT NULL,
                checksum INTEGER NOT NULL
            )
            """,
        ),
    ),
    # Changes no table, but keeps older programs out: they do not know the rows of kind
    # `group-offset-block` and would give groups older committed offsets.
    Migration(4, "offset-blocks", sqlite=()),
    # For `StateStore.changes_since`. The first row represents all changes before this step.
    Migration(
        5,
        "watched-changes",
        sqlite=(
            """
            CREATE TABLE state_change (
                version INTEGER PRIMARY KEY,
                kind TEXT NOT NULL,
                entry_key TEXT NOT NULL,
                entry_value BLOB,
                checksum INTEGER NOT NULL
            )
            """,
            "INSERT INTO state_change (version, kind, entry_key, checksum) VALUES (1, '', '', 0)",
        ),
        postgresql=(
            """
            CREATE TABLE state_change (
                version BIGINT PRIMARY KEY,
                kind TEXT COLLATE "C" NOT NULL,
                entry_key BYTEA NOT NULL,
                entry_value BYTEA,
                checksum BIGINT NOT NULL
            )
            """,
            "INSERT INTO state_change (version, kind, entry_key, checksum) VALUES (1, '', '', 0)",
        ),
        mysql=(
            """
            CREATE TABLE IF NOT EXISTS state_change (
                version BIGINT PRIMARY KEY,
                kind VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
                entry_key LONGBLOB NOT NULL,
                entry_value LONGBLOB,
                checksum BIGINT NOT NULL
            ) ENGINE = InnoDB
            """,
            """
            INSERT IGNORE INTO state_change (version, kind, entry_key, checksum)
            VALUES (1, '', '', 0)
            """,
        ),
    ),
    # Changes no table, but keeps older programs out: they do not know the rows of kind
    # `group-pending-offsets`, whose offsets would replace newer ones later.
    Migration(6, "pending-offsets", sqlite=()),
)


def pending_migrations(
    applied: Iterable[Sequence[Any]], known: tuple[Migration, ...], name: str
) -> tuple[Migration, ...]:
    """Return the `known` steps that follow the `applied` ones, which are (number, name).

    `name` is the database's name in messages. Raises DataDirectoryError if a newer program wrote
    the database, or if its steps differ from this program's.
    """
    taken = [(number, step_name) for number, step_name in applied]
    if taken and taken[-1][0] > known[-1].number:
        raise DataDirectoryError(
            f"{name} is of a newer kgw: its schema is number {taken[-1][0]} ({taken[-1][1]!r}), "
            f"this program knows up to {known[-1].number}; use that version or a backup"
        )
    for (number, step_name), migration in zip(taken, known, strict=False):
        if (number, step_name) != (migration.number, migration.name):
            raise DataDirectoryError(
                f"{name} is of another kgw: it went through step {number} {step_name!r} where "
                f"this program has {migration.number} {migration.name!r}"
            )
    return known[len(taken) :]
