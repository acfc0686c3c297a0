"""State in one SQLite file, the default of the embedded backend.

One connection, in exclusive mode: SQLite before 3.51.3 can corrupt a write-ahead log that two
connections reset at once, and Python's library is often older. Write-ahead log with
synchronous=FULL, so that a commit is synced; waiting sets share one commit.
See docs/decisions/0011-state-in-sqlite.md.
"""

from __future__ import annotations

import sqlite3
from asyncio import Lock
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgw.errors import DataDirectoryError, StorageError
from kgw.state.sql.migrations import MIGRATIONS
from kgw.state.sql.schema import SqliteDialect
from kgw.state.sql.sqlite_file import open_database, storage_error
from kgw.state.sql.store import SqlStateStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from aiosqlite import Connection

    from kgw.state.sql.migrations import Migration
    from kgw.state.sql.schema import Batch


class SqliteStateStore(SqlStateStore):
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
        super().__init__(f"the state store {path}", SqliteDialect())
        self._path = Path(path)
        self._quick_check = quick_check
        self._migrations = migrations
        self._connection: Connection | None = None
        self._turn = Lock()
        """Held for a transaction, which a query over the same connection would see half done."""
        self._problems: list[str] = []

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._problems)

    async def _connect(self) -> None:
        # Some 8 ms, which a gateway without this store need not spend.
        import aiosqlite

        errors: list[DataDirectoryError] = []

        def connect() -> sqlite3.Connection:
            try:
                return open_database(
                    self._path,
                    self._migrations,
                    quick_check=self._quick_check,
                    report=self._problems.append,
                )
            except DataDirectoryError as error:
                # aiosqlite's thread ends in order only with a connection that is closed.
                errors.append(error)
                return sqlite3.connect(":memory:")

        self._problems.clear()
        connection = await aiosqlite.Connection(connect, iter_chunk_size=64)
        if errors:
            await connection.close()
            raise errors[0]
        self._connection = connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._open_connection(), None
        await connection.close()

    async def _fetch(self, statement: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        try:
            async with self._turn:
                return list(await self._open_connection().execute_fetchall(statement, parameters))
        except sqlite3.Error as error:
            raise storage_error(error, self._path) from error

    async def _transact(self, batches: Sequence[Batch]) -> None:
        async with self._turn:
            connection = self._open_connection()
            try:
                # The first statement begins the transaction (isolation_level).
                for statement, rows in batches:
                    await connection.executemany(statement, rows)
                await connection.commit()
            except sqlite3.Error as error:
                try:
                    await connection.rollback()
                except sqlite3.Error as second:
                    self._failure = f"{self._name}: {error}, then {second}"
                raise storage_error(error, self._path) from error

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise StorageError(f"{self._name} is not open")
        return self._connection
