from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import (
    CorruptionError,
    DataDirectoryError,
    DiskFullError,
    ErrorCode,
    StorageError,
)
from kgw.state.base import Change, ConflictError, Row
from kgw.state.sql import sqlite_file
from kgw.state.sql.commit_note import CountedConnection
from kgw.state.sql.migrations import MIGRATIONS, Migration
from kgw.state.sql.sqlite import SqliteStateStore
from tests import patience
from tests.state import support
from tests.state.support import beside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the database is to be."""
    return tmp_path / "meta.sqlite"


def test_a_store_that_nobody_closes_keeps_no_process_from_ending(path: Path) -> None:
    """Its thread goes with the process, as after an error on the way to a start."""
    script = (
        "import asyncio, sys; from kgw.state.sql.sqlite import SqliteStateStore as Store;"
        "store = Store(sys.argv[1]); asyncio.run(store.open()); print('open')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, path],
        stdout=subprocess.PIPE,
        text=True,
        timeout=patience.seconds(15),
        check=False,
    )
    assert (0, "open\n") == (ended.returncode, ended.stdout)


async def test_sets_are_answered_although_the_close_that_waits_for_them_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gave up may close again."""
    begun, going_on = Event(), Event()
    commit = CountedConnection.commit

    def slow(connection: CountedConnection) -> None:
        begun.set()
        assert going_on.wait(patience.seconds(10))
        commit(connection)

    store = SqliteStateStore(path)
    await store.open()
    monkeypatch.setattr(CountedConnection, "commit", slow)
    applying = asyncio.ensure_future(store.apply([Change("kind", "key", b"value")]))
    await asyncio.to_thread(begun.wait, 10)
    closing = asyncio.ensure_future(store.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    going_on.set()
    await applying
    await store.aclose()


def opened(path: Path, **options: Any) -> AbstractAsyncContextManager[SqliteStateStore]:
    """Open the store at a path and close it again, whatever happens."""
    return support.opened(SqliteStateStore(path, **options))


async def write(path: Path, count: int = 3) -> None:
    """Make a database with rows of one kind."""
    async with opened(path) as store:
        await store.apply([Change("topic", f"key{index}", b"value") for index in range(count)])


async def refusal(path: Path, **options: Any) -> str:
    """Return why a database is not opened; it must be left as it was."""
    before = contents(path.parent)
    why = await support.refusal(SqliteStateStore(path, **options))
    assert before == contents(path.parent)
    return why


def contents(directory: Path) -> dict[str, bytes]:
    """Return everything in a directory, b"" standing for what is no file."""
    return {one.name: one.read_bytes() if one.is_file() else b"" for one in directory.glob("*")}


async def test_rows_outlive_the_process(path: Path) -> None:
    """What was applied is there after closing and opening; one file is left."""
    await write(path)

    assert [path] == list(path.parent.iterdir())
    async with opened(path, quick_check=True) as store:
        assert {f"key{index}": Row(b"value", 1) for index in range(3)} == await store.load("topic")


async def test_every_cut_of_the_write_ahead_log_leaves_a_beginning(
    path: Path, tmp_path: Path
) -> None:
    """A torn log loses its last sets whole, never a part of one."""
    async with opened(path) as store:
        for index in range(4):
            await store.apply(
                [Change("topic", "a", b"%d" % index), Change("topic", "b", b"%d" % index)]
            )
        data, log = path.read_bytes(), beside(path, "-wal").read_bytes()
    killed = tmp_path / "killed" / "meta.sqlite"
    killed.parent.mkdir()

    versions = set()
    for length in range(0, len(log) + 1, 1_000):
        killed.write_bytes(data)
        beside(killed, "-wal").write_bytes(log[:length])
        async with opened(killed, quick_check=True) as store:
            rows = await store.load("topic")
        assert rows.get("a") == rows.get("b")
        versions.add(rows["a"].version if rows else 0)

    assert len(versions) > 2


async def test_the_files_are_for_their_owner_alone(path: Path) -> None:
    """Database and write-ahead log have mode 0600, as they hold users' state."""
    async with opened(path) as store:
        await store.apply([Change("topic", "a", b"1")])
        modes = {stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}

    assert {0o600} == modes


async def test_commits_are_synced(path: Path) -> None:
    """Write-ahead log with synchronous=FULL: NORMAL may lose the last commits."""
    async with opened(path) as store:
        pragmas = {}
        for name in ("journal_mode", "synchronous", "locking_mode", "trusted_schema"):
            ((value,),) = await store.fetch(f"PRAGMA {name}", ())
            pragmas[name] = value

    assert {
        "journal_mode": "wal",
        "synchronous": 2,
        "locking_mode": "exclusive",
        "trusted_schema": 0,
    } == pragmas


async def test_sets_that_come_during_a_commit_share_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they come one after the other: a commit each would cost a sync each."""
    async with opened(path) as store:
        commits = 0
        commit = CountedConnection.commit
        may_commit = Event()

        def counted(connection: CountedConnection) -> None:
            nonlocal commits
            commits += 1
            may_commit.wait(patience.seconds(20))
            commit(connection)

        monkeypatch.setattr(CountedConnection, "commit", counted)
        applied = []
        for index in range(20):
            applied.append(asyncio.ensure_future(store.apply([Change("topic", str(index), b"")])))
            for _ in range(3):
                await asyncio.sleep(0)
        may_commit.set()
        await asyncio.gather(*applied)

    assert 2 == commits


async def test_a_new_database_is_on_disk_before_it_has_its_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss could leave an empty file there, which every later start would refuse."""
    steps: list[tuple[str, str]] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        steps.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        real_fsync(descriptor)

    def rename(source: str, target: str) -> None:
        steps.append(("rename", str(target)))
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    async with opened(path):
        pass

    begun = [("sync", f"{path}.new"), ("rename", str(path)), ("sync", str(path.parent))]
    assert begun == [step for step in steps if step in begun]


async def test_a_group_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits behind many changes gets a commit of his own."""
    commits = 0
    commit = CountedConnection.commit

    def counted(connection: CountedConnection) -> None:
        nonlocal commits
        commits += 1
        commit(connection)

    async with opened(path) as store:
        monkeypatch.setattr(CountedConnection, "commit", counted)
        await asyncio.gather(
            *(
                store.apply([Change("topic", f"{index}-{key}", b"x") for key in range(4_000)])
                for index in range(5)
            )
        )
        assert 20_000 == len(await store.load("topic"))
        assert 3 == commits


async def test_closing_waits_for_what_was_submitted(path: Path) -> None:
    """A set that was taken is committed before the file is let go; later ones are refused."""
    store = SqliteStateStore(path)
    await store.open()
    pending = asyncio.ensure_future(store.apply([Change("topic", "a", b"1")]))
    await asyncio.sleep(0)

    closing_task = asyncio.ensure_future(store.aclose())
    await asyncio.sleep(0)
    with pytest.raises(StorageError, match="closing"):
        await store.apply([Change("topic", "b", b"1")])
    await closing_task
    await store.aclose()

    await pending
    with pytest.raises(StorageError, match="not open"):
        await store.apply([Change("topic", "b", b"1")])
    with pytest.raises(StorageError, match="not open"):
        await store.load("topic")
    async with opened(path) as again:
        assert {"a": Row(b"1", 1)} == await again.load("topic")


# --- damage ---


async def test_a_broken_file_is_refused_and_left(path: Path) -> None:
    """Not a database, cut off, overwritten: a clear message, and nothing is created over it."""
    await write(path, 500)
    whole = path.read_bytes()
    for broken in (
        b"not a database at all" * 100,
        whole[:50],
        whole[:5_000],
        whole[:4_096] + b"\xa5" * (len(whole) - 4_096),
        b"\0" * len(whole),
    ):
        path.write_bytes(broken)
        assert "damaged" in await refusal(path, quick_check=True) or broken[:1] == b"\0"


def make_another_programs(path: Path) -> None:
    """Make a database that is not ours."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (id)")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        # SQLite would take it for a new database, and begin without a topic.
        pytest.param(lambda path: path.write_bytes(b""), "is empty", id="empty"),
        # A new database would take the old one's write-ahead log for its own.
        pytest.param(lambda path: beside(path, "-wal").write_bytes(b"x"), "its write", id="log"),
        pytest.param(make_another_programs, "not a state database of kgw", id="other"),
        pytest.param(
            lambda path: path.symlink_to(path.with_name("nowhere")), "cannot be opened", id="link"
        ),
        pytest.param(lambda path: path.mkdir(), "cannot be opened", id="directory"),
        # Making the data directory is the backend's business.
        pytest.param(lambda path: path.parent.rmdir(), "cannot be opened", id="nothing"),
    ],
)
async def test_what_is_no_database_of_ours_is_refused_and_left(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    """Nothing is made of it, and no table added to somebody's data."""
    path = tmp_path / "data" / "meta.sqlite"
    path.parent.mkdir()
    make(path)

    assert why in await refusal(path)


async def test_a_creation_that_was_interrupted_begins_again(path: Path) -> None:
    """What a crash left beside the final name is nobody's."""
    beside(path, ".new").write_bytes(b"half a database")
    beside(path, ".new-journal").write_bytes(b"half a journal")
    beside(path, ".new-wal").write_bytes(b"half a log")

    await write(path)

    assert [path] == list(path.parent.iterdir())


async def test_a_database_in_use_is_refused(path: Path) -> None:
    """Exclusive mode keeps a second connection out, which SQLite's defect would need."""
    async with opened(path):
        store = SqliteStateStore(path)
        with pytest.raises(DataDirectoryError, match="in use"):
            await store.open()
        await store.aclose()


def test_a_quick_check_that_finds_something_refuses(path: Path) -> None:
    """Structure that still parses but does not add up is damage too."""
    connection = sqlite_file.open_database(path, MIGRATIONS, quick_check=False, report=print)
    connection.execute("CREATE TABLE other (id)")
    connection.execute("INSERT INTO other VALUES (NULL)")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE other (id NOT NULL)' WHERE name = 'other'"
    )
    connection.commit()
    connection.close()

    with pytest.raises(DataDirectoryError, match="is damaged"):
        sqlite_file.open_database(path, MIGRATIONS, quick_check=True, report=print)


