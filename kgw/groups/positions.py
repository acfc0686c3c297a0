"""Returns the offsets that a group has committed in a topic, for seeks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode, KafkaError
from kgw.offsets.committed import DAMAGED_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kgw.offsets.reader import Answers
    from kgw.offsets.table import OffsetTable
    from kgw.types import TopicId


class CommittedPositions:
    """Returns the current committed offsets of one group in one topic."""

    def __init__(
        self, offsets: Callable[[str], OffsetTable | None], group_id: str, topic_id: TopicId
    ) -> None:
        """`offsets` returns the committed offsets of a group; None if there is no such group."""
        self._offsets = offsets
        self._group_id = group_id
        self._topic_id = topic_id

    async def committed(self, partitions: Collection[int]) -> Answers[int | None]:
        """Return the committed offset of each partition: the offset of the next record to read.

        None for a partition without a committed offset or with a negative one; a KafkaError with
        CORRUPT_MESSAGE for a partition whose committed offset is damaged.
        """
        offsets = self._offsets(self._group_id)
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
