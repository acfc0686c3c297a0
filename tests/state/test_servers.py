"""What a store on a database server does when the server, or its owner, is in trouble."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kgw.clock import SystemClock
from kgw.errors import (
    CorruptionError,
    DataDirectoryError,
    DiskFullError,
    ErrorCode,
    StorageError,
)
from kgw.state.base import Change, Row, StateTakenOverError
from kgw.state.history import LagHistoryPoint
from kgw.state.sql.migrations import MIGRATIONS, Migration
from kgw.state.sql.mysql import MysqlSession
from kgw.state.sql.postgresql import PostgresqlSession
from kgw.state.sql.server import Options, ServerSession, SessionLostError
from kgw.state.sql.stores import server_store
from tests import patience
from tests.state import support
from tests.state.servers import MariadbServer, free_port
from tests.state.test_databases import ADDED, NEXT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from kgw.state.sql.schema import Batch
    from kgw.state.sql.server import OwnerRow, ServerStateStore
    from tests.state.servers import DatabaseServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

SESSIONS: dict[str, type[ServerSession]] = {
    "postgresql": PostgresqlSession,
    "mysql": MysqlSession,
}


@pytest.fixture
def place(server: DatabaseServer) -> str:
    """Return an empty place on each kind of server."""
    return server.new_place()


class PausingClock(SystemClock):
    """The real clock. It counts the pauses of the store."""

    def __init__(self) -> None:
        self.pauses = 0

    async def sleep_until(self, monotonic_s: float) -> None:
        self.pauses += 1
        await super().sleep_until(monotonic_s)


QUICK = Options(lock_wait_s=0.2, retry_s=0.02)
"""Waits less for what does not happen in these tests."""
WATCHFUL = QUICK._replace(watch_s=0.05)


def opened(
    server: DatabaseServer, place: str, options: Options = QUICK
) -> AbstractAsyncContextManager[ServerStateStore]:
    """Open a store and close it again, whatever happens."""
    return support.opened(server_store(server.url(place), SystemClock(), options))


async def refusal(url: str, options: Options = QUICK) -> str:
    """Return why a store is not opened."""
    return await support.refusal(server_store(url, SystemClock(), options))


async def end_session(server: DatabaseServer, store: ServerStateStore) -> None:
    """End a store's session as an administrator would."""
    if server.kind == "postgresql":
        ((pid,),) = await store.fetch("SELECT pg_backend_pid()", ())
        server.execute(f"SELECT pg_terminate_backend({pid}, 5000)")
    else:
        ((pid,),) = await store.fetch("SELECT CONNECTION_ID()", ())
        server.execute(f"KILL {pid}")


async def until(condition: Callable[[], bool], *tasks: asyncio.Future[None]) -> None:
    """Wait for what a server brings about, in its own time, or for a task that fails."""
    while not condition():
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.005)


# --- who owns the schema ---


async def test_a_second_gateway_is_refused(server: DatabaseServer, place: str) -> None:
    """While one has the schema nobody else writes to it; another place is free."""
    async with opened(server, place) as store:
        await store.apply([Change("topic", "a", b"1")])
        message = await refusal(server.url(place))
        async with opened(server, server.new_place()) as other:
            assert await other.load("topic") == {}

    assert "in use by another gateway" in message
    async with opened(server, place) as store:
        assert {"a": Row(b"1", 1)} == await store.load("topic")


