"""Work in turns, as tests look at it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

ResultT = TypeVar("ResultT")


async def turns(count: int = 10) -> None:
    """Let the loop turn: what waits for nothing else happens."""
    for _ in range(count):
        await asyncio.sleep(0)


def counted(work: Generator[None, None, ResultT]) -> tuple[int, ResultT]:
    """Do all turns, and let nobody come between; return how many there were, and the result."""
    turns = 1
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: ResultT = end.value
            return turns, result
        turns += 1


async def most_in_a_turn(work: Awaitable[None], count: Callable[[], int]) -> int:
    """Return by how much a count rises at most from one turn of the loop to the next."""
    task = asyncio.ensure_future(work)
    most, before = 0, count()
    while not task.done():
        await asyncio.sleep(0)
        now = count()
        most, before = max(most, now - before), now
    await task
    return most
