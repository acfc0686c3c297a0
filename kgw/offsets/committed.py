"""A committed offset. Pure.

Topics go by id: one that is created again under its name begins without committed offsets.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from kgw.types import TopicId

NO_EXPIRY_MS = -1
DAMAGED_OFFSET = -2
"""Stands where an offset was that cannot be read any more: its group must be told, not sent to
wherever it would begin without one. Stored like any other until it is committed or deleted."""


class CommittedOffset(NamedTuple):
    """How far a group has read a partition: the offset of the next record to read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    """Running time (`kgw.clock.RunningClock`), for the next start."""

    retention_ms: int
    """How long it is kept at most, by the client's wish (OffsetCommit 2 to 4); NO_EXPIRY_MS."""

    committed_s: float
    """Monotonic time: within a process a wall clock that jumps expires nothing."""


Place: TypeAlias = tuple[TopicId, int]
"""Topic id and partition."""
