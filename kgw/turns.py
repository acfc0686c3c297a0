"""Divides long work into short steps, so that it does not block the event loop.

Such work is a generator that yields when other tasks may run, and returns its result. The work
between two yields is limited by a number of units, such as rows, not by time, so that a test can
count the steps, and the steps do not depend on the load of the machine.
"""

from __future__ import annotations

from asyncio import Lock, sleep
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

ResultT = TypeVar("ResultT")

Turns: TypeAlias = "Generator[None, None, ResultT]"
"""Work that yields after each of its steps and returns its result."""


class RemainingSteps(Generic[ResultT]):
    """Work whose first step is done. Awaiting it does the other steps and returns the result."""

    __slots__ = ("_queue", "_work")

    def __init__(self, work: Turns[ResultT], queue: Lock | None) -> None:
        self._work = work
        self._queue = queue

    def __await__(self) -> Generator[object, None, ResultT]:
        return finish(self._work, self._queue).__await__()


def in_turns(work: Turns[ResultT], queue: Lock | None = None) -> ResultT | RemainingSteps[ResultT]:
    """Do the first step of work at once. Return the result if that was all, else the other steps.

    An exception of the first step is raised here, an exception of a later step by `RemainingSteps`.
    Later steps with the same `queue` run one work after the other: otherwise fifty would block each
    turn of the loop fifty times as long, and need memory at the same time.
    """
    try:
        next(work)
    except StopIteration as end:
        result: ResultT = end.value
        return result
    return RemainingSteps(work, queue)


async def finish(work: Turns[ResultT], queue: Lock | None = None) -> ResultT:
    """Do the remaining steps, each in a new turn of the event loop. Return the result."""
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
    """Do all steps as `in_turns` does, the first one at once. Return the result."""
    first = in_turns(work, queue)
    return await first if isinstance(first, RemainingSteps) else first


def at_once(work: Turns[ResultT]) -> ResultT:
    """Do all steps of short work without a turn of the loop. Return the result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: ResultT = end.value
            return result


class StepBudget:
    """The units of work that are left in the current step of a generator.

    The generator runs `if budget.spend(units): yield` after each part of its work.
    """

    __slots__ = ("_units", "left")

    def __init__(self, units: int) -> None:
        self._units = self.left = units

    def spend(self, units: int = 1) -> bool:
        """Count units that were done. Return True if the step is over; the next one begins."""
        self.left -= units
        if self.left > 0:
            return False
        self.left = self._units
        return True


def step_slices(lengths: Iterable[int], units: int) -> Iterator[list[tuple[int, int, int]]]:
    """Divide lists of these lengths into steps of `units` elements.

    Yields for each step the slices in it, as (index of the list, start, end). An empty list counts
    as one element.
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
