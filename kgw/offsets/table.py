"""Committed offsets of a group: a table by topic id and partition, stored rows, expiry. Pure.

A row of kind `group-offsets` holds up to sixteen neighbouring partitions of one topic in one group,
so that a client that commits one partition rewrites a few hundred bytes. What a client commits of
many partitions at once is kept and stored together: see `block`.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii as _quote
from typing import TYPE_CHECKING

from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK
from kgw.types import TopicId, format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.offsets.block import OffsetBlock
    from kgw.offsets.committed import OffsetChanges, Place

PARTITIONS_PER_ROW = 16


class OffsetTable:
    """The durable committed offsets of one group: single ones, and blocks of many."""

    __slots__ = ("_blocks", "_topics")

    def __init__(self) -> None:
        self._topics: dict[TopicId, dict[int, CommittedOffset]] = {}
        self._blocks: dict[TopicId, dict[bytes, OffsetBlock]] = {}
        """By topic and the column of partitions; no two have a partition in common."""

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._topics.values()) + sum(
            len(block) for blocks in self._blocks.values() for block in blocks.values()
        )

    @property
    def is_empty(self) -> bool:
        return not self._topics and not self._blocks

    def has_topic(self, topic_id: TopicId) -> bool:
        """Whether anything was committed to a topic."""
        return topic_id in self._topics or topic_id in self._blocks

    def get(self, topic_id: TopicId, partition: int) -> CommittedOffset | None:
        found = self._topics.get(topic_id, {}).get(partition)
        if found is None:
            for block in self._blocks.get(topic_id, {}).values():
                found = found or block.get(partition)
        return found

    def topics(self) -> Mapping[TopicId, Mapping[int, CommittedOffset]]:
        """Return everything, by topic and partition."""
        if not self._blocks:
            return self._topics
        return {topic_id: self.of_topic(topic_id) for topic_id in self.topic_ids()}

    def topic_ids(self) -> list[TopicId]:
        """Return the topics to which anything was committed."""
        return list({**self._topics, **self._blocks})

    def of_topic(self, topic_id: TopicId) -> Mapping[int, CommittedOffset]:
        """Return what was committed to a topic, by partition."""
        single = self._topics.get(topic_id, {})
        blocks = self._blocks.get(topic_id)
        if blocks is None:
            return single
        merged = {**single}
        for block in blocks.values():
            merged |= block.entries()
        return merged

    def partitions(self, topic_id: TopicId) -> list[int]:
        """Return the partitions of a topic to which anything was committed."""
        found = [*self._topics.get(topic_id, ())]
        for block in self._blocks.get(topic_id, {}).values():
            found += block.positions()
        return found

    def apply(self, changes: OffsetChanges) -> int:
        """Take over what has become durable; return how many offsets were gone through."""
        broken, changes = self._without_blocks(changes)
        for topic_id, block in broken:
            self._drop_block(topic_id, block)
        for (topic_id, partition), committed in changes.items():
            if committed is not None:
                self._topics.setdefault(topic_id, {})[partition] = committed
                continue
            partitions = self._topics.get(topic_id)
            if partitions is not None:
                partitions.pop(partition, None)
                if not partitions:
                    del self._topics[topic_id]
        return len(changes)

    def apply_block(self, topic_id: TopicId, block: OffsetBlock) -> int:
        """Do the same with a block."""
        count = 1
        before = self.block(topic_id, block.partitions)
        if before is None:
            count = len(block) + self.apply(self._making_room(topic_id, block))
        else:
            block.follow(before)
        self._blocks.setdefault(topic_id, {})[block.partitions] = block
        return count

    def drop_topic(self, topic_id: TopicId) -> int:
        """Forget a topic, which is durable; return how many offsets it had."""
        count = self.count_in_blocks(topic_id)
        self._blocks.pop(topic_id, None)
        return count + len(self._topics.pop(topic_id, ()))

    def count_in_blocks(self, topic_id: TopicId) -> int:
        """Return how many offsets of a topic are in blocks."""
        return sum(map(len, self._blocks.get(topic_id, {}).values()))

    def block(self, topic_id: TopicId, partitions: bytes) -> OffsetBlock | None:
        """Return the block of exactly these partitions (a column)."""
        return self._blocks.get(topic_id, {}).get(partitions)

    def rows_of(self, group_id: str, topic_id: TopicId) -> list[tuple[str, str, bytes | None]]:
        """Return kind and key of every row of a topic, and no content: they are to go."""
        numbers = {partition // PARTITIONS_PER_ROW for partition in self._topics.get(topic_id, ())}
        blocks = self._blocks.get(topic_id, {}).values()
        return [
            *((GROUP_OFFSETS, row_key(group_id, topic_id, number), None) for number in numbers),
            *((OFFSET_BLOCK, block.row_key(group_id, topic_id), None) for block in blocks),
        ]

    def rows_after(
        self, group_id: str, changes: OffsetChanges
    ) -> list[tuple[str, str, bytes | None]]:
        """Return kind, key and content of every row that changes touch; None for one that goes."""
        if len(changes) == 1 and not self._blocks:
            ((topic_id, partition), committed) = next(iter(changes.items()))
            stored = self._topics.get(topic_id)
            if stored is None or (len(stored) == 1 and partition in stored):
                # What a consumer of one partition commits: a third of the general way.
                key = row_key(group_id, topic_id, partition // PARTITIONS_PER_ROW)
                return [(GROUP_OFFSETS, key, _encode({partition: committed}))]
        broken, changes = self._without_blocks(changes)
        written: list[tuple[str, str, bytes | None]] = [
            (OFFSET_BLOCK, block.row_key(group_id, topic_id), None) for topic_id, block in broken
        ]
        rows: dict[tuple[TopicId, int], dict[int, CommittedOffset | None]] = {}
        for (topic_id, partition), committed in changes.items():
            rows.setdefault((topic_id, partition // PARTITIONS_PER_ROW), {})[partition] = committed
        for (topic_id, number), changed in rows.items():
            merged = changed
            stored = self._topics.get(topic_id)
            if stored and len(changed) < PARTITIONS_PER_ROW:
                first = number * PARTITIONS_PER_ROW
                merged = {
                    partition: stored[partition]
                    for partition in range(first, first + PARTITIONS_PER_ROW)
                    if partition in stored
                }
                merged.update(changed)
            written.append((GROUP_OFFSETS, row_key(group_id, topic_id, number), _encode(merged)))
        return written

    def rows_after_block(
        self, group_id: str, topic_id: TopicId, block: OffsetBlock
    ) -> list[tuple[str, str, bytes | None]]:
        """Return the same for a block: with one of the same partitions before, a single row."""
        written: list[tuple[str, str, bytes | None]] = []
        before = self.block(topic_id, block.partitions)
        if before is None:
            written = self.rows_after(group_id, self._making_room(topic_id, block))
        else:
            block.follow(before)
        return [*written, (OFFSET_BLOCK, block.row_key(group_id, topic_id), block.encode())]

    def row(self, kind: str, key: str) -> bytes | None:
        """Return the content of a row of this group's, None where there is nothing for it."""
        topic_text, place, group_id = key.split("/", 2)
        topic_id = TopicId(parse_uuid(topic_text))
        if kind == OFFSET_BLOCK:
            blocks = self._blocks.get(topic_id, {}).values()
            found = [block for block in blocks if block.row_key(group_id, topic_id) == key]
            return found[0].encode() if found else None
        return _encode(
            {
                partition: committed
                for partition, committed in self._topics.get(topic_id, {}).items()
                if partition // PARTITIONS_PER_ROW == int(place)
            }
        )

    def _making_room(self, topic_id: TopicId, block: OffsetBlock) -> OffsetChanges:
        """Return changes that leave a block's places empty, and break up blocks that have any."""
        wanted = block.positions()
        taken = self._topics.get(topic_id, {}).keys() & wanted
        for other in self._blocks.get(topic_id, {}).values():
            taken |= other.positions().keys() & wanted
        return dict.fromkeys((topic_id, partition) for partition in taken)

    def _without_blocks(
        self, changes: OffsetChanges
    ) -> tuple[list[tuple[TopicId, OffsetBlock]], OffsetChanges]:
        """Return the blocks that changes touch, and changes that also say what else was in them."""
        if not self._blocks:
            return [], changes
        broken = {
            id(block): (topic_id, block)
            for topic_id, partition in changes
            for block in self._blocks.get(topic_id, {}).values()
            if partition in block.positions()
        }
        kept: OffsetChanges = {}
        for topic_id, block in broken.values():
            left = [one for one in block.positions() if (topic_id, one) not in changes]
            if left:
                entries = block.entries()
                kept.update(((topic_id, one), entries[one]) for one in left)
        return list(broken.values()), {**kept, **changes}

    def _drop_block(self, topic_id: TopicId, block: OffsetBlock) -> None:
        blocks = self._blocks[topic_id]
        del blocks[block.partitions]
        if not blocks:
            del self._blocks[topic_id]

    def expired(self, now_s: float, empty_since_s: float, retention_s: float) -> list[Place]:
        """Return what a group that is empty need not keep any longer.

        Each offset is kept for the retention time from its commit or from when the group became
        empty, whichever is later; or for as long as its client asked, from the commit.
        """

        def is_expired(one: CommittedOffset | OffsetBlock) -> bool:
            if one.retention_ms != NO_EXPIRY_MS:
                return one.committed_s + one.retention_ms / 1000 <= now_s
            return max(one.committed_s, empty_since_s) + retention_s <= now_s

        gone = [
            (topic_id, partition)
            for topic_id, partitions in self._topics.items()
            for partition, one in partitions.items()
            if is_expired(one)
        ]
        # What is in a block was committed at once, and goes at once.
        for topic_id, blocks in self._blocks.items():
            for block in blocks.values():
                if is_expired(block):
                    gone += [(topic_id, partition) for partition in block.positions()]
        return gone


