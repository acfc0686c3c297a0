from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import DataDirectoryError
from kgw.state.base import Change, DamagedRowsError, Row
from kgw.state.sql.sqlite import SqliteStateStore
from tests.state.support import SqliteDatabase, opened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
async def database(tmp_path: Path) -> SqliteDatabase:
    """Return a database with three rows of a kind."""
    database = SqliteDatabase(tmp_path / "meta.sqlite")
    async with opened(database.store()) as store:
        await store.apply([Change("group-offsets", f"key{n}", b"value") for n in range(3)])
    return database


async def load(database: SqliteDatabase) -> tuple[dict[str, Row], tuple[str, ...]]:
    """Return the rows of a database after an unclean stop, and what was found wrong with it."""
    async with opened(SqliteStateStore(database.path, quick_check=True)) as store:
        return await store.load("group-offsets"), store.problems


ALL = {f"key{n}": Row(b"value", 1) for n in range(3)}


@pytest.mark.parametrize(
    "change",
    [
        "kind = 'group-offsetr'",
        "kind = 'Group-offsets'",
        "entry_key = 'key9'",
        "entry_key = CAST(x'6b6579B1' AS TEXT)",
        "entry_key = CAST('key1' AS BLOB)",
    ],
)
async def test_a_row_that_lost_its_place_is_put_back(database: SqliteDatabase, change: str) -> None:
    """One bit of kind or key: nobody would look for it there, and it would pass for unwritten."""
    database.execute(f"UPDATE state_entry SET {change} WHERE entry_key = 'key1'")  # noqa: S608

    rows, problems = await load(database)

    assert ALL == rows
    assert 1 == len(problems)
    assert (ALL, ()) == await load(database)


async def test_a_newer_row_in_its_place_wins(database: SqliteDatabase) -> None:
    """The one that was lost is an older version of it."""
    database.execute("UPDATE state_entry SET entry_key = 'key9' WHERE entry_key = 'key1'")
    async with opened(database.store()) as store:
        await store.apply([Change("group-offsets", "key1", b"newer")])

    rows, _ = await load(database)

    assert {**ALL, "key1": Row(b"newer", 1)} == rows


async def test_other_damage_is_left_to_who_reads_the_row(database: SqliteDatabase) -> None:
    """A value cannot be guessed, and a row that lost more than a bit belongs nowhere."""
    database.execute("UPDATE state_entry SET entry_value = x'00' WHERE entry_key = 'key1'")

    with pytest.raises(DamagedRowsError) as caught:
        await load(database)

    assert ("key1",) == caught.value.damaged


async def test_a_schema_that_changed_is_refused(database: SqliteDatabase) -> None:
    """Another type would have SQLite store other values than it is given."""
    database.execute(
        "UPDATE sqlite_master SET sql = replace(sql, 'version INTEGER', 'version IOTEGER') "
        "WHERE name = 'state_entry'",
    )

    with pytest.raises(DataDirectoryError, match="schema"):
        await load(database)


@pytest.mark.parametrize("change", ["number = NULL", "name = CAST(x'ff' AS TEXT)"])
async def test_steps_that_make_no_sense_are_refused(database: SqliteDatabase, change: str) -> None:
    """With a sentence, not with an error of the module that reads them."""
    database.execute(
        "UPDATE sqlite_master SET sql = replace(sql, ' PRIMARY KEY', '') "
        "WHERE name = 'schema_migration'",
    )
    database.execute(
        f"UPDATE schema_migration SET {change} WHERE name = 'commit-count'"  # noqa: S608
    )

    with pytest.raises(DataDirectoryError, match=r"damaged|another kgw|decode"):
        await load(database)
