"""State in one SQLite file, the default of the embedded backend.

One connection, in exclusive mode: SQLite before 3.51.3 can corrupt a write-ahead log that two
connections reset at once, and Python's library is often older. Write-ahead log with
synchronous=FULL, so that a commit is synced; waiting sets share one commit.
See docs/decisions/0011-state-in-sqlite.md.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kgw.errors import DataDirectoryError, DiskFullError, StorageError
from kgw.state.base import ConflictError, DamagedRowsError, Row, StateStore
from kgw.state.sql import schema
from kgw.state.sql.migrations import MIGRATIONS
from kgw.state.sql.sqlite_file import open_database, storage_error

if TYPE_CHECKING:
    from asyncio import Future, Task
    from collections.abc import Sequence
    from os import PathLike

    from aiosqlite import Connection

    from kgw.state.base import Change
    from kgw.state.sql.migrations import Migration

GROUP_CHANGES: Final = 10_000
"""A shared commit takes no further set once it holds this many changes."""


class SqliteStateStore(StateStore):
    """Rows in a SQLite database at `path`, created when nothing is there.

    With `quick_check`, as after an unclean stop, the database's structure is checked at open. After
    an error that leaves open what is stored, the store takes no more writes until it is opened
    again: a sync that failed once may not be trusted later.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        quick_check: bool = False,
        migrations: tuple[Migration, ...] = MIGRATIONS,
    ) -> None:
        """Name the file; `open` touches it."""
        self._path = Path(path)
        self._quick_check = quick_check
        self._migrations = migrations
        self._connection: Connection | None = None
        self._waiting: list[tuple[Sequence[Change], Future[None]]] = []
        self._committer: Task[None] | None = None
        self._failure: str | None = None
        self._closing = False

    @property
    def failure(self) -> str | None:
        return self._failure

    async def open(self) -> None:
        # Some 8 ms, which a gateway without this store need not spend.
        import aiosqlite

        errors: list[DataDirectoryError] = []

        def connect() -> sqlite3.Connection:
            try:
                return open_database(self._path, self._migrations, quick_check=self._quick_check)
            except DataDirectoryError as error:
                # aiosqlite's thread ends in order only with a connection that is closed.
                errors.append(error)
                return sqlite3.connect(":memory:")

        self._failure = None
        self._closing = False
        connection = await aiosqlite.Connection(connect, iter_chunk_size=64)
        if errors:
            await connection.close()
            raise errors[0]
        self._connection = connection

    async def aclose(self) -> None:
        self._closing = True
        if self._committer is not None:
            await self._committer
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def load(self, kind: str) -> dict[str, Row]:
        connection = self._open_connection()
        try:
            entries = await connection.execute_fetchall(schema.SELECT_KIND, (kind,))
        except sqlite3.Error as error:
            raise storage_error(error, self._path) from error
        rows: dict[str, Row] = {}
        damaged: list[str] = []
        for key, value, version, checksum in entries:
            if _is_intact(kind, key, value, version, checksum):
                rows[key] = Row(value, version)
            else:
                damaged.append(str(key))
        if damaged:
            raise DamagedRowsError(kind, rows, damaged)
        return rows

    async def apply(self, changes: Sequence[Change]) -> None:
        from asyncio import get_running_loop

        self._open_connection()
        if self._closing:
            raise StorageError(f"the state store {self._path} is closing")
        if self._failure is not None:
            raise StorageError(self._failure)
        if not changes:
            return
        loop = get_running_loop()
        done: Future[None] = loop.create_future()
        self._waiting.append((changes, done))
        if self._committer is None:
            self._committer = loop.create_task(self._commit_waiting())
        await done

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise StorageError(f"the state store {self._path} is not open")
        return self._connection

    async def _commit_waiting(self) -> None:
        """Commit group after group until nobody waits. What arrives meanwhile is the next group."""
        try:
            while self._waiting:
                await self._commit_group(self._take_group())
        finally:
            self._committer = None

    def _take_group(self) -> list[tuple[Sequence[Change], Future[None]]]:
        count = 0
        for index, (changes, _) in enumerate(self._waiting):
            count += len(changes)
            if count > GROUP_CHANGES and index > 0:
                group, self._waiting = self._waiting[:index], self._waiting[index:]
                return group
        group, self._waiting = self._waiting, []
        return group

    async def _commit_group(self, group: list[tuple[Sequence[Change], Future[None]]]) -> None:
        """Write all sets that meet no conflict in one transaction and answer everyone."""
        taken: list[Future[None]] = []
        refused: list[tuple[Future[None], ConflictError]] = []
        outcome: Exception | None = None
        try:
            if self._failure is not None:
                raise StorageError(self._failure)
            versions = await self._versions([changes for changes, _ in group])
            entries: dict[tuple[str, str], tuple[bytes | None, int]] = {}
            for changes, done in group:
                try:
                    _stage(changes, versions, entries)
                except ConflictError as error:
                    refused.append((done, error))
                else:
                    taken.append(done)
            await self._write(entries)
        except sqlite3.Error as error:
            outcome = await self._roll_back(error)
        except Exception as error:  # noqa: BLE001 - the callers raise it
            outcome = error
        if outcome is not None:
            taken, refused = [done for _, done in group], []
        for done, conflict in refused:
            if not done.done():
                done.set_exception(conflict)
        for done in taken:
            if done.done():
                continue
            if outcome is None:
                done.set_result(None)
            else:
                done.set_exception(outcome)

    async def _versions(self, sets: list[Sequence[Change]]) -> dict[tuple[str, str], int]:
        """Return the stored version of every key that occurs; 0 for those that do not exist."""
        connection = self._open_connection()
        places = list({(change.kind, change.key): 0 for changes in sets for change in changes})
        versions = dict.fromkeys(places, 0)
        for start in range(0, len(places), schema.VERSIONS_PER_SELECT):
            statement, parameters = schema.select_versions(
                places[start : start + schema.VERSIONS_PER_SELECT]
            )
            for kind, key, version in await connection.execute_fetchall(statement, parameters):
                versions[kind, key] = version
        return versions

    async def _write(self, entries: dict[tuple[str, str], tuple[bytes | None, int]]) -> None:
        connection = self._open_connection()
        kept = [
            (kind, key, value, version, schema.row_checksum(kind, key, value, version))
            for (kind, key), (value, version) in entries.items()
            if value is not None
        ]
        gone = [place for place, (value, _) in entries.items() if value is None]
        # The first statement begins the transaction (isolation_level).
        if kept:
            await connection.executemany(schema.UPSERT, kept)
        if gone:
            await connection.executemany(schema.DELETE, gone)
        if kept or gone:
            await connection.commit()

    async def _roll_back(self, error: sqlite3.Error) -> StorageError:
        """Undo the open transaction and say what becomes of the group, and of the store."""
        mapped = storage_error(error, self._path)
        try:
            await self._open_connection().rollback()
        except sqlite3.Error as second:
            self._failure = f"state store {self._path}: {error}, then {second}"
        if not isinstance(mapped, DiskFullError):
            # What a failed write or sync left behind is known only after the next open.
            self._failure = self._failure or str(mapped)
        return mapped


def _stage(
    changes: Sequence[Change],
    versions: dict[tuple[str, str], int],
    entries: dict[tuple[str, str], tuple[bytes | None, int]],
) -> None:
    """Add one set to the group's rows and versions, or leave both alone and raise ConflictError."""
    own_versions: dict[tuple[str, str], int] = {}
    own_entries: dict[tuple[str, str], tuple[bytes | None, int]] = {}
    for change in changes:
        place = (change.kind, change.key)
        version = own_versions[place] if place in own_versions else versions[place]
        if change.expected_version is not None and change.expected_version != version:
            raise ConflictError(change, version)
        own_versions[place] = 0 if change.value is None else version + 1
        own_entries[place] = (change.value, own_versions[place])
    versions.update(own_versions)
    entries.update(own_entries)


def _is_intact(kind: str, key: object, value: object, version: object, checksum: object) -> bool:
    """Whether a row is what was written. A flipped bit can change a column's very type."""
    if not (isinstance(key, str) and isinstance(value, bytes) and isinstance(version, int)):
        return False
    return schema.row_checksum(kind, key, value, version) == checksum
