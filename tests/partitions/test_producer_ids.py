from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.partitions.append.producer_ids import BLOCK_SIZE, KEY, KIND, ProducerIds
from kgw.state.base import Change
from kgw.state.memory import MemoryStateStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.state.base import Row


async def all_open() -> None:
    """Every log is open."""


def _ids(state: MemoryStateStore, *in_logs: int) -> ProducerIds:
    return ProducerIds(state, lambda: [[], in_logs], all_open)


async def _stored(state: MemoryStateStore) -> int:
    return int((await state.load(KIND))[KEY].value)


async def test_blocks_follow_each_other() -> None:
    """The next process goes on behind what the one before has claimed."""
    state = MemoryStateStore()
    first = await _ids(state).next_id()
    assert first + BLOCK_SIZE == await _stored(state)
    assert first + BLOCK_SIZE == await _ids(state, first, first + 1).next_id()


async def test_a_lost_database_does_not_begin_where_the_lost_one_did() -> None:
    """Logs may hold ids of its beginning, and clients may still use some that no log holds."""
    first = await _ids(MemoryStateStore()).next_id()
    second = await _ids(MemoryStateStore()).next_id()
    assert abs(first - second) > BLOCK_SIZE


async def test_an_older_database_does_not_go_on_where_it_stands() -> None:
    """An id in a log that the database has not handed out gives it away."""
    state = MemoryStateStore()
    await state.apply([Change(KIND, KEY, b"5000")])
    ids = _ids(state, 4999, 7500)
    given = [await ids.next_id() for _ in range(BLOCK_SIZE + 1)]
    assert not {*given} & {*range(5000, 8000)}
    assert BLOCK_SIZE + 1 == len(set(given))
    assert given[-1] == given[0] + BLOCK_SIZE


async def test_ids_from_before_are_no_reason_to_jump() -> None:
    """Nor are those that a client has made up far away."""
    state = MemoryStateStore()
    await state.apply([Change(KIND, KEY, b"5000")])
    assert await _ids(state, 4999, (1 << 63) - 1).next_id() == 5000


async def test_those_who_ask_together_share_a_block() -> None:
    """One claim serves them all, however long it takes."""

    class SlowStore(MemoryStateStore):
        async def load(self, kind: str) -> dict[str, Row]:
            await asyncio.sleep(0)
            return await super().load(kind)

    ids = _ids(SlowStore())
    given = await asyncio.gather(*(ids.next_id() for _ in range(10)))
    assert [*range(given[0], given[0] + 10)] == sorted(given)


async def test_many_ids_in_logs_are_looked_at_in_turns() -> None:
    """Others come between, and none of the ids is passed over."""
    state = MemoryStateStore()
    await state.apply([Change(KIND, KEY, b"5000")])
    looked = 0

    def in_logs() -> Iterator[list[int]]:
        nonlocal looked
        for first in range(0, 100, 4):
            looked += 4
            yield [*range(first, first + 4)]
        yield [5001]

    asked = asyncio.ensure_future(
        ProducerIds(state, in_logs, all_open, looks_per_turn=10).next_id()
    )
    seen = []
    while not asked.done():
        seen.append(looked)
        await asyncio.sleep(0)
    assert abs(5000 - asked.result()) > 1000
    assert {0, 8, 16, 96} <= {*seen}
