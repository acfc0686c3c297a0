"""OffsetLoader: loads the stored committed and pending offsets when the process starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.groups.requests import CLASSIC
from kgw.logs import EventLogger
from kgw.offsets.block import decode_block
from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.pending import decode_pending
from kgw.offsets.rows import decode_row, parse_row_key, partitions_in, row_key
from kgw.state.base import Change
from kgw.state.kinds import FOREIGN_TOPIC, GROUP_OFFSETS, OFFSET_BLOCK, PENDING_OFFSETS
from kgw.types import format_uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.clock import Clock
    from kgw.groups.group import Group
    from kgw.groups.table import GroupTable
    from kgw.offsets.rows import RowPlace
    from kgw.offsets.topic_offsets import TopicChange
    from kgw.state.base import StateStore
    from kgw.types import TopicId

_log = EventLogger(__name__)

_NEVER_INHABITED_S = float("-inf")


class OffsetLoader:
    """Loads the offsets of all groups into a table that has loaded the groups already."""

    def __init__(self, state: StateStore, clock: Clock, table: GroupTable) -> None:
        self._state = state
        self._table = table
        self._now_s = clock.monotonic_s()
        self._running_ms = clock.running_ms()
        self._gone_topics: set[TopicId] = set()

    async def load(self, topic_exists: Callable[[TopicId], bool]) -> set[TopicId]:
        """Load all offsets; return the ids of deleted topics with offsets. Raises StorageError.

        A foreign topic that is not there now may come back: it does not count as deleted.
        """
        # Rows of single partitions come before blocks: a partition of a damaged block is marked as
        # damaged only if no other row has its offset.
        for kind_of_row in (GROUP_OFFSETS, OFFSET_BLOCK, PENDING_OFFSETS):
            await self._load_offsets(kind_of_row, topic_exists)
        if self._gone_topics:
            intact, damaged = await self._table.read(FOREIGN_TOPIC)
            foreign = {*intact, *damaged}
            self._gone_topics = {
                one for one in self._gone_topics if format_uuid(one) not in foreign
            }
        return self._gone_topics

    async def _load_offsets(self, kind: str, topic_exists: Callable[[TopicId], bool]) -> None:
        intact, lost = await self._table.read(kind)
        for key in lost:
            _log.error("a stored row is damaged", kind=kind, key=key)
        damaged = [*lost]
        for key, stored in intact.items():
            try:
                group_id, topic_id, place = parse_row_key(kind, key)
                self._take(group_id, topic_id, place, stored.value)
            except ValueError:
                damaged.append(key)
                continue
            if not topic_exists(topic_id):
                self._gone_topics.add(topic_id)
        for key in damaged:
            await self._keep_damage(kind, key)

    def _take(self, group_id: str, topic_id: TopicId, place: RowPlace, value: bytes) -> None:
        """Load the offsets of a row into its group. Raises ValueError if it cannot be decoded."""
        if place[0] == PENDING_OFFSETS:
            epoch, pending = decode_pending(value, self._running_ms, self._now_s)
            self._group(group_id).pending.load(topic_id, place, epoch, pending)
            return
        change: TopicChange
        if place[0] == OFFSET_BLOCK:
            change = decode_block(value, self._running_ms, self._now_s)
        else:
            change = decode_row(value, self._running_ms, self._now_s)
        self._group(group_id).offsets.apply({topic_id: change})

    async def _keep_damage(self, kind: str, key: str) -> None:
        """Mark the offset of every partition that a damaged row may have contained as damaged."""
        try:
            group_id, topic_id, place = parse_row_key(kind, key)
        except ValueError:
            _log.error("a row of committed offsets has no readable key", kind=kind, key=key)
            return
        mark = CommittedOffset(DAMAGED_OFFSET, -1, "", self._running_ms, NO_EXPIRY_MS, self._now_s)
        if kind == PENDING_OFFSETS:
            self._group(group_id).pending.load_damage(topic_id, place, mark)
            return
        offsets = self._group(group_id).offsets.topic(topic_id).copy()
        marks = {one: mark for one in partitions_in(place) if offsets.get(one) is None}
        places = offsets.change(marks)
        if kind == OFFSET_BLOCK:
            # A block is replaced by rows of single partitions, so that the offset of each of them
            # can be committed or deleted independently.
            await self._state.apply(
                [
                    Change(one[0], row_key(group_id, topic_id, one), offsets.row(one))
                    for one in (*sorted(places), place)
                ]
            )
        self._group(group_id).offsets.replace(topic_id, offsets)

    def _group(self, group_id: str) -> Group:
        """Return the group with this id. Create it if only its offsets are stored."""
        group = self._table.entries.get(group_id)
        if group is None:
            group = self._table.create(group_id, CLASSIC)
            if group_id not in self._table.unreadable_ids:
                # This group has no members: its offsets expire by their commit time alone.
                group.machine.empty_since_s = _NEVER_INHABITED_S
        return group
