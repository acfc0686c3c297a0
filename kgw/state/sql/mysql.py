"""State in a MySQL or MariaDB database, with PyMySQL in its own thread."""

from __future__ import annotations

from asyncio import get_running_loop
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kgw.errors import DataDirectoryError, DiskFullError, StorageError
from kgw.state.sql import schema
from kgw.state.sql.migrations import CREATE_MIGRATIONS_TABLE
from kgw.state.sql.server import (
    ServerSession,
    ServerStateStore,
    SessionLostError,
    lock_number,
    read_password,
)
from kgw.state.sql.tls import tls_context
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

    from kgw.config.state_url import StateUrl
    from kgw.state.base import Change
    from kgw.state.sql.schema import Batch
    from kgw.state.sql.server import Options

_Result = TypeVar("_Result")

_DISK_FULL: Final = frozenset({1021, 1041, 1114})
_FLUSHED: Final = frozenset({1, 3})
"""Values of innodb_flush_log_at_trx_commit that sync each commit; MariaDB also has 3."""
_REFUSED: Final = frozenset({1044, 1045, 1049, 1130, 1251, 1698, 2054, 2059})
"""The server refuses the user, the host or the database: another attempt would fail, too."""
_OVER: Final = frozenset({0, 1040, 1053, 1077, 1152, 1153, 1158, 1159, 1160, 1161, 1184, 1927})
"""Errors of the server after which a session cannot be used; so are all errors of the client."""

_SESSION: Final = (
    "SET SESSION sql_mode = 'TRADITIONAL'",
    # The session may be idle for days; the server's default limit is eight hours.
    "SET SESSION wait_timeout = 31536000",
)


class MysqlDialect(schema.Dialect):
    """Writes and deletes many rows with one statement; PyMySQL itself would send one each."""

    upsert_entry = (
        "INSERT INTO state_entry (kind, key_hash, entry_key, entry_value, version, checksum) "
        "VALUES (?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE entry_value = VALUES(entry_value), "
        "version = VALUES(version), checksum = VALUES(checksum)"
    )
    upsert_sample = f"REPLACE INTO {schema.SAMPLE_VALUES}"

    def deletions(self, places: Sequence[Sequence[Any]]) -> Sequence[Batch]:
        batches: list[Batch] = []
        for start in range(0, len(places), schema.VERSIONS_PER_SELECT):
            chosen = places[start : start + schema.VERSIONS_PER_SELECT]
            wanted = ",".join(["(?,?)"] * len(chosen))
            statement = f"DELETE FROM state_entry WHERE (kind, key_hash) IN ({wanted})"  # noqa: S608 - placeholders alone
            batches.append((statement, [[part for place in chosen for part in place[:2]]]))
        return batches


class MysqlStateStore(ServerStateStore):
    """Checks that changes fit a packet before they share a commit with others."""

    _max_packet_bytes = 0

    async def _connect(self) -> None:
        await super()._connect()
        ((size,),) = await self._fetch("SELECT @@max_allowed_packet", ())
        self._max_packet_bytes = size

    def _check_changes(self, changes: Sequence[Change]) -> None:
        for kind, key, value, _ in changes:
            # Each byte may have to be escaped by another one.
            size = 2 * len(value or b"") + 2 * len(key.encode()) + 1024
            if size > self._max_packet_bytes:
                raise StorageError(
                    f"{self._name}: {kind} {key[:100]!r} with {len(value or b'')} bytes may exceed "
                    f"the server's max_allowed_packet of {self._max_packet_bytes} bytes"
                )


