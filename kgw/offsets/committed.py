"""A committed offset. Pure.

Topics go by id: one that is created again under its name begins without committed offsets.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from kgw.types import TopicId

NO_EXPIRY_MS = -1
DAMAGED_OFFSET = -(1 << 63) - 1
"""Stands where an offset was that cannot be read any more: its group must be told, not sent to
wherever it would begin without one. Stored until another one is committed, or it is deleted. No
client can commit it: it is below what 64 bits hold."""


class CommittedOffset(NamedTuple):
    """How far a group has read a partition: the offset of the next record to read."""

    offset: int
    """A negative one is kept and told as it was committed, as in Kafka, and is no position: clients
    take it for none. kafkajs commits -1 and -2, so that a group begins at either end of the log."""

    leader_epoch: int
    metadata: str
    commit_ms: int
    """Running time (`kgw.clock.RunningClock`), for the next start."""

    retention_ms: int
    """How long it is kept at most, by the client's wish (OffsetCommit 2 to 4); NO_EXPIRY_MS."""

    committed_s: float
    """Monotonic time: within a process a wall clock that jumps expires nothing."""


_STORED_DAMAGE = -2


def stored_offset(offset: int) -> int:
    """Return what a row says for an offset: -2 for damage, so that all below -1 are one lower."""
    if offset == DAMAGED_OFFSET:
        return _STORED_DAMAGE
    return offset if offset > _STORED_DAMAGE else offset - 1


def offset_stored_as(stored: int) -> int:
    """Return the offset that a row means."""
    if stored == _STORED_DAMAGE:
        return DAMAGED_OFFSET
    return stored if stored > _STORED_DAMAGE else stored + 1


def is_position(offset: int) -> bool:
    """Whether an offset says where a group stands, or stood before it was damaged."""
    return offset >= 0 or offset == DAMAGED_OFFSET


_JOB_GROUPS: Final = ("kgw-backfill-", "kgw-sink-")


def is_of_job(group_id: str, metadata: str) -> bool:
    """Whether a job of `kgw pipeline` or its sink has committed a number that is no position.

    Of a backfill it is a position in the archive, of a sink the number of a batch. Both have a note
    beside it, which consumers that call their group so have not.
    """
    return bool(metadata) and group_id.startswith(_JOB_GROUPS)


Place: TypeAlias = tuple[TopicId, int]
"""Topic id and partition."""
