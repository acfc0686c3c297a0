"""A committed offset.

Committed offsets belong to a topic id: a topic that is created again with the same name has none.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from kgw.types import TopicId

NO_EXPIRY_MS = -1
DAMAGED_OFFSET = -(1 << 63) - 1
"""Stands for a stored offset that is damaged: the group gets an error, instead of starting as if it
had committed no offset. It is kept until it is deleted or another offset is committed. Clients
cannot commit it, as it is below the smallest int64."""


class CommittedOffset(NamedTuple):
    """A committed offset: the offset of the next record that the group reads from a partition."""

    offset: int
    """As in Kafka, a negative offset is stored and returned as it was committed, and clients treat
    it as no committed offset. kafkajs commits -1 and -2, so that a group begins at the latest or
    the earliest offset."""

    leader_epoch: int
    metadata: str
    commit_ms: int
    """Running time (`kgw.clock.RunningClock`), for the next start."""

    retention_ms: int
    """How long to keep the offset if the client has set a time (OffsetCommit 2 to 4), else
    NO_EXPIRY_MS."""

    committed_s: float
    """Monotonic time of the commit, so that a jump of the wall clock expires no offset."""


_STORED_DAMAGE = -2


def stored_offset(offset: int) -> int:
    """Return the number that is stored for an offset.

    -2 stands for DAMAGED_OFFSET, so offsets below -1 are stored as the next lower number.
    """
    if offset == DAMAGED_OFFSET:
        return _STORED_DAMAGE
    return offset if offset > _STORED_DAMAGE else offset - 1


def offset_stored_as(stored: int) -> int:
    """Return the offset from the stored number."""
    if stored == _STORED_DAMAGE:
        return DAMAGED_OFFSET
    return stored if stored > _STORED_DAMAGE else stored + 1


def is_position(offset: int) -> bool:
    """Return whether an offset is a position of a group, or a damaged one."""
    return offset >= 0 or offset == DAMAGED_OFFSET


_JOB_GROUPS: Final = ("kgw-backfill-", "kgw-sink-")


def is_of_job(group_id: str, metadata: str) -> bool:
    """Return whether the number was committed by a job of `kgw pipeline` and is no offset.

    A backfill commits a position in the archive, a sink commits a batch number. Both add metadata;
    consumers whose group has the name of a job do not.
    """
    return bool(metadata) and group_id.startswith(_JOB_GROUPS)


Place: TypeAlias = tuple[TopicId, int]
"""Topic id and partition."""
