"""Rows with their versions, and the newest changes of watched rows. Pure.

Sets of changes are first decided (`Decided`), and become part of the table when they are stored, so
that readers never see unstored changes.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from kgw.state.base import (
    CHANGES_KEPT,
    CHANGES_PER_READ,
    ChangesLostError,
    ConflictError,
    Row,
    WatchedChange,
)
from kgw.state.kinds import WATCHED_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kgw.state.base import Change, RowKey

WrittenRows: TypeAlias = "Mapping[RowKey, Row | None]"
"""The new rows of a commit; None for a deleted row."""


class RowTable:
    """The rows and watched changes of a state store that keeps everything in memory."""

    def __init__(self) -> None:
        """Begin empty."""
        self.rows: dict[str, dict[str, Row]] = {}
        """By kind, then by key. A kind may be without rows."""
        self.changes = deque([WatchedChange(1, "", "", None)], CHANGES_KEPT)
        """The newest changes. The initial one, version 1, stands for everything before it."""

    def kinds(self) -> list[str]:
        """Return the kinds that have rows, in order."""
        return sorted(kind for kind, rows in self.rows.items() if rows)

    def load(self, kind: str) -> dict[str, Row]:
        """Return a copy of every row of a kind."""
        return dict(self.rows.get(kind, {}))

    def get(self, row_key: RowKey) -> Row | None:
        """Return a row."""
        kind, key = row_key
        rows = self.rows.get(kind)
        return None if rows is None else rows.get(key)

    def take(self, written: WrittenRows) -> None:
        """Add the rows of one commit to the table."""
        for (kind, key), row in written.items():
            rows = self.rows.setdefault(kind, {})
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
            if kind in WATCHED_KINDS:
                version = self.changes[-1].version + 1
                value = None if row is None else row.value
                self.changes.append(WatchedChange(version, kind, key, value))

    @property
    def newest_change(self) -> int:
        """The version of the newest watched change."""
        return self.changes[-1].version

    def changes_since(self, version: int, store: str) -> list[WatchedChange]:
        """Return the next changes after a version.

        Raises ChangesLostError with the store's name.
        """
        first = version - self.changes[0].version
        if not 0 <= first < len(self.changes):
            raise ChangesLostError(store, version, "it has other changes")
        return list(islice(self.changes, first + 1, first + 1 + CHANGES_PER_READ))


class Decided:
    """Sets of changes that were accepted, in order, but are not yet part of the table."""

    def __init__(self, table: RowTable) -> None:
        """Begin with none."""
        self._table = table
        self.rows: dict[RowKey, Row | None] = {}

    def add(self, changes: Sequence[Change]) -> None:
        """Accept one set. Raises ConflictError, which leaves the whole set out."""
        self.rows.update(decide(changes, self._version))

    def _version(self, row_key: RowKey) -> int:
        row = self.rows[row_key] if row_key in self.rows else self._table.get(row_key)
        return version_of(row)


def decide(
    changes: Sequence[Change], version_before: Callable[[RowKey], int | None]
) -> dict[RowKey, Row | None]:
    """Return the rows that a set writes; None for a deleted row. Raises ConflictError.

    `version_before` returns the version of a row before the set; 0 or None if there is no row.
    """
    rows: dict[RowKey, Row | None] = {}
    for change in changes:
        row_key = (change.kind, change.key)
        version = version_of(rows[row_key]) if row_key in rows else version_before(row_key) or 0
        if change.expected_version is not None and change.expected_version != version:
            raise ConflictError(change, version)
        rows[row_key] = None if change.value is None else Row(change.value, version + 1)
    return rows


def version_of(row: Row | None) -> int:
    """Return the version of a row; 0 if there is no row."""
    return 0 if row is None else row.version
