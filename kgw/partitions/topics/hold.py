"""kgw.archive.hold: keeps records until archives have copied them. Pure.

The setting lists groups whose committed offsets are the progress of archives. Retention, compaction
and DeleteRecords keep all records at or above the lowest of these offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.partitions.partition import Partition
    from kgw.types import TopicId

Committed: TypeAlias = "Callable[[str, TopicId, int], int | None]"
"""Returns the offset that a group has durably committed in a partition, or None."""


class Hold(NamedTuple):
    """The offset from which a group keeps a partition's records."""

    offset: int
    """The first offset to keep: 0 if the group has no readable committed offset."""
    group_id: str


def nothing_committed(group_id: str, topic_id: TopicId, partition: int) -> None:
    """Return None for every group, so that all records of a held topic are kept."""


def hold_of(partition: Partition, committed: Committed) -> Hold | None:
    """Return the lowest hold; None for a topic without the setting."""
    topic = partition.topic
    return min(
        (
            Hold(max(0, committed(group_id, topic.topic_id, partition.index) or 0), group_id)
            for group_id in topic.config.holding_groups
        ),
        default=None,
    )


def removable_end(partition: Partition, committed: Committed) -> int:
    """Return the offset below which retention and compaction may remove records.

    It is the last stable offset, or the offset of the hold if that is lower.
    """
    end = partition.view().bounds().last_stable_offset
    hold = hold_of(partition, committed)
    return end if hold is None else min(end, hold.offset)
