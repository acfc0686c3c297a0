"""What every store over SQL does with a database of an older program, or a damaged one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.errors import CorruptionError, ErrorCode
from kgw.state.base import Change, DamagedRowsError, Row
from kgw.state.history import LagHistoryPoint
from kgw.state.sql.migrations import MIGRATIONS, Migration
from tests.conftest import DATABASES
from tests.state.support import opened, refusal

if TYPE_CHECKING:
    from tests.state.support import Database

NEXT = len(MIGRATIONS) + 1
LATER = ("CREATE TABLE later (id INTEGER)",)
ADDED = Migration(NEXT, "added", LATER, LATER, LATER)

pytestmark = pytest.mark.parametrize("database", ["sqlite", *DATABASES], indirect=True)


@pytest.mark.parametrize("count", range(1, NEXT))
async def test_every_older_schema_is_brought_up(database: Database, count: int) -> None:
    """What an older program wrote is read, and all that is new works."""
    async with opened(database.store(MIGRATIONS[:count])) as store:
        await store.apply([Change("checkpoint", "a", b"1")])

    async with opened(database.store()) as store:
        assert {"a": Row(b"1", 1)} == await store.load("checkpoint")
        await store.lag_history.append([LagHistoryPoint(1, "g", "t", 0, 1, 2)])
        assert [LagHistoryPoint(1, "g", "t", 0, 1, 2)] == await store.lag_history.load()
        await store.apply([Change("topic", "b", b"1")])


async def test_later_steps_are_taken_once(database: Database) -> None:
    """And a program that does not know them, or knows others, is kept out."""
    for _ in range(2):
        async with opened(database.store((*MIGRATIONS, ADDED))) as store:
            await store.apply([Change("topic", "a", b"1")])

    assert f"its schema is number {NEXT} ('added')" in await refusal(database.store())
    otherwise = (Migration(1, "otherwise", ()), *MIGRATIONS[1:], ADDED)
    assert "went through step 1 'state-entries'" in await refusal(database.store(otherwise))


async def test_a_changed_row_is_found(database: Database) -> None:
    """One whose value, key, version or type is not what was written is named, not served."""
    own = {
        "sqlite": ["kind = 'topic', entry_value = 'value'", "checksum = 'x'"],
        "postgresql": [r"entry_key = '\xff'"],
        "mysql": ["entry_key = x'ff'"],
    }
    for damage in (
        "entry_value = '12345'",
        "entry_key = 'key6'",
        "version = 2",
        "checksum = checksum + 1",
        *own[database.kind],
    ):
        async with opened(database.store()) as store:
            await store.apply([Change("topic", f"key{index}", b"value") for index in range(3)])
        database.execute(f"UPDATE state_entry SET {damage} WHERE entry_key = 'key1'")  # noqa: S608

        async with opened(database.store()) as store:
            with pytest.raises(DamagedRowsError) as caught:
                await store.load("topic")
            assert {"key0", "key2"} == set(caught.value.intact)
            assert 1 == len(caught.value.damaged)
            assert isinstance(caught.value, CorruptionError)
            assert ErrorCode.KAFKA_STORAGE_ERROR is caught.value.code
        database.execute("DELETE FROM state_entry")


async def test_a_row_moved_to_another_kind_is_found(database: Database) -> None:
    """The checksum covers where a row stands."""
    async with opened(database.store()) as store:
        await store.apply([Change("topic", "a", b"1")])
    database.execute("UPDATE state_entry SET kind = 'user'")

    async with opened(database.store()) as store:
        with pytest.raises(DamagedRowsError, match="1 damaged user rows: 'a'"):
            await store.load("user")


async def test_a_damaged_row_can_be_written_again(database: Database) -> None:
    """Its owner decides; the new row is whole."""
    async with opened(database.store()) as store:
        await store.apply([Change("topic", "a", b"1")])
    database.execute("UPDATE state_entry SET checksum = 0")

    async with opened(database.store()) as store:
        await store.apply([Change("topic", "a", b"again")])
        assert {"a": Row(b"again", 2)} == await store.load("topic")
