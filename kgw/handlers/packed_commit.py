"""A commit of many partitions with the same metadata, stored and answered as columns of numbers.

A client that commits a thousand partitions sends the same metadata with each of them. The decoder
leaves such partitions packed (`kgw.protocol.packed`). If all of them can be stored they become an
`OffsetBlock`; tests/handlers/test_group_offsets.py compares that with partitions one by one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kgw.handlers.commits import is_too_large
from kgw.handlers.joint_answer import Whole
from kgw.offsets.block import OffsetBlock
from kgw.protocol.packed import numbers_of
from kgw.protocol.schema import EncodedItems

if TYPE_CHECKING:
    from kgw.errors import ErrorCode
    from kgw.handlers.commits import CommitsOffsets
    from kgw.offsets.topic_offsets import OffsetChanges, TopicChange
    from kgw.partitions.topics.topic import Topic
    from kgw.protocol.packed import PackedItems
    from kgw.types import TopicId

_FLEXIBLE = 8
_UNITS = 20
"""A block takes as long as 20 single offsets, and each 20 of its partitions as long as one."""


class PackedTopics:
    """The topics of one commit whose partitions stay packed."""

    def __init__(self, commit: CommitsOffsets) -> None:
        self._commit = commit
        self._blocks: dict[TopicId, OffsetBlock] = {}

    def take(self, topic: Topic, items: PackedItems) -> Whole | None:
        """Keep a topic's partitions as a block; None if not all of them can be stored as one."""
        if topic.topic_id in self._blocks or topic.topic_id in self._commit.offsets:
            return None
        block = self._block(topic, items)
        if block is None:
            return None
        self._blocks[topic.topic_id] = block
        units = _UNITS + len(block) // _UNITS
        return Whole(partial(_encode, block, self._commit.version), units)

    def offsets(self) -> OffsetChanges:
        """Return the offsets to store. A topic that the request names again has newer ones."""
        single = self._commit.offsets
        changes: dict[TopicId, TopicChange] = {**single}
        for topic_id, block in self._blocks.items():
            again = single.get(topic_id)
            changes[topic_id] = block if again is None else block.entries() | again
        return changes

    def _block(self, topic: Topic, items: PackedItems) -> OffsetBlock | None:
        commit, columns, count = self._commit, items.columns, len(items)
        indexes = numbers_of(columns["partition_index"], count)
        offsets = numbers_of(columns["committed_offset"], count)
        if (
            min(offsets) < 0
            or not topic.has_partition(min(indexes))
            or not topic.has_partition(max(indexes))
            or len(set(indexes)) < count
            or is_too_large(items.text or "", commit.metadata_limit)
        ):
            return None
        return OffsetBlock(
            columns["partition_index"],
            columns["committed_offset"],
            columns.get("committed_leader_epoch", b"\xff" * 4 * count),
            items.text or "",
            commit.commit_ms,
            commit.retention_ms,
            commit.committed_s,
        )


def _encode(block: OffsetBlock, version: int, code: ErrorCode) -> EncodedItems:
    """Return the answers for a block: the index of each partition, and the error code."""
    # Flexible versions end an element with no tags.
    answer_bytes = 7 if version >= _FLEXIBLE else 6
    answer = bytearray(len(block) * answer_bytes)
    for number in range(4):
        answer[number::answer_bytes] = block.partitions[number::4]
    codes: list[int] = []
    if code:
        for number, byte in enumerate(code.to_bytes(2, "big", signed=True), start=4):
            answer[number::answer_bytes] = bytes([byte]) * len(block)
        codes = [code] * len(block)
    return EncodedItems(len(block), [bytes(answer)], codes)
