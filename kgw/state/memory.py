"""A state store that forgets at exit: the reference in tests, and the memory backend's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.state.base import Change, ConflictError, Row, StateStore
from kgw.state.history import LagHistory, MemoryLagHistory

if TYPE_CHECKING:
    from collections.abc import Sequence


class MemoryStateStore(StateStore):
    """Rows in a dictionary. It outlives the backend that uses it, as a file would."""

    def __init__(self) -> None:
        """Begin empty."""
        self._rows: dict[str, dict[str, Row]] = {}
        self._lag_history = MemoryLagHistory()

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
        pending: dict[tuple[str, str], Row | None] = {}
        for change in changes:
            place = (change.kind, change.key)
            current = (
                pending[place]
                if place in pending
                else self._rows.get(change.kind, {}).get(change.key)
            )
            version = 0 if current is None else current.version
            if change.expected_version is not None and change.expected_version != version:
                raise ConflictError(change, version)
            pending[place] = None if change.value is None else Row(change.value, version + 1)
        for (kind, key), row in pending.items():
            rows = self._rows.setdefault(kind, {})
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
