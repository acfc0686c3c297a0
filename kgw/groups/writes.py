"""What groups want stored: a write for each change, and the rows that a batch of them comes to.

Changes count in the order of the writes, whoever sent them: of a batch, each row is stored once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kgw.state.base import Change
from kgw.state.kinds import CLASSIC_GROUP
from kgw.turns import Share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from kgw.completion import Completion
    from kgw.groups.requests import JoinResult, SyncResult
    from kgw.groups.rows import GroupRow
    from kgw.offsets.block import OffsetBlock
    from kgw.offsets.committed import OffsetChanges
    from kgw.offsets.table import OffsetTable
    from kgw.turns import Turns
    from kgw.types import TopicId

ROWS_PER_TURN = 150
"""To make a row takes 8 to 15 us."""
BLOCK_PER_ROW = 64
"""So many offsets of a block take the time of a row: its key is made of all of them."""
MERGED_PER_TURN = 3_000
"""To take an offset out of a block, or to let it go, takes up to 0.7 us."""
OFFSETS_PER_TURN = 500
"""So many may be in the rows that are made together."""


class StoredGroup(Protocol):
    """What the writer needs of a group."""

    group_id: str
    offsets: OffsetTable
    unwritten: int
    """Writes of this group that are not durable yet."""

    def row_written(self, row: GroupRow | None) -> None:
        """The group's row is durable; None: it has been deleted."""

    def row_failed(self) -> None:
        """A row could not be stored: whatever followed from it did not happen."""


class Write:
    """One change of one group: one of the classes below says which.

    `then` is called once it is durable, or has failed: with the error if there was one.
    """

    __slots__ = ("group", "then")

    is_of_machine = False
    """Whether later steps of the group build upon it."""

    row: GroupRow | None = None
    """What the group's row becomes, if `is_of_machine`; None: it is deleted."""

    answers: Sequence[tuple[Completion[object], JoinResult | SyncResult]] = ()
    """Given before `then` is called; refused when it fails."""

    def __init__(self, group: StoredGroup) -> None:
        self.group = group
        self.then: list[Callable[[Exception | None], None]] = []


class RowWrite(Write):
    """The group's own row changes."""

    __slots__ = ("answers", "empty_since_ms", "row")

    is_of_machine = True

    def __init__(self, group: StoredGroup, row: GroupRow, empty_since_ms: int) -> None:
        super().__init__(group)
        self.row: GroupRow = row
        self.empty_since_ms = empty_since_ms
        self.answers: list[tuple[Completion[object], JoinResult | SyncResult]] = []


class GroupDeletion(Write):
    """The group goes, with all of its offsets."""

    __slots__ = ()

    is_of_machine = True


class OffsetsWrite(Write):
    """Single offsets are committed, or deleted."""

    __slots__ = ("offsets",)

    def __init__(self, group: StoredGroup, offsets: OffsetChanges) -> None:
        super().__init__(group)
        self.offsets = offsets


class BlocksWrite(Write):
    """Many offsets of a topic are committed at once, or of several topics."""

    __slots__ = ("blocks",)

    def __init__(self, group: StoredGroup, blocks: dict[TopicId, OffsetBlock]) -> None:
        super().__init__(group)
        self.blocks = blocks


class TopicsDrop(Write):
    """All offsets of some topics go."""

    __slots__ = ("topics",)

    def __init__(self, group: StoredGroup, topics: AbstractSet[TopicId]) -> None:
        super().__init__(group)
        self.topics = topics


