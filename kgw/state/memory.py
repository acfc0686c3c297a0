"""A state store in memory, which is lost at exit.

For the memory backend; the reference in tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.state.base import StateStore
from kgw.state.history import LagHistory, MemoryLagHistory
from kgw.state.table import Decided, RowTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.state.base import Change, Row, WatchedChange


class MemoryStateStore(StateStore):
    """Rows in a dictionary. They outlive the backend that uses them, as a file would."""

    def __init__(self) -> None:
        """Begin empty."""
        self._table = RowTable()
        self._lag_history = MemoryLagHistory()

    @property
    def lag_history(self) -> LagHistory:
        return self._lag_history

    async def kinds(self) -> list[str]:
        return self._table.kinds()

    async def open(self) -> None:
        """Do nothing, as there is nothing to open."""

    async def aclose(self) -> None:
        """Keep the rows: closing loses no state."""

    async def load(self, kind: str) -> dict[str, Row]:
        return self._table.load(kind)

    async def apply(self, changes: Sequence[Change]) -> None:
        decided = Decided(self._table)
        decided.add(changes)
        self._table.take(decided.rows)

    async def newest_change(self) -> int:
        return self._table.newest_change

    async def changes_since(self, version: int) -> list[WatchedChange]:
        return self._table.changes_since(version, "the state store in memory")
