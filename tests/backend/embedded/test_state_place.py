"""A data directory and the database that has its state find each other, and nobody else."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.offline.opening import opened_state
from kgw.backend.embedded.offline.state_copy import SAMPLES_PER_SET, copy_state
from kgw.backend.embedded.state_place import read_place
from kgw.backend.registry import open_backend
from kgw.clock import SystemClock
from kgw.config import Config, ConfigError
from kgw.config.state_url import StateUrlError
from kgw.errors import DataDirectoryError
from kgw.state.base import Change, DamagedRowsError
from kgw.state.history import LagHistoryPoint
from kgw.state.kinds import BINDING_KIND, COPYING_KEY
from kgw.state.sql.stores import server_store
from kgw.testing.backend_harness import KEY, SETTINGS, TOPIC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.base import Backend
    from tests.state.servers import DatabaseServer

SAMPLES = [LagHistoryPoint(number // 3, "g", "t", number % 3, number, 9) for number in range(20)]


@pytest.fixture
def url(database_server: DatabaseServer) -> str:
    """Return the address of an empty place on each kind of server."""
    return database_server.url(database_server.new_place())


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    """Return where the data directory is to be."""
    return str(tmp_path / "data")


@asynccontextmanager
async def opened(data_dir: str, url: str = "") -> AsyncIterator[EmbeddedBackend]:
    """Open the backend that the configuration names, and close it again."""
    backend = open_backend(Config.of(log_dirs=data_dir, state_url=url), SystemClock())
    assert isinstance(backend, EmbeddedBackend)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.aclose()


async def refusal(data_dir: str, url: str = "") -> str:
    """Return why a directory is not opened with a state."""
    with pytest.raises(DataDirectoryError) as caught:
        async with opened(data_dir, url):
            pass
    return str(caught.value)


async def fill(backend: Backend) -> None:
    """Give a backend a partition and some state."""
    await backend.create_partition(KEY, TOPIC, SETTINGS)
    await backend.state.apply([Change("topic", str(n), b"%d" % n) for n in range(30)])
    await backend.state.apply([Change("group", "ключ\0", bytes(1 << 20))])
    await backend.state.lag_history.append(SAMPLES)


async def check(backend: Backend) -> None:
    """Check that the state is what `fill` made of it."""
    rows = await backend.state.load("topic")
    assert {str(n): b"%d" % n for n in range(30)} == {key: row.value for key, row in rows.items()}
    assert {"ключ\0": bytes(1 << 20)} == {
        key: row.value for key, row in (await backend.state.load("group")).items()
    }
    assert SAMPLES == await backend.state.lag_history.load()


async def test_state_on_a_server_outlives_the_process(data_dir: str, url: str) -> None:
    """Records in the directory, everything else in the database; no SQLite is made."""
    async with opened(data_dir, url) as backend:
        await fill(backend)

    async with opened(data_dir, url) as backend:
        await check(backend)
        await backend.open_partition(KEY, TOPIC, SETTINGS)
        assert backend.health.writable
    assert [] == list(Path(data_dir).glob("meta.sqlite*"))


async def test_a_directory_is_not_opened_without_its_state(
    data_dir: str, url: str, database_server: DatabaseServer
) -> None:
    """Neither with SQLite nor with another database, empty or not."""
    async with opened(data_dir, url) as backend:
        await fill(backend)
    other = database_server.url(database_server.new_place())

    assert "set kgw.state.url to that" in await refusal(data_dir)
    assert "is not the state of" in await refusal(data_dir, other)
    async with opened(data_dir + "2", other):
        pass
    assert "is not the state of" in await refusal(data_dir, other)

    async with opened(data_dir, url) as backend:
        await check(backend)


async def test_a_database_is_not_opened_with_another_directory(data_dir: str, url: str) -> None:
    """A new directory beside a used database, or a used directory beside any: refused."""
    async with opened(data_dir, url) as backend:
        await fill(backend)
    async with opened(data_dir + "2") as backend:
        await fill(backend)

    assert "has another data directory's state" in await refusal(data_dir + "3", url)
    assert "move it with `kgw state copy`" in await refusal(data_dir + "2", url)


async def test_a_first_start_that_was_interrupted_goes_on(data_dir: str, url: str) -> None:
    """The database has the identity, the directory not yet: both are empty and belong together."""
    async with opened(data_dir, url):
        pass
    place = read_place(RealFs(), data_dir)
    assert place is not None
    Path(data_dir, "state.json").unlink()

    async with opened(data_dir, url):
        pass
    assert place == read_place(RealFs(), data_dir)


async def test_a_database_may_move(data_dir: str, url: str) -> None:
    """Its identity counts, not its address; the directory notes the new one."""
    async with opened(data_dir, url) as backend:
        await fill(backend)
    moved = url.replace("127.0.0.1", "localhost")

    async with opened(data_dir, moved) as backend:
        await check(backend)
    place = read_place(RealFs(), data_dir)
    assert place is not None
    assert moved == place.url
    async with opened_state(data_dir) as state:
        assert "topic" in await state.kinds()


async def test_a_damaged_note_is_refused(data_dir: str, url: str) -> None:
    """Where the state is cannot be guessed."""
    async with opened(data_dir, url) as backend:
        await fill(backend)
    Path(data_dir, "state.json").write_bytes(b"{}\n")

    assert "cannot be read" in await refusal(data_dir, url)
    assert "cannot be read" in await refusal(data_dir)


async def test_a_damaged_identity_is_refused(
    data_dir: str, database_server: DatabaseServer
) -> None:
    """A row that fails its checksum proves nothing."""
    name = database_server.new_place()
    url = database_server.url(name)
    async with opened(data_dir, url) as backend:
        await fill(backend)
    database_server.execute("UPDATE state_entry SET checksum = 0", name)

    assert "cannot be trusted" in await refusal(data_dir, url)


async def test_memory_takes_no_database(url: str) -> None:
    """State without the records that it is about would be of no use."""
    with pytest.raises(DataDirectoryError, match=r"kgw\.backend=memory"):
        open_backend(Config.of(backend="memory", state_url=url), SystemClock())


# --- copying ---


async def test_state_goes_to_a_server_and_back(data_dir: str, url: str) -> None:
    """Everything is there each time; where it was is not opened by mistake."""
    async with opened(data_dir) as backend:
        await fill(backend)
        for _ in range(50):  # more commits than the copy will have
            await backend.state.apply([Change("topic", "0", b"0")])

    report = await copy_state(data_dir, url)
    assert (30, 1, 20) == (report.rows["topic"], report.rows["group"], report.samples)
    assert Path(data_dir, "meta.sqlite.copied").exists()
    async with opened(data_dir, url) as backend:
        assert not any("last stop" in problem for problem in backend.health.problems)
        await check(backend)
        await backend.state.apply([Change("topic", "later", b"1")])
        await backend.state.apply([Change("topic", "later", None)])

    back = await copy_state(data_dir, "sqlite")
    assert report.rows == back.rows
    assert report.samples == back.samples
    async with opened(data_dir) as backend:
        assert not any("last stop" in problem for problem in backend.health.problems)
        assert backend.state.problems == ()
        await check(backend)
    assert "move it with `kgw state copy`" in await refusal(data_dir, url)


@pytest.mark.slow
async def test_a_long_lag_history_is_copied_whole(data_dir: str, url: str) -> None:
    """Set by set, however many samples of one moment the end of a set divides."""
    samples = [LagHistoryPoint(n // 7, "g", "t", n % 7, n, 9) for n in range(SAMPLES_PER_SET + 3)]
    async with opened(data_dir) as backend:
        await backend.state.lag_history.append(samples)
    assert len(samples) == (await copy_state(data_dir, url)).samples
    async with opened(data_dir, url) as backend:
        assert samples == await backend.state.lag_history.load(limit=1 << 20)


async def test_a_target_with_anything_in_it_is_refused(
    data_dir: str, url: str, database_server: DatabaseServer
) -> None:
    """Nothing is mixed, and the source stays the state."""
    async with opened(data_dir) as backend:
        await fill(backend)
    store = server_store(url, SystemClock())
    await store.open()
    await store.apply([Change("topic", "theirs", b"1")])
    await store.aclose()

    with pytest.raises(DataDirectoryError, match="is not empty: it has topic"):
        await copy_state(data_dir, url)
    with pytest.raises(DataDirectoryError, match="is in sqlite already"):
        await copy_state(data_dir, "sqlite")
    with pytest.raises(StateUrlError):
        await copy_state(data_dir, "somewhere")
    async with opened(data_dir) as backend:
        await check(backend)

    empty = database_server.url(database_server.new_place())
    await copy_state(data_dir, empty)
    Path(data_dir, "meta.sqlite").write_bytes(b"somebody's")
    with pytest.raises(DataDirectoryError, match="move it away"):
        await copy_state(data_dir, "sqlite")


async def test_a_copy_that_was_interrupted_begins_again(data_dir: str, url: str) -> None:
    """What it left in the target is marked as its own."""
    async with opened(data_dir) as backend:
        await fill(backend)
    store = server_store(url, SystemClock())
    await store.open()
    await store.apply([Change(BINDING_KIND, COPYING_KEY, b""), Change("topic", "half", b"1")])
    await store.aclose()
    Path(data_dir, "meta.sqlite.copy").write_bytes(b"half")

    await copy_state(data_dir, url)
    await copy_state(data_dir, "sqlite")

    async with opened(data_dir) as backend:
        await check(backend)


async def test_damaged_rows_are_not_left_behind(data_dir: str, url: str) -> None:
    """A copy without them would look whole."""
    async with opened(data_dir) as backend:
        await fill(backend)
    with closing(sqlite3.connect(Path(data_dir, "meta.sqlite"))) as connection, connection:
        connection.execute("UPDATE state_entry SET checksum = 0 WHERE entry_key = '3'")

    with pytest.raises(DamagedRowsError, match="'3'"):
        await copy_state(data_dir, url)
    assert read_place(RealFs(), data_dir) is None


async def test_a_directory_in_use_is_not_copied(data_dir: str, url: str) -> None:
    """Nor one without state, or one that is none."""
    async with opened(data_dir):
        with pytest.raises(DataDirectoryError, match="in use by another process"):
            await copy_state(data_dir, url)
    Path(data_dir, "meta.sqlite").unlink()
    with pytest.raises(DataDirectoryError, match="has no state"):
        await copy_state(data_dir, url)


# --- settings ---


def test_settings_of_the_state_are_checked() -> None:
    """Before anything is opened."""
    for wrong in ("somewhere", "postgresql://me@host", "mysql://me:secret@host/db"):
        with pytest.raises(ConfigError) as caught:
            Config.of(state_url=wrong)
        assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="exclude each other"):
        Config.of(state_password="a", state_password_file="b")


async def test_a_password_file_is_read(
    tmp_path: Path, data_dir: str, postgresql_server: DatabaseServer
) -> None:
    """One that is missing is an error of the start."""
    config = Config.of(
        log_dirs=data_dir,
        state_url=postgresql_server.url(postgresql_server.new_place()),
        state_password_file=str(tmp_path / "password"),
    )
    with pytest.raises(DataDirectoryError, match="password"):
        await open_backend(config, SystemClock()).open()
    (tmp_path / "password").write_text("secret\n")

    backend = open_backend(config, SystemClock())
    await backend.open()
    await backend.aclose()
    assert "secret" not in str(vars(backend))
