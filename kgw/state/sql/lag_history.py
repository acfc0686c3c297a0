"""The history of lag in a database: stored beside the rows of the state, in the same commits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kgw.state.history import EVERY_SAMPLE, LagHistory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kgw.state.base import Change
    from kgw.state.history import LagHistoryPoint, SampleFilter
    from kgw.state.sql.schema import Batch, Dialect

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

ROWS_A_TURN = 200
"""Rows before a yield to the event loop: a thousand rows with checksums take 4 ms."""


class SampleStore(Protocol):
    """The methods of a store that the history uses."""

    def submit(self, changes: Sequence[Change], batches: Sequence[Batch]) -> Awaitable[None]: ...

    async def fetch(self, statement: str, parameters: Sequence[Any]) -> Sequence[Sequence[Any]]: ...


class SqlLagHistory(LagHistory):
    """Samples in their own table."""

    def __init__(self, store: SampleStore, dialect: Dialect) -> None:
        self._store = store
        self._dialect = dialect

    async def append(self, samples: Sequence[LagHistoryPoint]) -> None:
        if samples:
            rows = await _each(self._dialect.sample_row, samples)
            await self._store.submit((), [(self._dialect.upsert_sample, rows)])

    async def load(
        self, wanted: SampleFilter = EVERY_SAMPLE, *, limit: int = 10_000
    ) -> list[LagHistoryPoint]:
        rows = await self._store.fetch(*self._dialect.select_samples(wanted, limit))
        samples = await _each(self._dialect.read_sample, rows[::-1])
        return [sample for sample in samples if sample is not None]

    async def prune(self, *, before_ms: int, keep: int) -> None:
        excess = await self._store.fetch(self._dialect.select_sample_time, (keep,))
        if excess:
            before_ms = max(before_ms, excess[0][0] + 1)
        await self._store.submit((), [(self._dialect.delete_samples, [(before_ms,)])])


async def _each(make: Callable[[_Given], _Made], given: Sequence[_Given]) -> list[_Made]:
    made: list[_Made] = []
    for start in range(0, len(given), ROWS_A_TURN):
        if start:
            await asyncio.sleep(0)
        made += map(make, given[start : start + ROWS_A_TURN])
    return made