async def test_a_refused_set_may_have_been_given_up(path: Path) -> None:
    """A conflict has nobody to be told to when its caller was cancelled."""
    async with opened(path) as store:
        await store.apply([Change("topic", "a", b"1")])
        given_up = asyncio.ensure_future(store.apply([Change("topic", "a", b"2", 0)]))
        other = asyncio.ensure_future(store.apply([Change("topic", "b", b"1")]))
        await asyncio.sleep(0)
        given_up.cancel()

        await other

        assert given_up.cancelled()


# --- migrations ---

NEXT = len(MIGRATIONS) + 1
ADDED = Migration(
    NEXT, "added", ("CREATE TABLE later (id INTEGER)", "INSERT INTO later VALUES (1)")
)
BROKEN = Migration(NEXT, "broken", ("CREATE TABLE later (id INTEGER)", "CREATE TABLE later (id)"))


async def test_an_open_that_is_given_up_leaves_the_file_free(path: Path) -> None:
    """Whenever it is: the next one is not refused because the file is in use."""
    await write(path)
    store = SqliteStateStore(path, quick_check=True)
    for turns in (0, 1, 2, 3, *(1 << power for power in range(2, 10))):
        opening = asyncio.ensure_future(store.open())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await opening
        await store.aclose()
        async with opened(path) as again:
            assert 3 == len(await again.load("topic"))


