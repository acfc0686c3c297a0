"""The history of lag in a database: rows beside those of the state, in the same commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.state.history import EVERY_SAMPLE, LagHistory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.state.history import LagSample, SampleFilter
    from kgw.state.sql.schema import Dialect
    from kgw.state.sql.store import SqlStateStore


class SqlLagHistory(LagHistory):
    """Samples in a table of their own."""

    def __init__(self, store: SqlStateStore, dialect: Dialect) -> None:
        self._store = store
        self._dialect = dialect

    async def append(self, samples: Sequence[LagSample]) -> None:
        if samples:
            rows = [self._dialect.sample_row(sample) for sample in samples]
            await self._store.submit((), [(self._dialect.upsert_sample, rows)])

    async def load(
        self, wanted: SampleFilter = EVERY_SAMPLE, *, limit: int = 10_000
    ) -> list[LagSample]:
        rows = await self._store.fetch(*self._dialect.select_samples(wanted, limit))
        samples = [self._dialect.read_sample(row) for row in reversed(rows)]
        return [sample for sample in samples if sample is not None]

    async def prune(self, *, before_ms: int, keep: int) -> None:
        excess = await self._store.fetch(self._dialect.select_sample_time, (keep,))
        if excess:
            before_ms = max(before_ms, excess[0][0] + 1)
        await self._store.submit((), [(self._dialect.delete_samples, [(before_ms,)])])
