"""State in a database server: one session owns the schema, and may be lost.

Three rules make a lost session harmless.

- The session holds a lock of the server until it ends, and all statements run in it: a process
  without the lock cannot write.
- Every open raises the owner's generation, and every commit raises the number of commits in its own
  transaction. When a new session has the lock, the old session has ended, and the number shows
  whether the last commit of the old session is stored.
- If the generation or the number differs from the expected one, another process has written or the
  server has lost commits (a replica took over, or a backup was restored): the store stops writing.

A store that only reads has neither lock nor generation: any number of them may be open beside the
owner, to `load` and to `watch`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kgw.config.state_url import POSTGRESQL
from kgw.errors import DataDirectoryError, StorageError
from kgw.logs import EventLogger
from kgw.state.base import DamagedRowsError, StateTakenOverError
from kgw.state.binding import damaged_identity, identity_in
from kgw.state.kinds import BINDING_KIND
from kgw.state.sql.migrations import (
    INSERT_MIGRATION,
    MIGRATIONS,
    SELECT_MIGRATIONS,
    pending_migrations,
)
from kgw.state.sql.store import SqlStateStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from kgw.clock import Clock
    from kgw.config.state_url import StateUrl
    from kgw.state.base import Change
    from kgw.state.sql.migrations import Migration
    from kgw.state.sql.schema import Batch, Dialect

SESSIONS_PER_USE: Final = 3
"""How many sessions one statement may lose before it fails, for example because it takes too
long."""

_Result = TypeVar("_Result")
_log = EventLogger(__name__)


class SessionLostError(StorageError):
    """The session with the server has ended, or could not begin. A new session may work."""


class OwnerRow(NamedTuple):
    """The row with the generation of the schema's owner, and the number of commits."""

    generation: int
    commits: int


class Options(NamedTuple):
    """The options of a store on a server."""

    password: str = ""
    password_path: str = ""
    """File with the password, which is read for each connection."""
    timeout_s: float = 30.0
    """How long the server may be unreachable, or may take for one statement."""
    migrations: tuple[Migration, ...] = MIGRATIONS
    reads_only: bool = False
    """Read only, beside the owner: do not migrate the schema."""
    lock_wait_s: float = 5.0
    """How long `open` waits for the lock: a server may notice the end of a killed gateway only
    after its successor has started."""
    retry_s: float = 0.5
    watch_s: float = 10.0
    """How often an idle session is used, so that its loss is noticed before it is needed."""