async def test_a_gateway_that_is_refused_leaves_no_session(
    server: DatabaseServer, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try of a supervisor would leave another one, until the server takes no more."""
    session_type = SESSIONS[server.kind]
    connect, aclose = session_type.connect, session_type.aclose
    left: set[ServerSession] = set()

    async def noted_connect(session: ServerSession) -> None:
        left.add(session)
        await connect(session)

    async def noted_aclose(session: ServerSession) -> None:
        await aclose(session)
        left.discard(session)

    async with opened(server, place):
        monkeypatch.setattr(session_type, "connect", noted_connect)
        monkeypatch.setattr(session_type, "aclose", noted_aclose)
        assert "in use by another gateway" in await refusal(server.url(place))
        assert not left


async def test_gateways_that_start_at_once_agree_on_the_schema(
    server: DatabaseServer, place: str
) -> None:
    """Steps are taken under the lock: each of several finds the schema whole."""

    async def start(number: int) -> None:
        async with opened(server, place, QUICK._replace(lock_wait_s=20)) as store:
            await store.apply([Change("topic", str(number), b"1", 0)])

    await asyncio.gather(*map(start, range(4)))

    async with opened(server, place) as store:
        assert {str(number) for number in range(4)} == set(await store.load("topic"))


async def test_a_new_owner_puts_the_old_one_out(server: DatabaseServer, place: str) -> None:
    """Even one that still has its session, as behind a proxy that loses locks, writes nothing."""
    async with opened(server, place) as store:
        server.execute("UPDATE state_owner SET generation = generation + 1", place)

        # The coordinators' clients are told to look for another one, and those of topics, too.
        for _ in range(2):
            with pytest.raises(StateTakenOverError, match="taken over by another gateway"):
                await store.apply([Change("topic", "a", b"1")])

        assert store.failure is not None
        assert await store.load("topic") == {}


# --- a session that is lost ---


async def test_a_session_that_is_lost_again_and_again_is_replaced(
    server: DatabaseServer, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor ends them until it has the lock; the store goes on until it knows of one.

    It pauses before each try, so that it does not take the server's time from the successor.
    """
    losses = 5
    clock = PausingClock()

    def breaking(
        fetch: Callable[..., Awaitable[Sequence[Sequence[Any]]]],
    ) -> Callable[..., Awaitable[Sequence[Sequence[Any]]]]:
        async def broken(session: ServerSession, statement: str, *rest: Any) -> Any:
            nonlocal losses
            if losses and "state_owner" in statement:
                losses -= 1
                raise SessionLostError("the administrator ended it")
            return await fetch(session, statement, *rest)

        return broken

    async with support.opened(server_store(server.url(place), clock, QUICK)) as store:
        for one in PostgresqlSession, MysqlSession:
            monkeypatch.setattr(one, "fetch", breaking(one.fetch))
        await end_session(server, store)
        await store.apply([Change("topic", "a", b"1")])

        assert not losses
        assert clock.pauses >= 5
        assert {"a": Row(b"1", 1)} == await store.load("topic")
        assert store.failure is None


async def test_a_lost_session_is_replaced(server: DatabaseServer, place: str) -> None:
    """A server that restarts, or ends the session, costs its time and nothing else."""
    async with opened(server, place) as store:
        await store.apply([Change("topic", "a", b"1")])
        for version in range(2, 5):
            await end_session(server, store)
            await store.apply([Change("topic", "a", b"%d" % version, version - 1)])
        await end_session(server, store)

        assert {"a": Row(b"4", 4)} == await store.load("topic")
        assert store.failure is None


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_commit_in_doubt_is_cleared_up(
    server: DatabaseServer, place: str, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    """A session that ends around a commit leads to exactly one write of it."""
    session_type = SESSIONS[server.kind]
    transact = session_type.transact

    async def doubtful(self: ServerSession, batches: Sequence[Batch], owner: OwnerRow) -> None:
        monkeypatch.undo()
        if is_stored:
            await transact(self, batches, owner)
        raise SessionLostError("lost")

    async with opened(server, place) as store:
        monkeypatch.setattr(session_type, "transact", doubtful)
        await store.apply([Change("topic", "a", b"1")])
        await store.apply([Change("topic", "b", b"1")])

        assert {"a": Row(b"1", 1), "b": Row(b"1", 1)} == await store.load("topic")
        assert store.failure is None


async def test_lost_commits_are_noticed(server: DatabaseServer, place: str) -> None:
    """A server that has forgotten what it acknowledged, as a replica may, is not written to."""
    async with opened(server, place) as store:
        await store.apply([Change("topic", "a", b"1")])
        await end_session(server, store)
        server.execute("UPDATE state_owner SET commits = commits - 1", place)

        with pytest.raises(StorageError, match="what was acknowledged is lost"):
            await store.apply([Change("topic", "b", b"1")])
        assert "what was acknowledged is lost" in (store.failure or "")
        with pytest.raises(StorageError):
            await store.load("topic")

    async with opened(server, place) as store:
        assert {"a"} == set(await store.load("topic"))


async def test_an_owner_of_the_meantime_is_noticed(server: DatabaseServer, place: str) -> None:
    """Who was away while another gateway ran does not go on with what it remembers."""
    async with opened(server, place) as store:
        await end_session(server, store)
        async with opened(server, place) as other:
            await other.apply([Change("topic", "a", b"1")])

        # It was under way when the session ended: what became of it is not known, as far as its
        # caller is concerned. What comes later is refused.
        with pytest.raises(StorageError, match="taken over by another gateway") as first:
            await store.apply([Change("topic", "b", b"1")])
        assert not isinstance(first.value, StateTakenOverError)
        assert store.failure is not None
        for _ in range(2):
            with pytest.raises(StateTakenOverError, match="taken over by another gateway"):
                await store.apply([Change("topic", "b", b"1")])


async def test_a_statement_that_never_ends_is_given_up(server: DatabaseServer, place: str) -> None:
    """It costs the session each time, and its caller gets an error in the end."""
    sleep = "SELECT pg_sleep(20)" if server.kind == "postgresql" else "SELECT SLEEP(20)"
    async with opened(
        server, place, QUICK._replace(timeout_s=min(patience.seconds(1), 4.0))
    ) as store:
        with pytest.raises(StorageError):
            await store.fetch(sleep, ())


async def test_an_idle_store_notices_its_loss(
    server: DatabaseServer, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Readiness does not wait for a write, and comes back with the server."""
    caplog.set_level("INFO")
    async with opened(server, place, WATCHFUL) as store:
        await end_session(server, store)
        await until(lambda: "state store is back" in caplog.text and store.failure is None)

        server.execute("UPDATE state_owner SET generation = generation + 1", place)
        await end_session(server, store)
        await until(lambda: "taken over" in (store.failure or ""))


async def test_closing_does_not_wait_for_a_server_that_is_away(
    server: DatabaseServer, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was submitted is refused when its outcome cannot be learnt before the end."""
    async with opened(server, place) as store:

        async def away(_: ServerSession) -> None:
            raise SessionLostError("away")

        monkeypatch.setattr(SESSIONS[server.kind], "connect", away)
        await end_session(server, store)
        pending = asyncio.ensure_future(store.apply([Change("topic", "a", b"1")]))
        await until(lambda: store.failure is not None)
        await store.aclose()

        with pytest.raises(DataDirectoryError, match="cannot be reached"):
            await pending


# --- a server that dies ---


@pytest.fixture
def mortal_server(server: DatabaseServer) -> Iterator[DatabaseServer]:
    """Return each kind of server, which the test may kill."""
    yield server
    if not server.is_running:
        server.start()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.full)])
