"""A runner without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")


class Backwards:
    """Does the work of units one by one, the last one first; calls something after each."""

    parallelism = 4

    def __init__(self, between: Callable[[], None] = lambda: None) -> None:
        self._between = between

    def run(
        self, units: Sequence[UnitT], work: Callable[[UnitT], ResultT]
    ) -> Iterator[tuple[UnitT, ResultT]]:
        """Do it."""
        for unit in reversed(units):
            result = work(unit)
            self._between()
            yield unit, result
