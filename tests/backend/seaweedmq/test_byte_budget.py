"""Room in memory that many share."""

from __future__ import annotations

import asyncio

import pytest

from kgw.backend.seaweedmq.byte_budget import ByteBudget
from tests.turns import turns


async def _hold(room: ByteBudget, size_bytes: int, until: asyncio.Event) -> None:
    await room.take_later(size_bytes)
    try:
        await until.wait()
    finally:
        room.give_back(size_bytes)


def test_what_is_larger_than_all_has_it_to_itself() -> None:
    """It would never be let in otherwise."""
    room = ByteBudget(10)
    assert room.take(30)
    assert not room.take(1)
    room.give_back(30)
    assert [True, True, False] == [room.take(size_bytes) for size_bytes in (4, 6, 1)]
    assert 10 == room.used_bytes


async def test_those_who_wait_come_in_order() -> None:
    """Somebody who wants little does not overtake who wants much."""
    room, over = ByteBudget(10), [asyncio.Event() for _ in range(3)]
    tasks = [
        asyncio.ensure_future(_hold(room, size_bytes, until))
        for size_bytes, until in zip((8, 9, 1), over, strict=True)
    ]
    await turns()
    assert 8 == room.used_bytes
    assert not room.take(1)
    over[0].set()
    await turns()
    assert 10 == room.used_bytes
    for one in over:
        one.set()
    await asyncio.gather(*tasks)
    assert 0 == room.used_bytes


@pytest.mark.parametrize("is_granted", [False, True])
async def test_who_waits_no_more_keeps_nothing(is_granted: bool) -> None:
    """Neither its place nor what it was given a moment before it went."""
    room = ByteBudget(10)
    assert room.take(10)
    never = asyncio.Event()
    waiting = [asyncio.ensure_future(_hold(room, 9, never)) for _ in range(2)]
    await turns()
    if is_granted:
        room.give_back(10)
    waiting[0].cancel()
    await turns()
    if not is_granted:
        room.give_back(10)
        await turns()
    assert 9 == room.used_bytes
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert 0 == room.used_bytes


async def test_who_is_cancelled_just_before_its_turn_ends_as_cancelled() -> None:
    """It is not in the line any more when it hears of it."""
    room = ByteBudget(10)
    assert room.take(10)
    waiting = asyncio.ensure_future(_hold(room, 9, asyncio.Event()))
    await turns()
    waiting.cancel()
    room.give_back(10)
    await turns()
    assert waiting.cancelled()
    assert 0 == room.used_bytes