async def test_a_step_that_fails_leaves_nothing(path: Path) -> None:
    """Each step is a transaction: half of it does not stand."""
    await write(path)
    store = SqliteStateStore(path, migrations=(*MIGRATIONS, BROKEN))
    with pytest.raises(DataDirectoryError, match="already exists"):
        await store.open()
    await store.aclose()

    async with opened(path, migrations=(*MIGRATIONS, ADDED)) as again:
        assert len(await again.load("topic")) == 3


# --- a disk that fails ---


@contextmanager
def failing(name: str, *methods: str) -> Iterator[None]:
    """Have methods of a connection raise an error as SQLite's library raises it."""
    error = sqlite3.OperationalError(name)
    error.sqlite_errorcode = getattr(sqlite3, name)

    def fail(*_: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        for method in methods:
            patched.setattr(CountedConnection, method, fail)
        yield


async def test_a_full_disk_refuses_and_recovers(path: Path) -> None:
    """Nothing of the set is stored; the store goes on once there is room."""
    async with opened(path) as store:
        await store.apply([Change("topic", "a", b"1")])
        ((pages,),) = await store.fetch("PRAGMA page_count", ())
        await store.fetch(f"PRAGMA max_page_count = {pages + 2}", ())

        with pytest.raises(DiskFullError, match="no space left"):
            await store.apply([Change("topic", "a", b"2"), Change("topic", "b", bytes(1 << 20))])
        assert {"a": Row(b"1", 1)} == await store.load("topic")
        assert store.failure is None

        await store.fetch("PRAGMA max_page_count = 100000", ())
        await store.apply([Change("topic", "b", bytes(1 << 20))])
        assert {"a", "b"} == set(await store.load("topic"))


@pytest.mark.parametrize("method", ["executemany", "commit", "execute"])
@pytest.mark.parametrize("name", ["SQLITE_IOERR_FSYNC", "SQLITE_IOERR_WRITE", "SQLITE_CORRUPT"])
async def test_an_error_of_the_disk_is_final(path: Path, method: str, name: str) -> None:
    """After a failed sync or write nothing is taken until the next open; reading goes on."""
    await write(path)
    async with opened(path) as store:
        with failing(name, method):
            outcomes = await asyncio.gather(
                *(store.apply([Change("topic", str(index), b"x")]) for index in range(3)),
                return_exceptions=True,
            )
        codes = [outcome.code for outcome in outcomes if isinstance(outcome, StorageError)]
        assert [ErrorCode.KAFKA_STORAGE_ERROR] * 3 == codes
        assert isinstance(outcomes[0], CorruptionError) == (name == "SQLITE_CORRUPT")

        with pytest.raises(StorageError, match=name):
            await store.apply([Change("topic", "later", b"x")])
        assert store.failure is not None
        assert len(await store.load("topic")) == 3

    async with opened(path) as again:
        await again.apply([Change("topic", "later", b"x")])
        assert again.failure is None


async def test_nothing_of_a_set_is_left_for_the_next_commit(path: Path) -> None:
    """A value that Python cannot hand to SQLite fails its set, all of it, and no other."""
    statement = "INSERT INTO state_entry VALUES (?, ?, ?, ?, ?)"
    rows = [("topic", key, b"x", version, 0) for key, version in (("half", 1), ("rest", 1 << 70))]
    async with opened(path) as store:
        with pytest.raises(OverflowError):
            await store.submit((), [(statement, rows)])
        await store.apply([Change("topic", "b", b"x")])
        assert ["b"] == list(await store.load("topic"))


async def test_a_rollback_that_fails_is_final_too(path: Path) -> None:
    """Even a full disk is, when the transaction cannot be undone."""
    async with opened(path) as store:
        with failing("SQLITE_FULL", "commit", "rollback"), pytest.raises(DiskFullError):
            await store.apply([Change("topic", "a", b"x")])

        assert store.failure is not None


async def test_a_set_in_flight_when_the_store_fails_is_refused(path: Path) -> None:
    """Who waited for the next commit gets an error too, and conflicts do not hide it."""
    async with opened(path) as store:
        await store.apply([Change("topic", "a", b"1")])
        with failing("SQLITE_IOERR_FSYNC", "commit"):
            outcomes = [asyncio.ensure_future(store.apply([Change("topic", "b", b"1")]))]
            await asyncio.sleep(0)
            outcomes += [
                asyncio.ensure_future(store.apply([change]))
                for change in (Change("topic", "a", b"1", 0), Change("topic", "c", b"1"))
            ]
            errors = await asyncio.gather(*outcomes, return_exceptions=True)

        assert not any(isinstance(error, ConflictError) for error in errors)
        assert all(isinstance(error, StorageError) for error in errors)


async def test_reading_errors_are_storage_errors(path: Path) -> None:
    """A read that fails says so; it is never an empty answer."""
    await write(path)
    async with opened(path) as store:
        with (
            failing("SQLITE_IOERR_READ", "execute"),
            pytest.raises(StorageError, match="SQLITE_IOERR_READ"),
        ):
            await store.load("topic")


async def test_a_file_system_without_write_ahead_logs_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another journal mode would not keep the promise; it is not used silently."""

    class MemoryConnection(sqlite3.Connection):
        """A database that has no file, and so no log."""

    def connect(_: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", factory=MemoryConnection)
        connection.execute(f"PRAGMA application_id = {sqlite_file.APPLICATION_ID}")
        return connection

    await write(path)
    monkeypatch.setattr(sqlite_file, "_connect", connect)

    assert "cannot use a write-ahead log, only memory" in await refusal(path)
