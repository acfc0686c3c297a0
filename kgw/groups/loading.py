"""GroupLoader: groups and committed offsets as they are stored, at the start of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.groups.requests import CLASSIC
from kgw.logs import EventLogger
from kgw.offsets.block import decode_block
from kgw.offsets.committed import DAMAGED_OFFSET, NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.pending import decode_pending
from kgw.offsets.rows import decode_row, parse_row_key, partitions_in, row_key
from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK, PENDING_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.clock import Clock
    from kgw.groups.group import Group
    from kgw.groups.machine import GroupKind, StoredRow
    from kgw.groups.table import GroupTable
    from kgw.offsets.rows import RowPlace
    from kgw.offsets.topic_offsets import TopicChange
    from kgw.state.base import Row, RowKey, StateStore
    from kgw.types import TopicId

_log = EventLogger(__name__)

_NEVER_INHABITED_S = float("-inf")


class GroupLoader:
    """Loads all groups into a table that is empty."""

    def __init__(
        self, state: StateStore, clock: Clock, table: GroupTable, kinds: Mapping[str, GroupKind]
    ) -> None:
        self._state = state
        self._table = table
        self._kinds = kinds
        self._now_s = clock.monotonic_s()
        self._running_ms = clock.running_ms()
        self._unreadable: list[str] = []
        """Keys of rows of groups that cannot be read."""
        self._gone_topics: set[TopicId] = set()

    async def load(self, topic_exists: Callable[[TopicId], bool]) -> set[TopicId]:
        """Load every group; return topics that are gone and have offsets. Raises StorageError."""
        for group_type, kind in self._kinds.items():
            await self._load_groups(group_type, kind)
        # Single offsets before blocks: damage stands only where nothing else is stored.
        for kind_of_row in (GROUP_OFFSETS, OFFSET_BLOCK, PENDING_OFFSETS):
            await self._load_offsets(kind_of_row, topic_exists)
        return self._gone_topics

    async def _load_groups(self, group_type: str, kind: GroupKind) -> None:
        rows: dict[str, dict[RowKey, StoredRow]] = {}
        empty_since_ms: dict[str, int] = {}
        for row_kind in kind.row_kinds:
            for key, stored in (await self._load(row_kind, self._unreadable)).items():
                try:
                    found = kind.decode(row_kind, key, stored.value)
                except ValueError as error:
                    _log.error(
                        "a group cannot be read; its members join anew", group=key, why=error
                    )
                    self._unreadable.append(key)
                    continue
                rows.setdefault(found.group_id, {})[row_kind, key] = found.row
                empty_since_ms[found.group_id] = found.empty_since_ms
        for group_id, of_group in rows.items():
            since_ms = empty_since_ms[group_id]
            age_s = max(0, self._running_ms - since_ms) / 1000 if since_ms >= 0 else 0.0
            self._table.create(group_id, group_type, of_group, self._now_s - age_s)

    async def _load_offsets(self, kind: str, topic_exists: Callable[[TopicId], bool]) -> None:
        damaged: list[str] = []
        for key, stored in (await self._load(kind, damaged)).items():
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
        """Take over what a row says. Raises ValueError when it cannot be read."""
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
        """Say of every partition that a row may have held that it is damaged."""
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
            # As single ones, so that each can be committed or deleted by itself.
            await self._state.apply(
                [
                    Change(one[0], row_key(group_id, topic_id, one), offsets.row(one))
                    for one in (*sorted(places), place)
                ]
            )
        self._group(group_id).offsets.replace(topic_id, offsets)

    def _group(self, group_id: str) -> Group:
        """Return the group of offsets that were found, one that is made for them if need be."""
        group = self._table.groups.get(group_id)
        if group is not None:
            return group
        # One that never had members: what it committed ages from the commits alone.
        is_lost = group_id in self._unreadable
        return self._table.create(
            group_id, CLASSIC, empty_since_s=None if is_lost else _NEVER_INHABITED_S
        )

    async def _load(self, kind: str, damaged: list[str]) -> dict[str, Row]:
        """Return the intact rows of a kind, and add the keys of the others to a list."""
        try:
            return await self._state.load(kind)
        except DamagedRowsError as error:
            for key in error.damaged:
                _log.error("a stored row is damaged", kind=kind, key=key)
            damaged.extend(error.damaged)
            return error.intact
