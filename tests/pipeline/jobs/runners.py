"""A runner without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")


class Backwards:
    """Does the work of units one by one, the last one first; calls something after each.

    `step=1` begins with the first one, and asks for a unit when the one before it is done.
    """

    parallelism = 4

    def __init__(self, between: Callable[[], None] = lambda: None, *, step: int = -1) -> None:
        self._between = between
        self._step = step

    def run(
        self, units: Iterable[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Do it."""
        for unit in units if self._step == 1 else [*units][:: self._step]:
            result = work(unit)
            self._between()
            yield unit, result
