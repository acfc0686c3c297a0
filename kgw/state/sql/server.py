"""State in a database server: one session, which owns the schema and can be lost.

Three things make a lost session harmless.

- The session holds a lock of the server's for as long as it lives, and everything goes through it:
  whoever has lost the lock cannot write either.
- Every open raises the owner's generation, and every commit the number of commits, in the
  transaction that writes. After a new session has the lock, the old one is over for good, and the
  number tells whether the commit that was under way when it was lost is stored.
- When generation or number are not what they must be, somebody else has written, or the server has
  lost commits (a replica that took over, a backup): nothing is written any more.

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
"""A statement that each time costs its session, such as one that takes too long, is given up."""

_Result = TypeVar("_Result")
_log = EventLogger(__name__)


class SessionLostError(StorageError):
    """The session with the server is gone, or never came about. It may work again later."""


class Owner(NamedTuple):
    """The row that says who owns the schema, and how far that one has come."""

    generation: int
    commits: int


class Options(NamedTuple):
    """What can be set about a store on a server."""

    password: str = ""
    password_path: str = ""
    """File that holds the password, read anew for each connection."""
    timeout_s: float = 30.0
    """How long the server may be away, or take for one statement."""
    migrations: tuple[Migration, ...] = MIGRATIONS
    reads_only: bool = False
    """Open beside the owner: nothing is written, the schema least of all."""
    lock_wait_s: float = 5.0
    """A server may notice the end of a killed gateway a moment after its successor has started."""
    retry_s: float = 0.5
    watch_s: float = 10.0
    """How often an idle session is used, so that its loss is noticed before somebody needs it."""


def read_password(options: Options) -> str:
    """Return the password to connect with. Blocks for a read. Raises DataDirectoryError."""
    if not options.password_path:
        return options.password
    try:
        return Path(options.password_path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise DataDirectoryError(f"the state store's password: {error}") from error


class ServerSession(ABC):
    """One session with a database server, over a library. Not for two callers at once.

    `fetch`, `run` and `run_many` take statements with question marks as placeholders, and raise
    StorageError, DiskFullError, SessionLostError.
    """

    def __init__(self, name: str, url: StateUrl, options: Options) -> None:
        """Say what the store is called in messages, and where it is; `connect` connects."""
        self._name = name
        self._url = url
        self._options = options

    @abstractmethod
    async def connect(self) -> None:
        """Connect and agree on everything that a session needs.

        Raises SessionLostError when the server cannot be reached, DataDirectoryError when it can
        and will not do.
        """

    @abstractmethod
    async def try_lock(self) -> bool:
        """Take the schema's lock for the life of the session, unless another session has it."""

    @abstractmethod
    async def end_lock_holder(self) -> None:
        """End the session that has the schema's lock, if one has it. Raises StorageError."""

    @abstractmethod
    async def check_durable(self) -> None:
        """Raise DataDirectoryError when a commit would not survive a power cut."""

    @abstractmethod
    async def make_schema(self) -> None:
        """Make the table of migrations, and what it needs to stand in."""

    @abstractmethod
    async def fetch(
        self, statement: str, parameters: Sequence[Any] = ()
    ) -> Sequence[Sequence[Any]]:
        """Return the rows of a query."""

    @abstractmethod
    async def run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement; returns how many rows an UPDATE has found."""

    @abstractmethod
    async def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement with each row of parameters."""

    @abstractmethod
    async def aclose(self) -> None:
        """End the session, and with it the lock. Never raises."""

    async def applied_migrations(self) -> Sequence[Sequence[Any]]:
        """Return number and name of the steps taken; makes the schema when there is none."""
        url = self._url
        place = url.schema if url.kind == POSTGRESQL else url.database
        # IF NOT EXISTS asks for the right to create something even where there is nothing to do.
        if not await self.fetch(_SELECT_MIGRATIONS_TABLE, (place,)):
            await self.make_schema()
        return await self.fetch(SELECT_MIGRATIONS)

    async def migrate(self, migration: Migration) -> None:
        """Take a step and note it. MySQL commits each statement of the step by itself."""
        is_postgresql = self._url.kind == POSTGRESQL
        async with self._transaction():
            for statement in migration.postgresql if is_postgresql else migration.mysql:
                await self.run(statement)
            await self.run(INSERT_MIGRATION, (migration.number, migration.name))

    async def transact(self, batches: Sequence[Batch], owner: Owner) -> None:
        """Write everything and the number of commits in one transaction.

        Raises StateTakenOverError, and writes nothing, when the schema is not of that owner's
        generation; StorageError.
        """
        async with self._transaction():
            for statement, rows in batches:
                await self.run_many(statement, rows)
            if not await self.run(_COUNT_COMMIT, (owner.commits, owner.generation)):
                raise StateTakenOverError(f"{self._name} was taken over by another gateway")

    async def raise_generation(self) -> None:
        """Have every commit of the owner before fail from here on. Needs no lock."""
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
    """Rows in a schema of a database server, which one store owns at a time and others may read."""

    successor_of: str | None = None
    """The identity of a state whose owner `open` puts out. Set by who knows that this one leads:
    an owner that hangs keeps its session, and with it the lock, for as long as it hangs."""
    check_identity: Callable[[str | None], None] | None = None
    """Called in `open` with the identity of the state that is there, None for none, before anything
    is written. Raises DataDirectoryError to leave a state of somebody else as it is."""
    on_lost: Callable[[], None] | None = None
    """Called once when another store is known to have taken the schema over."""

    def __init__(
        self,
        url: StateUrl,
        dialect: Dialect,
        session_type: type[ServerSession],
        clock: Clock,
        options: Options,
    ) -> None:
        """Name the schema; `open` connects."""
        super().__init__(f"the state store ({url})", dialect)
        self._url = url
        self._session_type = session_type
        self._clock = clock
        self._options = options
        self._session: ServerSession | None = None
        self._lock = asyncio.Lock()
        self._owner = Owner(0, 0)
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
        """Return a session that owns the schema. Calls `while_locked` while another one does.

        Raises DataDirectoryError when the server stays away, or the schema another's.
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
        """Put the owner before this one out, where it is known to be that one.

        The generation is the fence: its next commit fails, and so does its attempt to come back,
        though it may have the lock again first. What it commits until then is read afterwards.
        """
        if self.successor_of is None:
            return
        if await self._stored_identity(session) != self.successor_of:
            return
        _log.warning("the session of the gateway that led is ended", store=self._name)
        # First, as a commit in which it hangs would hold up the fence.
        await session.end_lock_holder()
        await session.raise_generation()

    async def _check_generation(self, session: ServerSession) -> None:
        """Raise StateTakenOverError when who has the lock is the next owner already."""
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
        self._owner = Owner(owner.generation + 1, owner.commits)
        await session.transact([(_RAISE_GENERATION, [()])], self._owner)

    async def _stored_identity(self, session: ServerSession) -> str | None:
        rows = await session.fetch(self._dialect.select_kind, (BINDING_KIND,))
        try:
            return identity_in(self._intact(BINDING_KIND, rows))
        except DamagedRowsError as error:
            raise damaged_identity(error) from error

    async def _read_owner(self, session: ServerSession) -> Owner:
        rows = await session.fetch(_SELECT_OWNER)
        if len(rows) != 1:
            raise StorageError(f"{self._name} has lost the row that says who owns it")
        return Owner(*rows[0])

    # --- using the session ------------------------------------------------------------------------

    async def submit(self, changes: Sequence[Change], batches: Sequence[Batch]) -> None:
        if self._options.reads_only:
            raise StorageError(f"{self._name} is open for reading alone")
        await super().submit(changes, batches)

    async def _fetch(self, statement: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]:
        # A caller that gives up must not leave half an answer on the session.
        return await asyncio.shield(self._run(lambda session: session.fetch(statement, parameters)))

    async def _transact(self, batches: Sequence[Batch]) -> None:
        wanted = self._owner._replace(commits=self._owner.commits + 1)

        async def transact(session: ServerSession) -> None:
            if self._owner != wanted:
                await session.transact(batches, wanted)
            self._owner = wanted

        await self._run(transact)

    async def _run(self, use: Callable[[ServerSession], Awaitable[_Result]]) -> _Result:
        """Use the session, and then the next one when it was lost meanwhile."""
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
        """Get a session again and find out what has become of the last commit.

        Raises StorageError, and leaves the store without a session, when that cannot be.
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
                # The commit that was under way may be stored: its caller must not take it for one
                # that is not.
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
                # A successor ends it each time, until it has the lock itself: then we are told.
                await session.aclose()
                if self._closing or self._clock.monotonic_s() >= deadline:
                    raise
                await self._pause()
            except BaseException:
                await session.aclose()
                raise
            else:
                return session

    async def _owner_again(self, session: ServerSession) -> Owner:
        """Return how far we have come. Raises StorageError when that is not what we know."""
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
        """Notice a lost session, and a server that was told to be careless, without being asked."""
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
    """Return the 64 bits by which a lock is known to a server."""
    return int.from_bytes(sha256(f"kgw state {name}".encode()).digest()[:8], "big", signed=True)


_SELECT_MIGRATIONS_TABLE: Final = (
    "SELECT 1 FROM information_schema.tables "
    "WHERE table_schema = ? AND table_name = 'schema_migration'"
)
_COUNT_COMMIT: Final = "UPDATE state_owner SET commits = ? WHERE id = 1 AND generation = ?"
_SELECT_OWNER: Final = "SELECT generation, commits FROM state_owner WHERE id = 1"
_RAISE_GENERATION: Final = "UPDATE state_owner SET generation = generation + 1 WHERE id = 1"
