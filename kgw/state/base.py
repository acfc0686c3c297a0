"""The seam to small state that must survive: topics, configurations, ids, groups, checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """A stored value. `version` starts at 1 and rises by one with every write of its key."""

    value: bytes
    version: int


class Change(NamedTuple):
    """One write of a set: `value` None deletes.

    With `expected_version` the set is refused unless the key stands at it (0: must not exist).
    """

    kind: str
    key: str
    value: bytes | None
    expected_version: int | None = None


class ConflictError(Exception):
    """A compare-and-set met another version than the one expected. Nothing was written."""


class StateStore(ABC):
    """Rows by (kind, key). Values are opaque bytes, JSON by custom."""

    @abstractmethod
    async def load(self, kind: str) -> dict[str, Row]:
        """Return every row of a kind.

        Raises CorruptionError naming the rows whose checksum fails.
        """

    @abstractmethod
    async def apply(self, changes: Sequence[Change]) -> None:
        """Write all of the changes or none; durable on return.

        Calls that wait at the same time share one commit. Raises ConflictError, StorageError.
        """
