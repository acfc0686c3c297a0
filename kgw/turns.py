"""Long work in short turns: the event loop serves everybody, so nothing may hold it for long.

Such work is written as a generator that yields wherever others may come between, and returns its
result. How much it does before it yields is counted in its own units, never in time: a test can
count turns, and what is done does not depend on how busy the machine is.
"""

from __future__ import annotations

from asyncio import Lock, sleep
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

ResultT = TypeVar("ResultT")

Turns: TypeAlias = "Generator[None, None, ResultT]"
"""Work that yields at the end of each of its turns and returns its result."""


class Rest(Generic[ResultT]):
    """What is left of work after its first turn: awaited, it takes the others."""

    __slots__ = ("_queue", "_work")

    def __init__(self, work: Turns[ResultT], queue: Lock | None) -> None:
        self._work = work
        self._queue = queue

    def __await__(self) -> Generator[object, None, ResultT]:
        return finish(self._work, self._queue).__await__()


def in_turns(work: Turns[ResultT], queue: Lock | None = None) -> ResultT | Rest[ResultT]:
    """Return the result when one turn is enough, else what is left.

    Raises what the first turn raises; the rest, what the others do. What shares a queue gets
    its further turns one work after the other: fifty side by side would hold the loop fifty times
    as long, and the memory of all of them at once.
    """
    try:
        next(work)
    except StopIteration as end:
        result: ResultT = end.value
        return result
    return Rest(work, queue)


async def finish(work: Turns[ResultT], queue: Lock | None = None) -> ResultT:
    """Let the loop turn before each further turn of the work, and return its result."""
    if queue is not None:
        async with queue:
            return await finish(work)
    while True:
        await sleep(0)
        try:
            next(work)
        except StopIteration as end:
            result: ResultT = end.value
            return result


async def take_turns(work: Turns[ResultT], queue: Lock | None = None) -> ResultT:
    """Do all turns as `in_turns` does, the first of them at once, and return the result."""
    first = in_turns(work, queue)
    return await first if isinstance(first, Rest) else first


def at_once(work: Turns[ResultT]) -> ResultT:
    """Do all turns with nobody between them, and return the result: for work that is short."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: ResultT = end.value
            return result


class Share:
    """How much of a turn is left, in units of the work at hand.

    `if share.spend(units): yield` stands behind each piece of work.
    """

    __slots__ = ("_units", "left")

    def __init__(self, units: int) -> None:
        self._units = self.left = units

    def spend(self, units: int = 1) -> bool:
        """Count work that was done; True when the turn is over, and the next one begins."""
        self.left -= units
        if self.left > 0:
            return False
        self.left = self._units
        return True


def shares(lengths: Iterable[int], units: int) -> Iterator[list[tuple[int, int, int]]]:
    """Cut lists of these lengths into turns of so many elements.

    Yields for each turn which list, from where and to where. An empty list takes part, as one.
    """
    turn: list[tuple[int, int, int]] = []
    left = units
    for number, length in enumerate(lengths):
        start = 0
        while True:
            end = min(length, start + left)
            turn.append((number, start, end))
            left -= max(1, end - start)
            if left <= 0:
                yield turn
                turn, left = [], units
            start = end
            if start == length:
                break
    if turn:
        yield turn