async def test_no_acknowledged_commit_is_lost_when_the_server_is_killed(
    mortal_server: DatabaseServer, kills: int
) -> None:
    """Kill -9 in the middle of commits, again and again: the store carries on, and all is there."""
    place = mortal_server.new_place()
    acknowledged: dict[str, int] = {}
    is_over = False

    async def write(store: ServerStateStore, key: str) -> None:
        while not is_over:
            version = acknowledged.get(key, 0)
            await store.apply([Change("topic", key, b"%d" % version, version)])
            acknowledged[key] = version + 1

    async with opened(mortal_server, place) as store:
        writers = [asyncio.ensure_future(write(store, str(number))) for number in range(8)]
        for _ in range(kills):
            await until(lambda: len(acknowledged) == 8, *writers)
            least = min(acknowledged.values()) + 5
            await until(lambda: min(acknowledged.values()) >= least, *writers)  # noqa: B023
            await asyncio.to_thread(mortal_server.kill)
            await until(lambda: "is away" in (store.failure or ""), *writers)
            await asyncio.to_thread(mortal_server.start)
        target = sum(acknowledged.values()) + 20
        await until(lambda: sum(acknowledged.values()) >= target, *writers)
        is_over = True
        await asyncio.gather(*writers)
        assert store.failure is None

        rows = await store.load("topic")
    assert acknowledged == {key: row.version for key, row in rows.items()}
    assert all(row.value == b"%d" % (row.version - 1) for row in rows.values())


