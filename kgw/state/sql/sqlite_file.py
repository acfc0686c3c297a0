"""Opens the SQLite file of the state store, if it is undamaged, kgw's, and of this schema."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from kgw.config.paths import absolute_path
from kgw.errors import DataDirectoryError, DiskFullError, StorageError
from kgw.state.base import DamagedStateError
from kgw.state.sql.commit_note import (
    NEW_NOTE_SUFFIX,
    NOTE_SUFFIX,
    CountedConnection,
    has_count,
    read_note,
    stored_count,
)
from kgw.state.sql.migrations import (
    CREATE_MIGRATIONS_TABLE,
    INSERT_MIGRATION,
    SELECT_MIGRATIONS,
    pending_migrations,
)
from kgw.state.sql.small_files import exists, read_if_there, remove_if_there
from kgw.state.sql.write_ahead_log import find_damage
from kgw.system import sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from kgw.state.sql.migrations import Migration

APPLICATION_ID: Final = 0x6B677731
"""Marks the file as kgw's ("kgw1"): for the command `file`, and to refuse other programs' files."""

WRITE_AHEAD_LOG_BYTES: Final = 16 << 20
"""SQLite truncates the write-ahead log to this size after a large transaction."""

_PRAGMAS: Final = (
    "locking_mode = EXCLUSIVE",
    "synchronous = FULL",
    # On macOS, where fsync alone leaves bytes in the memory of the disk.
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "mmap_size = 0",
    "temp_store = MEMORY",
)

_SELECT_SCHEMA: Final = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"

_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_IN_USE = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def open_database(
    place: str | PathLike[str],
    migrations: tuple[Migration, ...],
    *,
    quick_check: bool,
    report: Callable[[str], None],
) -> sqlite3.Connection:
    """Return a connection to kgw's database, checked and migrated to this program's schema.

    Blocks. Another thread may use the connection. `quick_check` checks the whole file. `report` is
    called with damage that does not prevent opening. Raises DataDirectoryError, also for a damaged
    file, which is not replaced by an empty database, as some of its rows may be recoverable.
    """
    path = os.fspath(place)
    try:
        if not exists(path):
            _create_database(path, migrations)
        elif os.lstat(path).st_size == 0:
            raise DataDirectoryError(
                f"state database {path} is empty, though never left so: restore it or, "
                "to begin without it, move it away"
            )
        if quick_check:
            _check_write_ahead_log(path)
        log = read_if_there(f"{path}-wal")
        connection = _connect(path)
        try:
            _check_identity(connection, path)
            _use_write_ahead_log(connection, path)
            if quick_check:
                _check_structure(connection, path)
            _migrate(connection, path, migrations)
            if quick_check:
                _check_schema(connection, path, migrations)
                _mend_rows(connection, path, report)
            _count_commits(connection, path, report)
        except BaseException:
            connection.close()
            if log and not exists(f"{path}-wal"):
                # Closing has moved the log into the database and removed it, with the evidence of
                # the damage: so write it again.
                _write_new(f"{path}-wal", log)
            raise
    except sqlite3.Error as error:
        raise _opening_error(error, path) from error
    except OSError as error:
        raise DataDirectoryError(f"state database {path} cannot be opened: {error}") from error
    except (UnicodeDecodeError, TypeError) as error:
        # The sqlite3 module raises these if a name or a type in the schema is damaged.
        raise DataDirectoryError(
            f"state database {path} is damaged ({error}); it was left as it is"
        ) from error
    return connection


def _connect(path: str) -> CountedConnection:
    # Without a mode, SQLite would create a missing file, or the target of a broken link.
    connection = sqlite3.connect(
        _uri(path),
        uri=True,
        timeout=0,
        isolation_level="IMMEDIATE",
        check_same_thread=False,
        factory=CountedConnection,
    )
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        # Some pragmas read the file, which may be damaged. An open connection would keep its lock.
        connection.close()
        raise
    return connection


def _uri(path: str) -> str:
    """Return a SQLite URI that opens an existing file and does not create one."""
    name = absolute_path(path)
    for special in "%?#":
        name = name.replace(special, f"%{ord(special):02x}")
    return f"file://{name}?mode=rw"


def _create_database(path: str, migrations: tuple[Migration, ...]) -> None:
    """Create the database under another name, and rename it when it is complete.

    A crash before that leaves no file at `path`, so an empty or broken file at `path` is always
    damaged.
    """
    if exists(f"{path}-wal"):
        raise DataDirectoryError(
            f"state database {path} is gone but its write-ahead log is there: restore the database "
            f"or, to begin without it, move {path}-wal away"
        )
    new_path = f"{path}.new"
    leftovers = (new_path, f"{new_path}-journal", f"{new_path}-wal")
    for leftover in (*leftovers, f"{path}{NOTE_SUFFIX}", f"{path}{NEW_NOTE_SUFFIX}"):
        remove_if_there(leftover)
    _write_new(new_path, b"")
    connection = _connect(new_path)
    try:
        # After a crash this file is deleted, so one sync at the end is enough.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _migrate(connection, new_path, migrations)
        _use_write_ahead_log(connection, new_path)
    finally:
        connection.close()
    _sync(new_path, os.O_RDWR)
    os.rename(new_path, path)  # noqa: PTH104 - as in small_files
    _sync(absolute_path(path).rpartition("/")[0] or "/", os.O_RDONLY | os.O_DIRECTORY)


def _write_new(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _check_identity(connection: sqlite3.Connection, path: str) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        raise DataDirectoryError(f"{path} is not a state database of kgw")


def _use_write_ahead_log(connection: sqlite3.Connection, path: str) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise DataDirectoryError(f"state database {path} cannot use a write-ahead log, only {mode}")
    connection.execute(f"PRAGMA journal_size_limit = {WRITE_AHEAD_LOG_BYTES}").fetchone()


def _check_write_ahead_log(path: str) -> None:
    """Refuse a log from which SQLite would silently drop acknowledged commits."""
    log_path = f"{path}-wal"
    damage = find_damage(log_path)
    if damage is not None:
        raise DataDirectoryError(
            f"write-ahead log {log_path} is damaged ({damage}); it was left as it is"
        )


def _check_structure(connection: sqlite3.Connection, path: str) -> None:
    problems = [problem for (problem,) in connection.execute("PRAGMA quick_check(20)")]
    if problems != ["ok"]:
        raise DataDirectoryError(
            f"state database {path} is damaged ({'; '.join(map(str, problems))}); "
            "it was left as it is"
        )


def _migrate(connection: sqlite3.Connection, path: str, migrations: tuple[Migration, ...]) -> None:
    """Apply the missing steps, each in a transaction that also records it."""
    with _transaction(connection):
        connection.execute(CREATE_MIGRATIONS_TABLE)
    applied = list(connection.execute(SELECT_MIGRATIONS))
    for migration in pending_migrations(applied, migrations, f"state database {path}"):
        with _transaction(connection):
            for statement in migration.sqlite:
                connection.execute(statement)
            connection.execute(INSERT_MIGRATION, (migration.number, migration.name))


def _check_schema(
    connection: sqlite3.Connection, path: str, migrations: tuple[Migration, ...]
) -> None:
    """Refuse a schema that the migrations do not make: damaged column types change values."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        model.execute(CREATE_MIGRATIONS_TABLE)
        for migration in migrations:
            for statement in migration.sqlite:
                model.execute(statement)
        expected = model.execute(_SELECT_SCHEMA).fetchall()
    if connection.execute(_SELECT_SCHEMA).fetchall() != expected:
        raise DataDirectoryError(
            f"state database {path} is damaged (its schema is not the one that was made); "
            "it was left as it is"
        )