class MergedOffsets:
    """What a batch changes of one group's offsets.

    Topics whose offsets all go, and beside them single offsets, or blocks and nothing else. No
    topic is among both. A topic that is dropped costs no more than its rows, however many
    partitions it has: offset by offset, a thousand of them took 2 ms.
    """

    __slots__ = ("blocks", "dropped", "group", "offsets")

    def __init__(self, group: StoredGroup) -> None:
        self.group = group
        self.dropped: dict[TopicId, None] = {}
        self.offsets: OffsetChanges = {}
        self.blocks: dict[TopicId, OffsetBlock] = {}

    def add(self, write: Write) -> int:
        """Add a write, the later one counts; return how many offsets were looked at."""
        if isinstance(write, OffsetsWrite):
            count = len(write.offsets)
            if self.blocks:
                count += self._break_up_blocks()
            if self.dropped:
                count += self._drop_singly({topic_id for topic_id, _ in write.offsets})
            self.offsets.update(write.offsets)
            return count
        if isinstance(write, BlocksWrite):
            count = len(write.blocks)
            if self.dropped:
                count += self._drop_singly(write.blocks)
            if not self.offsets and all(
                topic_id not in self.blocks or self.blocks[topic_id].partitions == block.partitions
                for topic_id, block in write.blocks.items()
            ):
                self.blocks.update(write.blocks)
                return count
            return count + self._break_up_blocks() + self._break_up(write.blocks)
        return self._drop(write.topics if isinstance(write, TopicsDrop) else None)

    def _drop(self, topics: AbstractSet[TopicId] | None) -> int:
        """Let all offsets of these topics go, or all there are."""
        stored = self.group.offsets
        count = len(self.offsets)
        if topics is None:
            gone: Iterable[TopicId] = stored.topic_ids()
            self.offsets, self.blocks = {}, {}
        else:
            gone = [topic_id for topic_id in topics if stored.has_topic(topic_id)]
            count += len(topics)
            if self.offsets:
                self.offsets = {
                    place: committed
                    for place, committed in self.offsets.items()
                    if place[0] not in topics
                }
            for topic_id in self.blocks.keys() & topics:
                del self.blocks[topic_id]
        self.dropped.update(dict.fromkeys(gone))
        return count + len(self.dropped)

    def _drop_singly(self, topics: Iterable[TopicId]) -> int:
        """Let go offset by offset what was dropped whole: the topic is committed to once more."""
        count = 0
        for topic_id in self.dropped.keys() & topics:
            del self.dropped[topic_id]
            partitions = self.group.offsets.partitions(topic_id)
            self.offsets.update(dict.fromkeys((topic_id, index) for index in partitions))
            count += len(partitions)
        return count

    def _break_up_blocks(self) -> int:
        blocks, self.blocks = self.blocks, {}
        return self._break_up(blocks)

    def _break_up(self, blocks: dict[TopicId, OffsetBlock]) -> int:
        for topic_id, block in blocks.items():
            for partition, committed in block.entries().items():
                self.offsets[topic_id, partition] = committed
        return sum(map(len, blocks.values()))

    def rows(self) -> Iterator[tuple[list[tuple[str, str, bytes | None]], int]]:
        """Yield what is to be stored: rows at a time, of one topic where there are many.

        With them how many rows they count for.
        """
        table, group_id = self.group.offsets, self.group.group_id
        for topic_id in self.dropped:
            gone = table.rows_of(group_id, topic_id)
            yield gone, len(gone) + table.count_in_blocks(topic_id) // BLOCK_PER_ROW
        if len(self.offsets) <= OFFSETS_PER_TURN:
            if self.offsets:
                rows = table.rows_after(group_id, self.offsets)
                yield rows, len(rows)
        else:
            by_topic: dict[TopicId, OffsetChanges] = {}
            for place, committed in self.offsets.items():
                by_topic.setdefault(place[0], {})[place] = committed
            for changes in by_topic.values():
                rows = table.rows_after(group_id, changes)
                yield rows, len(rows)
        for topic_id, block in self.blocks.items():
            rows = table.rows_after_block(group_id, topic_id, block)
            yield rows, len(rows) + len(block) // BLOCK_PER_ROW

    def apply(self) -> int:
        """Have the group's table take over what was stored; return how many offsets that were."""
        table = self.group.offsets
        count = table.apply(self.offsets)
        for topic_id in self.dropped:
            count += table.drop_topic(topic_id)
        for topic_id, block in self.blocks.items():
            count += table.apply_block(topic_id, block)
        return count


def changes_of(batch: list[Write]) -> Turns[tuple[list[Change], list[MergedOffsets]]]:
    """Return the rows that a batch changes, and the offsets that change with them."""
    last_row: dict[int, Write] = {}
    merged: dict[int, MergedOffsets] = {}
    # The tables stand still between turns: they change when a batch is stored, one at a time.
    share = Share(MERGED_PER_TURN)
    for write in batch:
        group = write.group
        if write.is_of_machine:
            last_row[id(group)] = write
            if write.row is not None:
                continue
        one = merged.get(id(group))
        if one is None:
            one = merged[id(group)] = MergedOffsets(group)
        if share.spend(1 + one.add(write)):
            yield
    share = Share(ROWS_PER_TURN)
    changes = []
    for write in last_row.values():
        value = write.row.encode(write.empty_since_ms) if isinstance(write, RowWrite) else None
        changes.append(Change(CLASSIC_GROUP, write.group.group_id, value))
        if share.spend():
            yield
    for one in merged.values():
        for rows, count in one.rows():
            changes += [Change(*row) for row in rows]
            if share.spend(count):
                yield
    return changes, list(merged.values())
