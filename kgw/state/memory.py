"""A state store that forgets at exit: the reference in tests, and the memory backend's."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from kgw.state.base import (
    CHANGES_KEPT,
    CHANGES_PER_READ,
    Change,
    ChangesLostError,
    ConflictError,
    Row,
    StateStore,
    WatchedChange,
)
from kgw.state.history import LagHistory, MemoryLagHistory
from kgw.state.kinds import WATCHED_KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.state.base import RowKey


class MemoryStateStore(StateStore):
    """Rows in a dictionary. It outlives the backend that uses it, as a file would."""

    def __init__(self) -> None:
        """Begin empty."""
        self._rows: dict[str, dict[str, Row]] = {}
        self._lag_history = MemoryLagHistory()
        self._changes = deque([WatchedChange(1, "", "", None)], CHANGES_KEPT)
        """The newest ones. The first of all stands for what was before it."""

    @property
    def lag_history(self) -> LagHistory:
        return self._lag_history

    async def kinds(self) -> list[str]:
        return sorted(kind for kind, rows in self._rows.items() if rows)

    async def open(self) -> None:
        """Do nothing: there is nothing to open."""

    async def aclose(self) -> None:
        """Keep everything: closing loses no state."""

    async def load(self, kind: str) -> dict[str, Row]:
        return dict(self._rows.get(kind, {}))

    async def apply(self, changes: Sequence[Change]) -> None:
        pending: dict[RowKey, Row | None] = {}
        for change in changes:
            row_key = (change.kind, change.key)
            current = (
                pending[row_key]
                if row_key in pending
                else self._rows.get(change.kind, {}).get(change.key)
            )
            version = 0 if current is None else current.version
            if change.expected_version is not None and change.expected_version != version:
                raise ConflictError(change, version)
            pending[row_key] = None if change.value is None else Row(change.value, version + 1)
        for (kind, key), row in pending.items():
            rows = self._rows.setdefault(kind, {})
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
            if kind in WATCHED_KINDS:
                version = self._changes[-1].version + 1
                value = None if row is None else row.value
                self._changes.append(WatchedChange(version, kind, key, value))

    async def newest_change(self) -> int:
        return self._changes[-1].version

    async def changes_since(self, version: int) -> list[WatchedChange]:
        first = version - self._changes[0].version
        if not 0 <= first < len(self._changes):
            raise ChangesLostError("the state store in memory", version, "it has other changes")
        return list(islice(self._changes, first + 1, first + 1 + CHANGES_PER_READ))
