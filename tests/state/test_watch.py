"""What every state store tells those who watch it, in memory or in a database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.errors import StorageError
from kgw.state.base import CHANGES_KEPT, Change, ChangesLostError, ConflictError, WatchedChange
from kgw.state.kinds import BROKER_CONFIG, OFFSET_BLOCK, TOPIC, TOPIC_CREATION
from kgw.state.sql.migrations import MIGRATIONS
from tests.state.support import ServerDatabase, SqliteDatabase, opened, refusal
from tests.state.test_servers import end_session

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.state.base import StateStore
    from tests.state.servers import DatabaseServer
    from tests.state.support import Database


async def told(store: StateStore, since: int, count: int) -> list[WatchedChange]:
    """Return the next changes that a follower is told of."""
    changes: list[WatchedChange] = []
    while len(changes) < count:
        changes += await store.changes_since(changes[-1].version if changes else since)
    return changes[:count]


async def test_changes_of_watched_kinds_are_told_in_order(database: Database) -> None:
    """Each with its version, key and value; rows of other kinds are nobody else's business."""
    async with database.both() as (store, reader):
        since = await reader.newest_change()
        await store.apply([Change(TOPIC, "a", b"1"), Change(TOPIC_CREATION, "a", b"x")])
        await store.apply([Change(OFFSET_BLOCK, "g", b"12"), Change(BROKER_CONFIG, "c\0", b"")])
        await store.apply([Change(TOPIC, "a", b"2", 1)])

        assert [
            WatchedChange(since + 1, TOPIC, "a", b"1"),
            WatchedChange(since + 2, BROKER_CONFIG, "c\0", b""),
            WatchedChange(since + 3, TOPIC, "a", b"2"),
        ] == await told(reader, since, 3)
        assert since + 3 == await reader.newest_change()
        assert [WatchedChange(since + 3, TOPIC, "a", b"2")] == await told(reader, since + 2, 1)


async def test_a_row_that_is_gone_is_told_of(database: Database) -> None:
    """It has no value any more; one that comes again is a change like any other."""
    async with database.both() as (store, reader):
        since = await reader.newest_change()
        for value in (b"1", None, b"2"):
            await store.apply([Change(TOPIC, "a", value)])

        assert [b"1", None, b"2"] == [change.value for change in await told(reader, since, 3)]


async def test_a_row_written_twice_in_a_set_is_one_change(database: Database) -> None:
    """Nobody could have loaded what it was in between."""
    async with database.both() as (store, reader):
        since = await reader.newest_change()
        await store.apply([Change(TOPIC, "a", b"1"), Change(TOPIC, "a", b"2")])

        assert [(since + 1, TOPIC, "a", b"2")] == await reader.changes_since(since)


async def test_what_was_not_written_is_not_told(database: Database) -> None:
    """A set that met a conflict has changed nothing."""
    async with database.both() as (store, reader):
        since = await reader.newest_change()
        with pytest.raises(ConflictError):
            await store.apply([Change(TOPIC, "a", b"1"), Change(TOPIC, "b", b"1", 7)])
        await store.apply([Change(TOPIC, "c", b"1")])

        assert [(since + 1, TOPIC, "c", b"1")] == await reader.changes_since(since)


async def test_versions_outlive_the_process(database: Database) -> None:
    """Who goes on after a restart misses nothing, and is told nothing twice."""
    async with opened(database.store()) as store:
        since = await store.newest_change()
        await store.apply([Change(TOPIC, "a", b"1")])
    async with opened(database.store()) as store:
        await store.apply([Change(TOPIC, "a", b"2")])
    async with database.both() as (store, reader):
        await store.apply([Change(TOPIC, "a", b"3")])

        assert [
            (since + number, TOPIC, "a", b"%d" % number) for number in (1, 2, 3)
        ] == await reader.changes_since(since)


async def test_sets_at_the_same_time_are_all_told_of(database: Database) -> None:
    """Of commits that many share no change is left out."""
    async with database.both() as (store, reader):
        since = await reader.newest_change()
        await asyncio.gather(
            *(store.apply([Change(TOPIC, str(number), b"x")]) for number in range(200))
        )

        changes = await told(reader, since, 200)
        assert list(range(since + 1, since + 201)) == [change.version for change in changes]
        assert {str(number) for number in range(200)} == {change.key for change in changes}


