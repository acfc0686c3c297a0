"""A committed offset. Pure.

Topics are known by id: a topic that is created again under the same name has no committed offsets.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from kgw.types import TopicId

NO_EXPIRY_MS = -1
DAMAGED_OFFSET = -(1 << 63) - 1
"""Replaces a stored offset that cannot be read any more: its group gets an error and does not begin
as if it had committed none. It is stored until another offset is committed or it is deleted. No
client can commit it: it is below the smallest int64."""


class CommittedOffset(NamedTuple):
    """How far a group has read a partition: the offset of the next record to read."""

    offset: int
    """As in Kafka, a negative offset is stored and returned as it was committed, and clients treat
    it as no committed offset. kafkajs commits -1 and -2, so that a group begins at the latest or
    the earliest offset."""

    leader_epoch: int
    metadata: str
    commit_ms: int
    """Running time (`kgw.clock.RunningClock`), for the next start."""

    retention_ms: int
    """How long to keep it, as the client asked (OffsetCommit 2 to 4); otherwise NO_EXPIRY_MS."""

    committed_s: float
    """Monotonic time of the commit: within a process, a jump of the wall clock expires nothing."""


_STORED_DAMAGE = -2


def stored_offset(offset: int) -> int:
    """Return the number that a row holds for an offset.

    -2 stands for DAMAGED_OFFSET, and therefore offsets below -1 are stored one lower.
    """
    if offset == DAMAGED_OFFSET:
        return _STORED_DAMAGE
    return offset if offset > _STORED_DAMAGE else offset - 1


def offset_stored_as(stored: int) -> int:
    """Return the offset for the number in a row."""
    if stored == _STORED_DAMAGE:
        return DAMAGED_OFFSET
    return stored if stored > _STORED_DAMAGE else stored + 1


def is_position(offset: int) -> bool:
    """Return whether an offset is a group's position, or was one before it was damaged."""
    return offset >= 0 or offset == DAMAGED_OFFSET


_JOB_GROUPS: Final = ("kgw-backfill-", "kgw-sink-")


def is_of_job(group_id: str, metadata: str) -> bool:
    """Return whether a job of `kgw pipeline` or its sink committed a number that is not an offset.

    A backfill commits a position in the archive, a sink the number of a batch. Both commit metadata
    with it; consumers whose group has such a name do not.
    """
    return bool(metadata) and group_id.startswith(_JOB_GROUPS)


Place: TypeAlias = tuple[TopicId, int]
"""Topic id and partition."""
