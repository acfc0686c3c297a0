"""State in one SQLite file, the default of the embedded backend.

There is one connection, in exclusive mode: SQLite before 3.51.3 can corrupt a write-ahead log that
two connections reset at once, and Python often has an older SQLite. The write-ahead log has
synchronous=FULL, so that each commit is synced; waiting sets of changes share one commit. aiosqlite
runs the connection in a thread of its own. See docs/decisions/0011-state-in-sqlite.md.
"""

from __future__ import annotations

import asyncio
import sqlite3
from os import fspath
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from kgw.errors import StorageError
from kgw.state.sql.migrations import MIGRATIONS
from kgw.state.sql.schema import SqliteDialect
from kgw.state.sql.sqlite_file import open_database, storage_error
from kgw.state.sql.store import SqlStateStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from os import PathLike

    from aiosqlite import Connection

    from kgw.state.sql.migrations import Migration
    from kgw.state.sql.schema import Batch

_Result = TypeVar("_Result")


def _daemon_connection(database: sqlite3.Connection) -> Connection:
    """Return a connection, to be awaited, with a daemon thread, which lets the process end.

    `aiosqlite.connect` would open the file itself, and its thread would not end in order if that
    fails. aiosqlite has no option for daemon threads, but a thread started by a daemon thread is
    one, too.
    """
    # Imported here, as a gateway without this store does not need it.
    from aiosqlite import Connection

    made: list[Connection] = []
    maker = Thread(
        target=lambda: made.append(Connection(lambda: database, iter_chunk_size=64)), daemon=True
    )
    maker.start()
    maker.join()
    return made[0]


async def _copy(connection: Connection, path: str) -> None:
    target = await asyncio.to_thread(_new_database, path)
    try:
        await connection.backup(target)
    finally:
        await asyncio.to_thread(target.close)


def _new_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    # After a crash the incomplete copy is not used.
    database.execute("PRAGMA synchronous = OFF")
    return database


class SqliteStateStore(SqlStateStore):
    """Rows in a SQLite database at `path`, which is created if it does not exist.

    With `quick_check`, as after an unclean stop, `open` checks the database's structure. If an
    error leaves it unknown whether a commit is stored, the store refuses writes until it is opened
    again: after a failed sync, a later successful sync proves nothing.
    """

    versions_kept = 10_000

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        quick_check: bool = False,
        migrations: tuple[Migration, ...] = MIGRATIONS,
    ) -> None:
        """Set the file name. Only `open` accesses the file."""
        super().__init__(f"the state store {path}", SqliteDialect())
        self._path = path
        self._quick_check = quick_check
        self._migrations = migrations
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        """Held during a transaction: a query over the same connection would see it incomplete."""
        self._problems: list[str] = []

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._problems)

    async def _connect(self) -> None:
        connecting = asyncio.ensure_future(self._connected())
        try:
            self._connection = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # The threads cannot be stopped: wait for them, so that the file does not stay locked.
            await asyncio.wait({connecting})
            if connecting.exception() is None:
                await connecting.result().close()
            raise

    async def _connected(self) -> Connection:
        self._problems.clear()
        database = await asyncio.to_thread(
            open_database,
            self._path,
            self._migrations,
            quick_check=self._quick_check,
            report=self._problems.append,
        )
        return await _daemon_connection(database)

    async def copy_to(self, path: str, at: Callable[[], Awaitable[_Result]]) -> _Result:
        """Copy the database into a new file, in its state while `at` runs.

        Return the result of `at`.

        `at` must not use this store: commits and queries wait from before `at` until the copy is
        complete. The copy is not synced. Raises StorageError.
        """
        async with self._lock:
            connection = self._open_connection()
            result = await at()
            # The thread cannot be stopped, and the connection must not be used meanwhile.
            copying = asyncio.ensure_future(_copy(connection, path))
            try:
                await asyncio.shield(copying)
            except asyncio.CancelledError:
                await asyncio.wait({copying})
                raise
            except sqlite3.Error as error:
                raise storage_error(error, path) from error
        return result

    async def _disconnect(self) -> None:
        connection, self._connection = self._open_connection(), None
        await connection.close()

    async def _fetch(self, statement: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        async with self._lock:
            try:
                return list(await self._open_connection().execute_fetchall(statement, parameters))
            except sqlite3.Error as error:
                raise storage_error(error, fspath(self._path)) from error

    async def _transact(self, batches: Sequence[Batch]) -> None:
        async with self._lock:
            connection = self._open_connection()
            try:
                # The first statement begins the transaction (isolation_level).
                for statement, rows in batches:
                    await connection.executemany(statement, rows)
                await connection.commit()
            except BaseException as error:
                # Not only sqlite3.Error: a number too large for a column raises OverflowError.
                # Earlier statements must not become part of the next commit.
                try:
                    await connection.rollback()
                except sqlite3.Error as second:
                    self._failure = f"{self._name}: {error}, then {second}"
                if isinstance(error, sqlite3.Error):
                    raise storage_error(error, fspath(self._path)) from error
                raise

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise StorageError(f"{self._name} is not open")
        return self._connection