def row_key(group_id: str, topic_id: TopicId, number: int) -> str:
    """Return a row's key: what has a fixed form first, for a group's id may hold anything."""
    return f"{format_uuid(topic_id)}/{number}/{group_id}"


def parse_row_key(key: str) -> tuple[str, TopicId]:
    """Return group and topic of a row's key. Raises ValueError for other text."""
    topic_id, number, group_id = key.split("/", 2)
    int(number)
    return group_id, TopicId(parse_uuid(topic_id))


def group_of(key: str) -> str:
    """Return the group whose offsets a row has, single ones or a block."""
    return key.split("/", 2)[2]


def damaged_row(key: str, wall_ms: int, now_s: float) -> dict[Place, CommittedOffset]:
    """Return what takes the place of a row that cannot be read. Raises ValueError as the key's."""
    topic_id, number, _ = key.split("/", 2)
    damaged = CommittedOffset(DAMAGED_OFFSET, -1, "", wall_ms, NO_EXPIRY_MS, now_s)
    first = int(number) * PARTITIONS_PER_ROW
    return {
        (TopicId(parse_uuid(topic_id)), partition): damaged
        for partition in range(first, first + PARTITIONS_PER_ROW)
    }


def decode_row(
    topic_id: TopicId, value: bytes, wall_ms: int, now_s: float
) -> Iterable[tuple[Place, CommittedOffset]]:
    """Return a row's offsets, given what time it is on both clocks. Raises ValueError."""
    try:
        return [
            (
                (topic_id, int(partition)),
                CommittedOffset(
                    int(offset),
                    int(leader_epoch),
                    str(metadata),
                    int(commit_ms),
                    int(retention_ms),
                    now_s - max(0, wall_ms - int(commit_ms)) / 1000,
                ),
            )
            for partition, offset, leader_epoch, commit_ms, retention_ms, metadata in json.loads(
                value
            )
        ]
    except TypeError as error:
        raise ValueError(f"not a row of committed offsets: {error}") from error


def _encode(row: dict[int, CommittedOffset | None]) -> bytes | None:
    """Return a row's content, None when nothing is left of it.

    Formatted by hand: json.dumps, which takes a third longer, was a fifth of a commit of a thousand
    partitions.
    """
    entries = [_entry(*one) for one in (row.items() if len(row) == 1 else sorted(row.items()))]
    text = ",".join(filter(None, entries))
    return f"[{text}]".encode() if text else None


def _entry(partition: int, committed: CommittedOffset | None) -> str:
    if committed is None:
        return ""
    offset, leader_epoch, metadata, commit_ms, retention_ms, _ = committed
    text = _quote(metadata)
    return f"[{partition},{offset},{leader_epoch},{commit_ms},{retention_ms},{text}]"