async def test_a_server_that_stays_away_stops_the_store(mortal_server: DatabaseServer) -> None:
    """After the time limit nothing is written until the store is opened again; nothing is lost."""
    place = mortal_server.new_place()
    async with opened(
        mortal_server, place, QUICK._replace(timeout_s=patience.seconds(0.5))
    ) as store:
        await store.apply([Change("topic", "a", b"1")])
        await asyncio.to_thread(mortal_server.kill)

        outcomes = await asyncio.gather(
            *(store.apply([Change("topic", "b", b"%d" % number)]) for number in range(3)),
            return_exceptions=True,
        )
        assert all(isinstance(outcome, StorageError) for outcome in outcomes)
        assert "cannot be reached" in (store.failure or "")
        assert "cannot be reached" in await refusal(
            mortal_server.url(place), QUICK._replace(timeout_s=0.1)
        )

        await asyncio.to_thread(mortal_server.start)
        with pytest.raises(StorageError, match="cannot be reached"):
            await store.apply([Change("topic", "b", b"1")])

    async with opened(mortal_server, place) as store:
        rows = await store.load("topic")
    assert rows["a"] == Row(b"1", 1)


async def test_a_start_waits_for_the_server(mortal_server: DatabaseServer) -> None:
    """Both may be started at once, in any order."""
    place = mortal_server.new_place()
    await asyncio.to_thread(mortal_server.kill)
    starting = asyncio.ensure_future(asyncio.to_thread(mortal_server.start))

    async with opened(mortal_server, place) as store:
        assert await store.load("topic") == {}
    await starting


# --- what a server has to promise ---