def read_password(options: Options) -> str:
    """Return the password for a connection. Blocks for a read. Raises DataDirectoryError."""
    if not options.password_path:
        return options.password
    try:
        return Path(options.password_path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise DataDirectoryError(f"the state store's password: {error}") from error


class ServerSession(ABC):
    """One session with a database server, over a library. Only one caller at a time may use it.

    `fetch`, `run` and `run_many` take statements with question marks as placeholders, and raise
    StorageError, DiskFullError, SessionLostError.
    """

    def __init__(self, name: str, url: StateUrl, options: Options) -> None:
        """`name` is the store's name in messages. `connect` connects to the `url`."""
        self._name = name
        self._url = url
        self._options = options

    @abstractmethod
    async def connect(self) -> None:
        """Connect and apply the settings of a session.

        Raises SessionLostError if the server cannot be reached, DataDirectoryError if it refuses.
        """

    @abstractmethod
    async def try_lock(self) -> bool:
        """Try to lock the schema until the session ends; return False if another session has it."""

    @abstractmethod
    async def end_lock_holder(self) -> None:
        """End the session that has the schema's lock, if one has it. Raises StorageError."""

    @abstractmethod
    async def check_durable(self) -> None:
        """Raise DataDirectoryError if a commit would not survive a power loss."""

    @abstractmethod
    async def make_schema(self) -> None:
        """Create the table of migrations, and the schema for it if there is none."""

    @abstractmethod
    async def fetch(
        self, statement: str, parameters: Sequence[Any] = ()
    ) -> Sequence[Sequence[Any]]:
        """Return the rows of a query."""

    @abstractmethod
    async def run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement; return how many rows an UPDATE has matched."""

    @abstractmethod
    async def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement with each row of parameters."""

    @abstractmethod
    async def aclose(self) -> None:
        """End the session, and with it the lock. Never raises."""

    async def applied_migrations(self) -> Sequence[Sequence[Any]]:
        """Return the number and name of the applied steps; create the schema if there is none."""
        url = self._url
        place = url.schema if url.kind == POSTGRESQL else url.database
        # IF NOT EXISTS needs the right to create a table even if the table exists.
        if not await self.fetch(_SELECT_MIGRATIONS_TABLE, (place,)):
            await self.make_schema()
        return await self.fetch(SELECT_MIGRATIONS)

    async def migrate(self, migration: Migration) -> None:
        """Apply a step and record it. MySQL commits each statement of the step by itself."""
        is_postgresql = self._url.kind == POSTGRESQL
        async with self._transaction():
            for statement in migration.postgresql if is_postgresql else migration.mysql:
                await self.run(statement)
            await self.run(INSERT_MIGRATION, (migration.number, migration.name))

    async def transact(self, batches: Sequence[Batch], owner: OwnerRow) -> None:
        """Write the rows and the number of commits in one transaction.

        Raises StateTakenOverError, and writes nothing, if the schema has another generation than
        `owner`; StorageError.
        """
        async with self._transaction():
            for statement, rows in batches:
                await self.run_many(statement, rows)
            if not await self.run(_COUNT_COMMIT, (owner.commits, owner.generation)):
                raise StateTakenOverError(f"{self._name} was taken over by another gateway")

    async def raise_generation(self) -> None:
        """Make all later commits of the current owner fail. Needs no lock."""
        async with self._transaction():
            await self.run(_RAISE_GENERATION)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        await self.run("BEGIN")
        try:
            yield
        except BaseException:
            await self.run("ROLLBACK")
            raise
        await self.run("COMMIT")


class ServerStateStore(SqlStateStore):
    """Rows in a schema of a database server, with one owner and any number of readers."""

    successor_of: str | None = None
    """If the state has this identity, `open` ends the session of its owner, as a hanging process
    would keep its session and the lock. Set it only if this process is known to lead."""
    check_identity: Callable[[str | None], None] | None = None
    """Called in `open` with the identity of the stored state, None if there is none, before the
    first write. Raises DataDirectoryError to refuse another gateway's state."""
    on_lost: Callable[[], None] | None = None
    """Called once when the store finds that another store has taken over the schema."""

    def __init__(
        self,
        url: StateUrl,
        dialect: Dialect,
        session_type: type[ServerSession],
        clock: Clock,
        options: Options,
    ) -> None:
        """Set the schema. `open` connects."""
        super().__init__(f"the state store ({url})", dialect)
        self._url = url
        self._session_type = session_type
        self._clock = clock
        self._options = options
        self._session: ServerSession | None = None
        self._lock = asyncio.Lock()
        self._owner = OwnerRow(0, 0)
        self._outage: str | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def failure(self) -> str | None:
        return self._failure or self._outage

    # --- opening and closing ----------------------------------------------------------------------

    async def _connect(self) -> None:
        session = await self._locked_session(self._options.lock_wait_s, self._put_out)
        try:
            if self._options.reads_only:
                applied = await session.fetch(SELECT_MIGRATIONS)
                if pending_migrations(applied, self._options.migrations, self._name):
                    raise DataDirectoryError(
                        f"{self._name} is of an older kgw: start its owner with this one first"
                    )
            else:
                await self._take_over(session)
        except BaseException as error:
            await session.aclose()
            if isinstance(error, StorageError) and not isinstance(error, DataDirectoryError):
                raise DataDirectoryError(f"{self._name} cannot be opened: {error}") from error
            raise
        self._session = session
        self._outage = None
        self._watcher = asyncio.create_task(self._watch())

    async def _disconnect(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None
        async with self._lock:
            session, self._session = self._session, None
            if session is not None:
                await session.aclose()

    async def _locked_session(
        self, lock_wait_s: float, while_locked: Callable[[ServerSession], Awaitable[None]]
    ) -> ServerSession:
        """Return a session that owns the schema. Calls `while_locked` while another session has it.

        Raises DataDirectoryError if the server stays unreachable or another session holds the lock.
        """
        deadline = self._clock.monotonic_s() + self._options.timeout_s
        lock_deadline = self._clock.monotonic_s() + lock_wait_s
        has_complained = False
        while True:
            session = self._session_type(self._name, self._url, self._options)
            try:
                await session.connect()
                while not (self._options.reads_only or await session.try_lock()):
                    if self._closing or self._clock.monotonic_s() >= lock_deadline:
                        raise DataDirectoryError(
                            f"{self._name} is in use by another gateway; each needs a schema or "
                            "database of its own"
                        )
                    await while_locked(session)
                    await self._pause()
                await session.check_durable()
            except SessionLostError as error:
                await session.aclose()
                if self._clock.monotonic_s() >= deadline or self._closing:
                    raise DataDirectoryError(f"{self._name} cannot be reached: {error}") from error
                if not has_complained:
                    _log.warning("state store cannot be reached, trying again", error=str(error))
                    has_complained = True
                await self._pause()
            except BaseException:
                await session.aclose()
                raise
            else:
                return session

    async def _put_out(self, session: ServerSession) -> None:
        """End the session of the current owner if the state's identity is `successor_of`.

        The new generation fences the owner: its next commit fails, even if it connects again and
        gets the lock before this store. This store reads the owner's last commits later.
        """
        if self.successor_of is None:
            return
        if await self._stored_identity(session) != self.successor_of:
            return
        _log.warning("the session of the gateway that led is ended", store=self._name)
        # This comes first, as a hanging commit of the owner would block the new generation.
        await session.end_lock_holder()
        await session.raise_generation()

    async def _check_generation(self, session: ServerSession) -> None:
        """Raise StateTakenOverError if another owner already has the lock."""
        if (await self._read_owner(session)).generation != self._owner.generation:
            raise StateTakenOverError(f"{self._name} was taken over by another gateway")

    async def _pause(self) -> None:
        await self._clock.sleep_until(self._clock.monotonic_s() + self._options.retry_s)

    async def _take_over(self, session: ServerSession) -> None:
        applied = await session.applied_migrations()
        if self.check_identity is not None:
            self.check_identity(await self._stored_identity(session) if applied else None)
        for migration in pending_migrations(applied, self._options.migrations, self._name):
            await session.migrate(migration)
        owner = await self._read_owner(session)
        self._owner = OwnerRow(owner.generation + 1, owner.commits)
        await session.transact([(_RAISE_GENERATION, [()])], self._owner)

    async def _stored_identity(self, session: ServerSession) -> str | None:
        rows = await session.fetch(self._dialect.select_kind, (BINDING_KIND,))
        try:
            return identity_in(self._intact(BINDING_KIND, rows))
        except DamagedRowsError as error:
            raise damaged_identity(error) from error

    async def _read_owner(self, session: ServerSession) -> OwnerRow:
        rows = await session.fetch(_SELECT_OWNER)
        if len(rows) != 1:
            raise StorageError(f"{self._name} has lost the row that says who owns it")
        return OwnerRow(*rows[0])

    # --- using the session ------------------------------------------------------------------------

    def submit(self, changes: Sequence[Change], batches: Sequence[Batch]) -> Awaitable[None]:
        if self._options.reads_only:
            raise StorageError(f"{self._name} is open for reading alone")
        return super().submit(changes, batches)

    async def _fetch(self, statement: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        # A cancelled caller must not leave an incomplete answer on the session.
        return await asyncio.shield(self._run(lambda session: session.fetch(statement, parameters)))

    async def _transact(self, batches: Sequence[Batch]) -> None:
        wanted = self._owner._replace(commits=self._owner.commits + 1)

        async def transact(session: ServerSession) -> None:
            if self._owner != wanted:
                await session.transact(batches, wanted)
            self._owner = wanted

        await self._run(transact)

    async def _run(self, use: Callable[[ServerSession], Awaitable[_Result]]) -> _Result:
        """Use the session; if it is lost, use the next one."""
        async with self._lock:
            for _ in range(SESSIONS_PER_USE):
                if self._session is None:
                    self._check_failure()
                    raise StorageError(f"{self._name} is not open")
                try:
                    return await use(self._session)
                except SessionLostError as error:
                    await self._replace_session(error)
            raise StorageError(f"{self._name} loses its connection again and again")

    async def _replace_session(self, error: SessionLostError) -> None:
        """Get a new session and find out whether the last commit is stored.

        Raises StorageError, and leaves the store without a session, if that fails.
        """
        _log.warning("state store lost, connecting again", error=str(error))
        self._outage = f"{self._name} is away: {error}"
        lost, self._session = self._session, None
        try:
            if lost is not None:
                await lost.aclose()
            session = await self._session_again()
        except StorageError as final:
            self._fail(final)
            self._outage = None
            if isinstance(final, StateTakenOverError):
                # The last commit may be stored, but callers take StateTakenOverError for a commit
                # that is not stored.
                raise StorageError(str(final)) from final
            raise
        self._session = session
        self._outage = None
        _log.info("state store is back", commits=self._owner.commits)

    async def _session_again(self) -> ServerSession:
        deadline = self._clock.monotonic_s() + self._options.timeout_s
        while True:
            session = await self._locked_session(self._options.timeout_s, self._check_generation)
            try:
                if not self._options.reads_only:
                    self._owner = await self._owner_again(session)
            except SessionLostError:
                # A successor ends each session until it gets the lock; then `_check_generation`
                # raises.
                await session.aclose()
                if self._closing or self._clock.monotonic_s() >= deadline:
                    raise
                await self._pause()
            except BaseException:
                await session.aclose()
                raise
            else:
                return session

    async def _owner_again(self, session: ServerSession) -> OwnerRow:
        """Return the stored owner. Raises StorageError if it is another one than expected."""
        stored = await self._read_owner(session)
        if stored.generation != self._owner.generation:
            raise StateTakenOverError(f"{self._name} was taken over by another gateway")
        if stored.commits not in {self._owner.commits, self._owner.commits + 1}:
            raise StorageError(
                f"{self._name} stands at commit {stored.commits}, not "
                f"{self._owner.commits}: what was acknowledged is lost"
            )
        return stored

    async def _watch(self) -> None:
        """Check regularly that there is a session, and that commits on the server are durable."""
        while True:
            await self._clock.sleep_until(self._clock.monotonic_s() + self._options.watch_s)
            try:
                await self._run(lambda session: session.check_durable())
            except StorageError as error:
                self._fail(error)
                return

    def _fail(self, error: StorageError) -> None:
        if self._failure is None:
            _log.error("state store takes no more writes", problem=str(error))
            if self.on_lost is not None and isinstance(error, StateTakenOverError):
                self.on_lost()
        super()._fail(error)


def lock_number(name: str) -> int:
    """Return the 64-bit number that identifies a lock on a server."""
    return int.from_bytes(sha256(f"kgw state {name}".encode()).digest()[:8], "big", signed=True)


_SELECT_MIGRATIONS_TABLE: Final = (
    "SELECT 1 FROM information_schema.tables "
    "WHERE table_schema = ? AND table_name = 'schema_migration'"
)
_COUNT_COMMIT: Final = "UPDATE state_owner SET commits = ? WHERE id = 1 AND generation = ?"
_SELECT_OWNER: Final = "SELECT generation, commits FROM state_owner WHERE id = 1"
_RAISE_GENERATION: Final = "UPDATE state_owner SET generation = generation + 1 WHERE id = 1"