class MysqlSession(ServerSession):
    """A session over PyMySQL."""

    def __init__(self, name: str, url: StateUrl, options: Options) -> None:
        super().__init__(name, url, options)
        self._connection: Connection[Any] | None = None
        self._thread = ThreadPoolExecutor(1, "kgw-state")

    async def connect(self) -> None:
        try:
            import pymysql
        except ImportError as error:
            raise DataDirectoryError(
                "a state store in MySQL or MariaDB needs the package PyMySQL: "
                f"{install_command('mysql')}"
            ) from error
        await self._guarded(lambda: self._connect(pymysql.connect))

    def _connect(self, connect: Callable[..., Connection[Any]]) -> None:
        from pymysql.constants.CLIENT import FOUND_ROWS
        from pymysql.err import MySQLError

        url, timeout_s = self._url, self._options.timeout_s
        context, password = tls_context(url), read_password(self._options)
        try:
            self._connection = connect(
                host=url.host or None,
                port=url.port,
                unix_socket=url.socket or None,
                user=url.user,
                password=password,
                database=url.database,
                charset="utf8mb4",
                binary_prefix=True,
                autocommit=True,
                # An update counts the rows that it finds, even if it does not change them.
                client_flag=FOUND_ROWS,
                connect_timeout=timeout_s,
                read_timeout=timeout_s,
                write_timeout=timeout_s,
                program_name="kgw",
                **({"ssl_disabled": True} if context is None else {"ssl": context}),
            )
            with self._connection.cursor() as cursor:
                for statement in _SESSION:
                    cursor.execute(statement)
        except MySQLError as error:
            if _code(error) in _REFUSED:
                raise DataDirectoryError(f"{self._name} cannot be opened: {error}") from error
            raise

    async def try_lock(self) -> bool:
        ((locked,),) = await self.fetch("SELECT GET_LOCK(?, 0)", (self._lock_name,))
        return bool(locked)

    @property
    def _lock_name(self) -> str:
        # Locks belong to the server, not to a database.
        return f"kgw-{lock_number(f'database {self._url.database}') & (1 << 64) - 1:016x}"

    async def end_lock_holder(self) -> None:
        ((holder,),) = await self.fetch("SELECT IS_USED_LOCK(?)", (self._lock_name,))
        if holder is None:
            return
        try:
            await self.run("KILL ?", (holder,))
        except StorageError:
            # It may have ended by itself meanwhile.
            ((now,),) = await self.fetch("SELECT IS_USED_LOCK(?)", (self._lock_name,))
            if now == holder:
                raise

    async def check_durable(self) -> None:
        ((flush,),) = await self.fetch("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit")
        if flush not in _FLUSHED:
            raise DataDirectoryError(
                f"{self._name} would lose commits in a power cut: its server has "
                f"innodb_flush_log_at_trx_commit={flush}, which must be 1"
            )
        engines = await self.fetch(
            "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = ? "
            "AND table_name IN ('state_entry', 'state_owner', 'state_change') "
            "AND engine <> 'InnoDB'",
            (self._url.database,),
        )
        for table, engine in engines:
            raise DataDirectoryError(
                f"{self._name}: table {table} is kept by {engine}, which has no transactions; "
                "it must be InnoDB"
            )

    async def make_schema(self) -> None:
        await self.run(f"{CREATE_MIGRATIONS_TABLE} ENGINE = InnoDB")

    async def fetch(
        self, statement: str, parameters: Sequence[Any] = ()
    ) -> Sequence[Sequence[Any]]:
        def fetch(cursor: Cursor) -> Sequence[Sequence[Any]]:
            cursor.execute(_formatted(statement), tuple(parameters))
            return list(cursor.fetchall())

        return await self._with_cursor(fetch)

    async def run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        return await self._with_cursor(
            lambda cursor: cursor.execute(_formatted(statement), tuple(parameters))
        )

    async def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        await self._with_cursor(lambda cursor: cursor.executemany(_formatted(statement), rows))

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await get_running_loop().run_in_executor(self._thread, connection.close)
            except Exception:  # noqa: BLE001 - it is of no more use, whatever is wrong with it
                connection._force_close()  # noqa: SLF001 - there is no other way to drop it
        self._thread.shutdown(wait=False)

    async def _with_cursor(self, use: Callable[[Cursor], _Result]) -> _Result:
        connection = self._connection
        if connection is None:
            raise SessionLostError("there is no connection")

        def use_cursor() -> _Result:
            with connection.cursor() as cursor:
                return use(cursor)

        return await self._guarded(use_cursor)

    async def _guarded(self, action: Callable[[], _Result]) -> _Result:
        """Run an action in the connection's thread, and convert PyMySQL's errors to kgw's."""
        from pymysql.err import InterfaceError, MySQLError

        try:
            return await get_running_loop().run_in_executor(self._thread, action)
        except MySQLError as error:
            code = _code(error)
            if code in _DISK_FULL:
                raise DiskFullError(f"no space left for {self._name}") from error
            if isinstance(error, InterfaceError) or 2000 <= code < 3000 or code in _OVER:
                raise SessionLostError(str(error)) from error
            raise StorageError(f"{self._name}: {error}") from error
        except OSError as error:
            raise SessionLostError(str(error)) from error


def _formatted(statement: str) -> str:
    """Return a statement with PyMySQL's placeholders in place of question marks."""
    return statement.replace("?", "%s")


def _code(error: Exception) -> int:
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0
