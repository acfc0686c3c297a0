"""What a topic's kgw.archive.hold keeps from being removed. Pure.

The setting names the groups whose committed offsets say how far archives have come. Nothing at or
above the lowest of them is removed: by retention, by compaction, or by DeleteRecords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.partitions.partition import Partition
    from kgw.types import TopicId

Committed: TypeAlias = "Callable[[str, TopicId, int], int | None]"
"""Returns what a group has durably committed in a partition; None where there is nothing."""


class Hold(NamedTuple):
    """Where a partition is held, and by whom."""

    offset: int
    """The first offset that is held: 0 where the group has committed nothing, or nothing that can
    be read any more."""
    group_id: str


def nothing_committed(group_id: str, topic_id: TopicId, partition: int) -> None:
    """Stand for groups where none are known: whatever they could hold is held."""


def hold_of(partition: Partition, committed: Committed) -> Hold | None:
    """Return the hold that begins first; None for a topic that is not held."""
    topic = partition.topic
    return min(
        (
            Hold(max(0, committed(group_id, topic.topic_id, partition.index) or 0), group_id)
            for group_id in topic.config.holding_groups
        ),
        default=None,
    )


def removable_end(partition: Partition, committed: Committed) -> int:
    """Return below which offset retention and compaction may remove what their rules say.

    That is the last stable offset, or where a hold begins below it.
    """
    end = partition.view().bounds().last_stable_offset
    hold = hold_of(partition, committed)
    return end if hold is None else min(end, hold.offset)
