"""State in a schema of a PostgreSQL database, with asyncpg."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kgw.errors import DataDirectoryError, DiskFullError, StorageError
from kgw.state.base import DamagedStateError
from kgw.state.sql import schema
from kgw.state.sql.migrations import CREATE_MIGRATIONS_TABLE
from kgw.state.sql.server import ServerSession, SessionLostError, lock_number, read_password
from kgw.state.sql.tls import tls_context
from kgw.version import install_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from asyncpg import Connection

    from kgw.config.state_url import StateUrl
    from kgw.state.base import RowKey
    from kgw.state.sql.server import Options

_Result = TypeVar("_Result")

_DISK_FULL: Final = "53100"
_CORRUPT: Final = frozenset({"XX001", "XX002"})
_OVER: Final = frozenset({"08", "57"})
"""Classes of errors that end a session: connection errors, and interventions of an operator."""

# A session lives as long as the gateway. If its host is gone, the server must notice this soon, so
# that a successor gets the lock.
_SESSION: Final = (
    "SET lock_timeout = 0",
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = '60s'",
    "SET tcp_keepalives_idle = 30",
    "SET tcp_keepalives_interval = 10",
    "SET tcp_keepalives_count = 3",
    "SET client_min_messages = error",
)
_NEWER_SESSION: Final = "SET idle_session_timeout = 0"
"""From PostgreSQL 14 on."""


class PostgresqlDialect(schema.Dialect):
    """Uses arrays as parameters."""

    upsert_entry = (
        "INSERT INTO state_entry (kind, key_hash, entry_key, entry_value, version, checksum) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (kind, key_hash) DO UPDATE SET "
        "entry_value = excluded.entry_value, version = excluded.version, "
        "checksum = excluded.checksum"
    )
    upsert_sample = (
        f"INSERT INTO {schema.SAMPLE_VALUES} "
        "ON CONFLICT (group_hash, sampled_at_ms, series_hash) DO UPDATE SET "
        "committed_offset = excluded.committed_offset, high_watermark = excluded.high_watermark, "
        "time_lag_ms = excluded.time_lag_ms, checksum = excluded.checksum"
    )

    def select_versions(self, keys: Sequence[RowKey]) -> tuple[str, Sequence[Any]]:
        # The same text for any number of keys, so that it is prepared once.
        statement = (
            "SELECT state_entry.kind, entry_key, version FROM state_entry "
            "JOIN unnest(?::text[], ?::bytea[]) AS wanted (kind, key_hash) "
            "ON state_entry.kind = wanted.kind AND state_entry.key_hash = wanted.key_hash"
        )
        return statement, [
            [kind for kind, _ in keys],
            [schema.key_hash(key) for _, key in keys],
        ]


# pg_locks has the two halves of a lock's number in two columns.
_END_LOCK_HOLDER: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND objsubid = 1 AND (classid::bigint << 32) | objid::bigint = ?::bigint "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class PostgresqlSession(ServerSession):
    """A session over asyncpg."""

    def __init__(self, name: str, url: StateUrl, options: Options) -> None:
        super().__init__(name, url, options)
        self._given: Connection | None = None

    @property
    def _connection(self) -> Connection:
        if self._given is None:
            raise SessionLostError("there is no connection")
        return self._given

    async def connect(self) -> None:
        try:
            import asyncpg
        except ImportError as error:
            raise DataDirectoryError(
                "a state store in PostgreSQL needs the package asyncpg: "
                f"{install_command('postgresql')}"
            ) from error
        url = self._url
        try:
            context = await asyncio.to_thread(tls_context, url)
            password = await asyncio.to_thread(read_password, self._options)
            self._given = await asyncpg.connect(
                host=url.socket or url.host,
                port=url.port,
                user=url.user,
                # Without one the library would look for it in the user's home.
                password=password,
                database=url.database,
                timeout=self._options.timeout_s,
                command_timeout=self._options.timeout_s,
                ssl=context if context is not None else False,
                server_settings={"application_name": "kgw"},
            )
            # The search path may name a schema that does not exist yet.
            for statement in (*_SESSION, f"SET search_path TO {self._schema}"):
                await self._connection.execute(statement)
            if self._connection.get_server_version() >= (14,):
                await self._connection.execute(_NEWER_SESSION)
            if await self._connection.fetchval("SHOW synchronous_commit") == "off":
                await self._connection.execute("SET synchronous_commit = on")
            if await self._connection.fetchval("SELECT pg_is_in_recovery()"):
                raise SessionLostError("the server is a replica, which cannot be written to")
        except asyncpg.PostgresError as error:
            if _is_over(error):
                raise SessionLostError(str(error)) from error
            raise DataDirectoryError(f"{self._name} cannot be opened: {error}") from error
        except (OSError, asyncpg.InterfaceError) as error:
            raise SessionLostError(str(error) or type(error).__name__) from error

    @property
    def _schema(self) -> str:
        return '"' + self._url.schema.replace('"', '""') + '"'

    async def try_lock(self) -> bool:
        name = lock_number(f"schema {self._url.schema}")
        ((locked,),) = await self.fetch("SELECT pg_try_advisory_lock(?::bigint)", (name,))
        return bool(locked)

    async def end_lock_holder(self) -> None:
        name = lock_number(f"schema {self._url.schema}")
        await self.fetch(_END_LOCK_HOLDER, (name,))

    async def check_durable(self) -> None:
        ((fsync, synchronous_commit),) = await self.fetch(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit')", ()
        )
        if fsync != "on" or synchronous_commit == "off":
            raise DataDirectoryError(
                f"{self._name} would lose commits in a power cut: its server has fsync={fsync}, "
                f"synchronous_commit={synchronous_commit}; both must be on"
            )

    async def make_schema(self) -> None:
        if not await self.fetch(
            "SELECT 1 FROM pg_namespace WHERE nspname = ?", (self._url.schema,)
        ):
            await self.run(f"CREATE SCHEMA {self._schema}")
        await self.run(CREATE_MIGRATIONS_TABLE)

    async def fetch(
        self, statement: str, parameters: Sequence[Any] = ()
    ) -> Sequence[Sequence[Any]]:
        rows = await self._guarded(self._connection.fetch(numbered(statement), *parameters))
        return [tuple(row) for row in rows]

    async def run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        tag = await self._guarded(self._connection.execute(numbered(statement), *parameters))
        # "UPDATE 1"; other statements have no number, or another one.
        count = tag.removeprefix("UPDATE ")
        return int(count) if count.isdecimal() else 0

    async def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        await self._guarded(self._connection.executemany(numbered(statement), rows))

    async def aclose(self) -> None:
        if self._given is None:
            return
        try:
            await self._given.close(timeout=2)
        except Exception:  # noqa: BLE001 - it is of no more use, whatever is wrong with it
            self._given.terminate()
        self._given = None

    async def _guarded(self, action: Awaitable[_Result]) -> _Result:
        """Wait for asyncpg, and convert its errors to kgw's."""
        import asyncpg

        try:
            return await action
        except asyncpg.PostgresError as error:
            if _is_over(error):
                raise SessionLostError(str(error)) from error
            if error.sqlstate == _DISK_FULL:
                raise DiskFullError(f"no space left for {self._name}") from error
            if error.sqlstate in _CORRUPT:
                raise DamagedStateError(f"{self._name} is damaged: {error}") from error
            raise StorageError(f"{self._name}: {error}") from error
        except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            # A statement that takes too long raises one of these. The session is not used any more
            # then.
            raise SessionLostError(str(error) or type(error).__name__) from error


def numbered(statement: str) -> str:
    """Return a statement with PostgreSQL's placeholders in place of question marks."""
    first, *rest = statement.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))


def _is_over(error: Any) -> bool:
    return str(error.sqlstate or "")[:2] in _OVER
