"""Where a group of this node stands in a topic, as seeks ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.offsets.committed import DAMAGED_OFFSET

if TYPE_CHECKING:
    from collections.abc import Collection

    from kgw.groups.coordinator import GroupCoordinator
    from kgw.offsets.reader import Answers
    from kgw.types import TopicId


class CommittedPositions:
    """The committed offsets of one group in one topic, as they are when they are asked for."""

    def __init__(self, groups: GroupCoordinator, group_id: str, topic_id: TopicId) -> None:
        self._groups = groups
        self._group_id = group_id
        self._topic_id = topic_id

    async def committed(self, partitions: Collection[int]) -> Answers[int | None]:
        """Return the offset of the next record by partition, None where none is committed.

        A negative one is none.
        """
        offsets = self._groups.offsets(self._group_id)
        answers: Answers[int | None] = {}
        for partition in partitions:
            one = None if offsets is None else offsets.get(self._topic_id, partition)
            answers[partition] = None if one is None or one.offset < 0 else one.offset
            if one is not None and one.offset == DAMAGED_OFFSET:
                answers[partition] = KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"what the group has committed of partition {partition} is damaged",
                )
        return answers