def _mend_rows(connection: sqlite3.Connection, path: str, report: Callable[[str], None]) -> None:
    """Repair rows with a flipped bit in the kind or key, and report them."""
    from kgw.state.sql.misplaced import find_misplaced, put_back

    misplaced = find_misplaced(connection)
    if not misplaced:
        return
    with _transaction(connection):
        put_back(connection, misplaced)
    left = find_misplaced(connection)
    if left:
        raise DataDirectoryError(f"state database {path} is damaged: {left[0]}")
    for row in misplaced:
        report(f"state database {path}: {row}; put back")


def _count_commits(connection: CountedConnection, path: str, report: Callable[[str], None]) -> None:
    """Refuse a database without all acknowledged commits. Count the next commits."""
    if not has_count(connection):
        return
    note_path = f"{path}{NOTE_SUFFIX}"
    noted = None
    try:
        noted = read_note(note_path)
    except ValueError as error:
        report(f"{note_path}: {error}; whether the last commits are there cannot be told")
    count = stored_count(connection)
    if count is None:
        report(f"state database {path}: the count of its commits is damaged")
    elif noted is not None and noted > count:
        raise DataDirectoryError(
            f"state database {path} lacks the last {noted - count} commits that were answered: its "
            "write-ahead log is damaged, cut or gone; the log was left as it is. Restore it or, "
            f"to go on without them, move {note_path} away"
        )
    # A killed process may have left unsynced commits, which are used from now on.
    if exists(f"{path}-wal"):
        _sync(f"{path}-wal", os.O_RDONLY)
    connection.count_commits(path, max(count or 0, noted or 0), noted)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Lock the database for a transaction, even for DDL, for which sqlite3 begins none itself."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extended part; 0 where Python raised by itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _opening_error(error: sqlite3.Error, path: str) -> DataDirectoryError:
    code = _primary_code(error)
    if code in _IN_USE:
        return DataDirectoryError(f"state database {path} is in use by another process")
    if code in _CORRUPT:
        return DataDirectoryError(
            f"state database {path} is damaged ({error}); it was left as it is"
        )
    return DataDirectoryError(f"state database {path} cannot be opened: {error}")


def storage_error(error: sqlite3.Error, path: str) -> StorageError:
    """Convert an SQLite error of an open database to kgw's error."""
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return DiskFullError(f"no space left for the state store {path}")
    if code in _CORRUPT:
        return DamagedStateError(f"state store {path} is damaged: {error}")
    return StorageError(f"state store {path}: {error}")
