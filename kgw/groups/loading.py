"""GroupLoader: groups and committed offsets as they are stored, at the start of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.groups.rows import GroupRow
from kgw.logs import EventLogger
from kgw.offsets.block import damaged_block, decode_block, parse_block_key
from kgw.offsets.table import damaged_row, decode_row, parse_row_key
from kgw.state.base import Change, DamagedRowsError
from kgw.state.kinds import CLASSIC_GROUP, GROUP_OFFSETS, OFFSET_BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kgw.clock import Clock
    from kgw.groups.group import Group
    from kgw.offsets.committed import OffsetChanges
    from kgw.state.base import Row, StateStore
    from kgw.types import TopicId

_log = EventLogger(__name__)


class GroupLoader:
    """Loads into `groups`, to which `create` adds one, as its row says if it has any."""

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        groups: Mapping[str, Group],
        create: Callable[[str, GroupRow | None], Group],
    ) -> None:
        self._state = state
        self._clock = clock
        self._groups = groups
        self._create = create

    async def load(self, topic_exists: Callable[[TopicId], bool]) -> set[TopicId]:
        """Load every group; return topics that are gone and have offsets. Raises StorageError."""
        now_s, wall_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        unreadable: list[str] = []
        for group_id, stored in (await self._load(CLASSIC_GROUP, unreadable)).items():
            try:
                row, empty_since_ms = GroupRow.decode(stored.value)
            except ValueError as error:
                _log.error(
                    "a group cannot be read; its members join anew", group=group_id, why=error
                )
                unreadable.append(group_id)
                continue
            group = self._create(group_id, row)
            if empty_since_ms >= 0:
                group.machine.empty_since_s = now_s - max(0, wall_ms - empty_since_ms) / 1000
        gone_topics: set[TopicId] = set()
        damaged: list[str] = []
        for key, stored in (await self._load(GROUP_OFFSETS, damaged)).items():
            try:
                group_id, topic_id = parse_row_key(key)
                offsets = dict(decode_row(topic_id, stored.value, wall_ms, now_s))
            except ValueError:
                damaged.append(key)
                continue
            if not topic_exists(topic_id):
                gone_topics.add(topic_id)
            self._with_offsets(group_id, unreadable).offsets.apply({**offsets})
        for key in damaged:
            self._keep_damage(key, wall_ms, now_s)
        gone_topics |= await self._load_blocks(topic_exists, unreadable)
        return gone_topics

    async def _load_blocks(
        self, topic_exists: Callable[[TopicId], bool], unreadable: list[str]
    ) -> set[TopicId]:
        """Load what was committed for many partitions at once; return topics that are gone."""
        now_s, wall_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        gone_topics: set[TopicId] = set()
        damaged: list[str] = []
        for key, stored in (await self._load(OFFSET_BLOCK, damaged)).items():
            try:
                group_id, topic_id, _ = parse_block_key(key)
                block = decode_block(stored.value, wall_ms, now_s)
            except ValueError:
                damaged.append(key)
                continue
            if not topic_exists(topic_id):
                gone_topics.add(topic_id)
            self._with_offsets(group_id, unreadable).offsets.apply_block(topic_id, block)
        for key in damaged:
            try:
                group_id, _, _ = parse_block_key(key)
                lost = damaged_block(key, wall_ms, now_s)
            except ValueError:
                _log.error("a block of committed offsets has no readable key", key=key)
                continue
            offsets = self._with_offsets(group_id, unreadable).offsets
            marks: OffsetChanges = {
                place: mark for place, mark in lost.items() if offsets.get(*place) is None
            }
            # As single ones, so that each can be committed or deleted by itself.
            rows = [*offsets.rows_after(group_id, marks), (OFFSET_BLOCK, key, None)]
            await self._state.apply([Change(*row) for row in rows])
            offsets.apply(marks)
        return gone_topics

    def _with_offsets(self, group_id: str, unreadable: list[str]) -> Group:
        """Return the group of offsets that were found, one that is made for them if need be."""
        if group_id not in self._groups:
            group = self._create(group_id, None)
            if group_id not in unreadable:
                # It never had members: what it committed ages from the commits alone.
                group.machine.empty_since_s = float("-inf")
        return self._groups[group_id]

    async def _load(self, kind: str, damaged: list[str]) -> dict[str, Row]:
        """Return the intact rows of a kind, and add the keys of the others to a list."""
        try:
            return await self._state.load(kind)
        except DamagedRowsError as error:
            for key in error.damaged:
                _log.error("a stored row is damaged", kind=kind, key=key)
            damaged.extend(error.damaged)
            return error.intact

    def _keep_damage(self, key: str, wall_ms: int, now_s: float) -> None:
        try:
            group_id, _ = parse_row_key(key)
            group = self._groups.get(group_id) or self._create(group_id, None)
            group.offsets.apply({**damaged_row(key, wall_ms, now_s)})
        except ValueError:
            _log.error("a row of committed offsets has no readable key", key=key)