@pytest.mark.parametrize("offset", [-1, 1])
async def test_a_version_that_the_store_does_not_know_is_an_error(
    database: Database, offset: int
) -> None:
    """Before its first one it knows no changes; beyond the newest it has lost some."""
    async with database.both() as (_, reader):
        since = await reader.newest_change() + offset
        with pytest.raises(ChangesLostError, match="read everything anew") as caught:
            await told(reader, since, 1)
        assert since == caught.value.since


@pytest.mark.slow
async def test_a_version_that_is_too_old_is_an_error(database: Database) -> None:
    """The newest changes are kept; who is further behind is told so, and not of the rest."""
    async with database.both() as (store, reader):
        since = await reader.newest_change()
        count = CHANGES_KEPT + 2_000
        for first in range(0, count, 3_000):
            await store.apply(
                [Change(TOPIC, str(number), b"x") for number in range(first, first + 3_000)]
            )

        with pytest.raises(ChangesLostError):
            await told(reader, since, 1)
        newest = since + count
        assert newest == await reader.newest_change()
        kept = await told(reader, newest - CHANGES_KEPT + 1, CHANGES_KEPT - 1)
        assert list(range(newest - CHANGES_KEPT + 2, newest + 1)) == [one.version for one in kept]


# --- databases ---


async def test_what_an_older_program_wrote_is_no_change(tmp_path: Path) -> None:
    """It is loaded; who watches goes on from there."""
    database = SqliteDatabase(tmp_path / "meta.sqlite")
    for number in (4, len(MIGRATIONS)):
        async with opened(database.store(MIGRATIONS[:number])) as store:
            if number == 4:
                await store.apply([Change(TOPIC_CREATION, "a", b"1")])
                continue
            since = await store.newest_change()
            assert ["a"] == list(await store.load(TOPIC_CREATION))
            assert [] == await store.changes_since(since)
            with pytest.raises(ChangesLostError):
                await store.changes_since(since - 1)


@pytest.mark.parametrize(
    "damage",
    ["entry_value = x'32'", "entry_value = NULL", "kind = 'cluster'", "entry_key = x'61'"],
)
async def test_a_damaged_change_is_not_told(tmp_path: Path, damage: str) -> None:
    """The rows have checksums of their own: read anew, they are right or named."""
    database = SqliteDatabase(tmp_path / "meta.sqlite")
    async with opened(database.store()) as store:
        since = await store.newest_change()
        await store.apply([Change(TOPIC, "a", b"")])
    database.execute(
        f"UPDATE state_change SET {damage} WHERE version > 1"  # noqa: S608 - constants
    )

    async with opened(database.store()) as store:
        with pytest.raises(ChangesLostError, match=f"change {since + 1} is damaged"):
            await store.changes_since(since)


@pytest.mark.slow
async def test_a_reader_of_a_server_writes_nothing(server: DatabaseServer) -> None:
    """Neither rows nor samples, and not the owner's generation: the owner goes on beside it."""
    async with ServerDatabase(server).both() as (store, reader):
        with pytest.raises(StorageError, match="open for reading alone"):
            await reader.apply([Change(TOPIC, "a", b"1")])
        with pytest.raises(StorageError, match="open for reading alone"):
            await reader.lag_history.prune(before_ms=0, keep=0)
        await store.apply([Change(TOPIC, "a", b"1")])
        assert ["a"] == list(await reader.load(TOPIC))
        assert store.failure is None


@pytest.mark.slow
async def test_a_reader_outlives_its_owner_and_its_session(server: DatabaseServer) -> None:
    """Another owner's changes are told as the first one's were; a lost session is replaced."""
    database = ServerDatabase(server)
    reader = database.reader()
    for value in (b"1", b"2"):
        async with opened(database.store()) as store:
            if value == b"1":
                await reader.open()
                since = await reader.newest_change()
            await store.apply([Change(TOPIC, "a", value)])
    try:
        assert [b"1", b"2"] == [change.value for change in await told(reader, since, 2)]
        await end_session(server, reader)
        assert since + 2 == await reader.newest_change()
        assert reader.failure is None
    finally:
        await reader.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 4])
async def test_a_reader_waits_for_the_owners_schema(server: DatabaseServer, steps: int) -> None:
    """It makes none, and does not read one that it takes to be another."""
    database = ServerDatabase(server)
    if steps:
        async with opened(database.store(MIGRATIONS[:steps])):
            pass
    message = await refusal(database.reader())
    assert ("start its owner" if steps else "cannot be opened") in message
