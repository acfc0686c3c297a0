"""State in one SQLite file, the default of the embedded backend.

One connection, in exclusive mode: SQLite before 3.51.3 can corrupt a write-ahead log that two
connections reset at once, and Python's library is often older. Write-ahead log with
synchronous=FULL, so that a commit is synced; waiting sets share one commit.
The connection has a thread of its own, and a commit is one call in it: with a call for each
statement, two threads spent 15 % of a commit of 50 groups' offsets on waiting for each other.
See docs/decisions/0011-state-in-sqlite.md.
"""

from __future__ import annotations

import sqlite3
from os import fspath
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kgw.errors import StorageError
from kgw.state.sql.call_thread import CallThread
from kgw.state.sql.migrations import MIGRATIONS
from kgw.state.sql.schema import SqliteDialect
from kgw.state.sql.sqlite_file import open_database, storage_error
from kgw.state.sql.store import SqlStateStore, written_places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from kgw.state.base import ConflictError
    from kgw.state.sql.migrations import Migration
    from kgw.state.sql.schema import Batch
    from kgw.state.sql.store import Versions, Waiting

ResultT = TypeVar("ResultT")

VERSIONS_KEPT: Final = 10_000
"""Once more are known, they are asked for anew: some 3 MB."""


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
        self._path = path
        self._quick_check = quick_check
        self._migrations = migrations
        self._connection: sqlite3.Connection | None = None
        self._thread: CallThread | None = None
        self._problems: list[str] = []
        self._versions: Versions = {}
        """Of rows written lately, since nobody else writes: asked for once. For the thread."""

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._problems)

    async def _connect(self) -> None:
        self._problems.clear()
        self._versions.clear()
        thread = CallThread("kgw-state")
        try:
            self._connection = await thread.call(self._opened)
        except BaseException:
            thread.end()
            raise
        self._thread = thread

    def _opened(self) -> sqlite3.Connection:
        return open_database(
            self._path,
            self._migrations,
            quick_check=self._quick_check,
            report=self._problems.append,
        )

    async def _disconnect(self) -> None:
        connection, thread = self._open_connection(), self._thread
        self._connection = self._thread = None
        if thread is not None:
            try:
                await thread.call(connection.close)
            finally:
                thread.end()

    async def _fetch(self, statement: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return await self._in_thread(self._fetch_now, statement, parameters)

    async def _transact(self, batches: Sequence[Batch]) -> None:
        await self._in_thread(self._transact_now, batches)

    async def _write(self, group: Sequence[Waiting]) -> dict[int, ConflictError]:
        return await self._in_thread(self._write_now, group)

    async def _in_thread(self, call: Callable[..., ResultT], *arguments: Any) -> ResultT:
        if self._thread is None:
            raise StorageError(f"{self._name} is not open")
        try:
            return await self._thread.call(call, *arguments)
        except sqlite3.Error as error:
            raise storage_error(error, fspath(self._path)) from error

    # --- in the connection's thread ---------------------------------------------------------------

    def _fetch_now(self, statement: str, parameters: Sequence[Any]) -> list[Sequence[Any]]:
        return self._open_connection().execute(statement, parameters).fetchall()

    def _transact_now(self, batches: Sequence[Batch]) -> None:
        connection = self._open_connection()
        try:
            # The first statement begins the transaction (isolation_level).
            for statement, rows in batches:
                connection.executemany(statement, rows)
            connection.commit()
        except Exception as error:
            # Of any kind: a number too large for a column is no error of SQLite's, and what came
            # before it must not wait for the next commit.
            try:
                connection.rollback()
            except sqlite3.Error as second:
                self._failure = f"{self._name}: {error}, then {second}"
            raise

    def _write_now(self, group: Sequence[Waiting]) -> dict[int, ConflictError]:
        """Do what `SqlStateStore._write` does, without a way between threads for each statement."""
        versions = self._versions
        if len(versions) > VERSIONS_KEPT:
            versions.clear()
        unknown = [place for place in written_places(group) if place not in versions]
        try:
            for statement, parameters in self._version_queries(unknown):
                self._note_versions(self._fetch_now(statement, parameters), versions)
            conflicts, batches = self._stage(group, versions)
            if batches:
                self._transact_now(batches)
        except BaseException:
            # They may be those of rows that are not stored.
            versions.clear()
            raise
        return conflicts

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StorageError(f"{self._name} is not open")
        return self._connection