async def test_a_server_that_would_lose_commits_is_refused(
    server: DatabaseServer, place: str
) -> None:
    """At the start, and when it is told so later."""
    if server.kind == "postgresql":
        careless: tuple[str, ...] = ("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        careful: tuple[str, ...] = ("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")
        name = "fsync=off"
    else:
        careless = ("SET GLOBAL innodb_flush_log_at_trx_commit = 2",)
        careful = ("SET GLOBAL innodb_flush_log_at_trx_commit = 1",)
        name = "innodb_flush_log_at_trx_commit=2"
    async with opened(server, place, WATCHFUL) as store:
        try:
            for statement in careless:
                server.execute(statement)
            await until(lambda: store.failure is not None)
            assert name in await refusal(server.url(server.new_place()))
        finally:
            for statement in careful:
                server.execute(statement)
        assert name in (store.failure or "")
        with pytest.raises(StorageError, match=name):
            await store.apply([Change("topic", "a", b"1")])

    while True:  # the setting takes a moment
        with suppress(DataDirectoryError):
            async with opened(server, place) as store:
                break


async def test_synchronous_commit_is_turned_on(postgresql_server: DatabaseServer) -> None:
    """It is the session's to choose, whatever the user's or the server's default says."""
    place = postgresql_server.new_place()
    try:
        postgresql_server.execute("ALTER USER kgw SET synchronous_commit = off")
        async with opened(postgresql_server, place) as store:
            assert [("on",)] == await store.fetch("SHOW synchronous_commit", ())
    finally:
        postgresql_server.execute("ALTER USER kgw RESET synchronous_commit")


async def test_an_engine_without_transactions_is_refused(mysql_server: DatabaseServer) -> None:
    """All or nothing is then not to be had."""
    place = mysql_server.new_place()
    async with opened(mysql_server, place):
        pass
    mysql_server.execute("ALTER TABLE state_entry ENGINE = MyISAM", place)

    assert "table state_entry is kept by MyISAM" in await refusal(mysql_server.url(place))


async def test_a_value_above_the_packet_limit_fails_alone(mysql_server: DatabaseServer) -> None:
    """The server would end the session over it; its neighbours in the commit are written."""
    async with opened(mysql_server, mysql_server.new_place()) as store:
        large, small = await asyncio.gather(
            store.apply([Change("topic", "large", bytes(9 << 20))]),
            store.apply([Change("topic", "small", bytes(7 << 20))]),
            return_exceptions=True,
        )

        assert "max_allowed_packet" in str(large)
        assert small is None
        assert {"small"} == set(await store.load("topic"))
        assert store.failure is None


async def test_a_full_disk_refuses_and_recovers(server: DatabaseServer, place: str) -> None:
    """Nothing of the set is stored; the store goes on."""
    full = (
        "DO $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$"
        if server.kind == "postgresql"
        else "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021"
    )
    async with opened(server, place) as store:
        with pytest.raises(DiskFullError, match="no space left"):
            await store.submit([Change("topic", "a", b"1")], [(full, [()])])

        assert await store.load("topic") == {}
        await store.apply([Change("topic", "b", b"1")])
        assert store.failure is None


async def test_damage_that_postgresql_finds_is_ours_too(postgresql_server: DatabaseServer) -> None:
    """A page that fails its checksum is corruption, and final for writes."""
    damaged = "DO $$ BEGIN RAISE EXCEPTION 'bad page' USING ERRCODE = 'XX001'; END $$"
    async with opened(postgresql_server, postgresql_server.new_place()) as store:
        with pytest.raises(CorruptionError, match="bad page") as caught:
            await store.submit((), [(damaged, [()])])
        assert ErrorCode.KAFKA_STORAGE_ERROR is caught.value.code
        assert store.failure is not None


async def test_another_error_is_final(server: DatabaseServer, place: str) -> None:
    """A table that was dropped under the gateway: no more writes until it is opened again."""
    async with opened(server, place) as store:
        with pytest.raises(StorageError):
            await store.submit((), [("DELETE FROM no_such_table", [()])])
        with pytest.raises(StorageError, match="no_such_table"):
            await store.apply([Change("topic", "a", b"1")])
        assert await store.load("topic") == {}


# --- migrations ---


@pytest.mark.parametrize("number", range(1, NEXT))
async def test_a_step_that_was_interrupted_is_taken_again(
    server: DatabaseServer, place: str, number: int
) -> None:
    """After a crash behind any of its statements, whether or not those are undone by the server."""
    step = MIGRATIONS[number - 1]
    statements = step.postgresql if server.kind == "postgresql" else step.mysql
    for count in range(len(statements) + 1):
        broken = (*statements[:count], "SELECT * FROM no_such_table")
        half = Migration(number, step.name, (), broken, broken)
        message = await refusal(
            server.url(place), QUICK._replace(migrations=(*MIGRATIONS[: number - 1], half))
        )
        assert "no_such_table" in message

    async with opened(server, place) as store:
        await store.apply([Change("topic", "a", b"1")])
        await store.lag_history.append([LagHistoryPoint(1, "g", "t", 0, 1, 2)])


# --- reaching it ---


async def test_a_server_that_is_not_there_is_an_error(server: DatabaseServer) -> None:
    """After the time limit, and with its address, which has no password."""
    scheme = server.url("x").partition(":")[0]
    url = f"{scheme}://kgw@127.0.0.1:{free_port()}/nothing"

    message = await refusal(url, QUICK._replace(password="secret", timeout_s=0.1))

    assert "database nothing at 127.0.0.1" in message
    assert "cannot be reached" in message
    assert "secret" not in message


async def test_a_database_that_is_not_there_is_an_error_at_once(server: DatabaseServer) -> None:
    """Waiting would not make one."""
    scheme = server.url("x").partition(":")[0]

    message = await refusal(f"{scheme}://{server.user}@127.0.0.1:{server.port}/nowhere")

    assert "cannot be opened" in message
    assert "nowhere" in message


async def test_a_password_is_used(server: DatabaseServer, place: str) -> None:
    """The right one opens, a wrong one is refused at once."""
    if server.kind == "postgresql":
        hba = server.root / "data" / "pg_hba.conf"
        rules = await asyncio.to_thread(hba.read_text)
        hba.write_text("host all guest 127.0.0.1/32 scram-sha-256\n" + rules)
        server.execute("CREATE USER guest SUPERUSER PASSWORD 'right'")
        server.execute("SELECT pg_reload_conf()")
    else:
        server.execute("CREATE USER guest@'%' IDENTIFIED BY 'right'")
        server.execute("GRANT ALL ON *.* TO guest@'%'")
    url = server.url(place).replace(f"//{server.user}@", "//guest@")
    try:
        store = server_store(url, SystemClock(), QUICK._replace(password="right"))
        await store.open()
        await store.apply([Change("topic", "a", b"1")])
        await store.aclose()

        message = await refusal(url, QUICK._replace(password="wrong"))
        assert "cannot be opened" in message
        assert "wrong" not in message
    finally:
        if server.kind == "postgresql":
            server.execute("DROP OWNED BY guest CASCADE")
            server.execute("DROP USER guest")
            hba.write_text(rules)
            server.execute("SELECT pg_reload_conf()")
        else:
            server.execute("DROP USER guest@'%'")


async def test_connections_are_encrypted_when_asked_for(mysql_server: DatabaseServer) -> None:
    """A certificate that nobody vouches for is taken with sslmode=require alone."""
    impatient = QUICK._replace(timeout_s=patience.seconds(0.2))
    place = mysql_server.new_place()
    assert "SSL" in await refusal(f"{mysql_server.url(place)}?sslmode=require", impatient)

    class TlsServer(MariadbServer):
        has_tls = True

    server = await asyncio.to_thread(TlsServer)
    try:
        url = server.url(await asyncio.to_thread(server.new_place))
        store = server_store(f"{url}?sslmode=require", SystemClock())
        await store.open()
        ((_, cipher),) = await store.fetch("SHOW STATUS LIKE 'Ssl_cipher'", ())
        await store.aclose()
        assert cipher

        for mode in ("verify-ca", "verify-full"):
            message = await refusal(f"{url}?sslmode={mode}", impatient)
            assert "certificate" in message.lower()
    finally:
        await asyncio.to_thread(server.remove)


async def test_reading_and_writing_is_all_that_a_user_needs(
    server: DatabaseServer, place: str
) -> None:
    """Once the schema is there: who may not create tables may run the gateway."""
    async with opened(server, place) as store:
        await store.apply([Change("topic", "a", b"1")])
    user = f"writer{place}"
    if server.kind == "postgresql":
        grants: tuple[str, ...] = (
            f"CREATE USER {user}",
            f"GRANT USAGE ON SCHEMA {place} TO {user}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place} TO {user}",
        )
    else:
        grants = (
            f"CREATE USER {user}@'%'",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {place}.* TO {user}@'%'",
        )
    for grant in grants:
        server.execute(grant)
    url = server.url(place).replace(f"//{server.user}@", f"//{user}@")
    store = server_store(url, SystemClock())
    await store.open()
    await store.apply([Change("topic", "a", b"2", 1)])
    await store.aclose()

    message = await refusal(url, QUICK._replace(migrations=(*MIGRATIONS, ADDED)))
    assert "cannot be opened" in message
    assert "denied" in message


async def test_tls_files_that_are_missing_are_an_error(server: DatabaseServer, place: str) -> None:
    """Before anything is sent."""
    url = server.url(place)
    joined = f"{url}{'&' if '?' in url else '?'}sslmode=verify-full&sslrootcert=/nowhere.pem"

    assert "TLS for the state store" in await refusal(joined)
