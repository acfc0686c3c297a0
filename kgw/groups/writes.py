"""Turns the offset changes of a batch of writes into rows.

Later writes of a batch overwrite earlier ones of the same group; each row is stored once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.offsets.pending import PendingCommit
from kgw.offsets.rows import row_key
from kgw.state.base import Change
from kgw.state.kinds import PENDING_OFFSETS
from kgw.turns import StepBudget

if TYPE_CHECKING:
    from kgw.coordinator.entry import Write
    from kgw.groups.group import Group
    from kgw.groups.machine import OffsetWrite
    from kgw.offsets.pending import PendingTable
    from kgw.offsets.rows import RowPlace
    from kgw.offsets.topic_offsets import OffsetChanges, TopicOffsets
    from kgw.turns import Turns
    from kgw.types import TopicId

ROWS_PER_TURN = 150
"""How many rows are encoded in one turn of the loop. A row takes 8 to 15 us."""
BYTES_PER_ROW = 1024
"""How many bytes of a block take as long to encode as one row."""
TOUCHED_PER_ROW = 3
"""How many changed rows can be found in the time that the encoding of one row takes."""


class MergedOffsets:
    """The changes of one group's offsets in a batch: the new offsets, and the rows that change.

    The new committed and pending offsets become visible with `apply`, once they are durable.
    """

    __slots__ = ("_group", "_pending", "_topics", "touched")

    def __init__(self, group: Group) -> None:
        self._group = group
        self._topics: dict[TopicId, TopicOffsets] = {}
        self._pending: PendingTable | None = None
        """None: unchanged."""
        self.touched: dict[TopicId, set[RowPlace]] = {}
        """The changed rows, by topic."""

    def add(self, wanted: OffsetWrite) -> int:
        """Add the changes of a later write.

        Returns how many rows and topics the write changes, as a measure of the work.
        """
        changes = wanted.offsets
        table = self._group.offsets
        pending = self._pending
        if pending is None and (self._group.pending or wanted.pending is not None):
            pending = self._pending = self._group.pending.copy()
        if wanted.drops_all:
            pending_ids = () if pending is None else pending.topic_ids()
            everything: OffsetChanges = dict.fromkeys(
                (*table.topic_ids(), *self._topics, *pending_ids)
            )
            changes = everything
        count = 0
        if pending is not None:
            if isinstance(wanted.pending, PendingCommit):
                rows = pending.add(wanted.pending)
            elif wanted.pending is not None:
                changes, rows = pending.end(wanted.pending)
            else:
                rows = pending.outdate(changes)
            for topic_id, places in rows.items():
                self.touched.setdefault(topic_id, set()).update(places)
                count += len(places)
        for topic_id, change in changes.items():
            if topic_id not in self._topics:
                self._topics[topic_id] = table.topic(topic_id).copy()
            touched = self._topics[topic_id].change(change)
            self.touched.setdefault(topic_id, set()).update(touched)
            count += 1 + len(touched)
        return count

    def row(self, topic_id: TopicId, place: RowPlace) -> bytes | None:
        """Return the new content of a changed row; None to delete the row."""
        if place[0] == PENDING_OFFSETS:
            return None if self._pending is None else self._pending.row(topic_id, place)
        return self._topics[topic_id].row(place)

    def apply(self) -> int:
        """Make the stored offsets visible in the group. Return how many topics have changed."""
        if self._pending is not None:
            self._group.pending = self._pending
        for topic_id, offsets in self._topics.items():
            self._group.offsets.replace(topic_id, offsets)
        return len(self._topics)


def offset_changes(batch: list[Write]) -> Turns[tuple[list[Change], list[MergedOffsets]]]:
    """Return the changed offset rows of a batch, and the changes of each group."""
    merged: dict[Group, MergedOffsets] = {}
    # The tables do not change while this generator is suspended: only `apply` changes them, after a
    # batch is stored, and only one batch is stored at a time.
    budget = StepBudget(ROWS_PER_TURN)
    for write in batch:
        wanted = write.more
        if wanted is not None:
            one = merged.get(write.entry)
            if one is None:
                one = merged[write.entry] = MergedOffsets(write.entry)
            if budget.spend(1 + one.add(wanted) // TOUCHED_PER_ROW):
                yield
    changes = []
    for group, one in merged.items():
        for topic_id, places in one.touched.items():
            for place in sorted(places):
                value = one.row(topic_id, place)
                key = row_key(group.key, topic_id, place)
                changes.append(Change(place[0], key, value))
                if budget.spend(1 + len(value or b"") // BYTES_PER_ROW):
                    yield
    return changes, list(merged.values())
