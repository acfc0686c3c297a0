"""GroupTable: the runtime of groups. It stores committed offsets with the rows of the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.coordinator.runtime import Runtime
from kgw.groups.group import Group
from kgw.groups.machine import Beginning, RoundFormed
from kgw.groups.writes import offset_changes
from kgw.logs import EventLogger
from kgw.metrics import count
from kgw.offsets.rows import OFFSET_KINDS, parse_row_key
from kgw.state.base import Change

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from kgw.clock import Clock
    from kgw.coordinator.machine import Kind, Machine
    from kgw.groups.group import GroupSettings
    from kgw.groups.machine import GroupMachine, RoundAssigned
    from kgw.metrics import Metrics
    from kgw.state.base import StateStore

_log = EventLogger(__name__)


class GroupTable(Runtime[Group]):
    """The groups by id."""

    entry_type = Group
    more_changes = staticmethod(offset_changes)

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        settings: GroupSettings,
        metrics: Metrics,
        report_bug: Callable[[BaseException], None],
        kinds: Mapping[str, Kind],
        services: Mapping[type, Callable[[Any], Awaitable[object]]] | None = None,
    ) -> None:
        super().__init__(state, clock, kinds, metrics.groups, report_bug, services)
        self._limits = settings.limits
        self._metrics = metrics
        self.unreadable_ids: set[str] = set()

    def begin(self, group: Group, before: GroupMachine | None) -> Machine:
        return self._kinds[group.kind].begin(
            Beginning(
                group.key,
                self._limits,
                group.trace,
                self._clock.monotonic_s(),
                self._clock.running_ms(),
                None if before is None else before.empty_since_s,
                group.submitted,
                0 if before is None else before.generation,
            )
        )

    def is_needed(self, group: Group) -> bool:
        return bool(group.offsets) or bool(group.pending) or not group.machine.is_vacant

    def carry_out(self, group: Group, effect: RoundFormed | RoundAssigned) -> None:
        """Measure the coordinator's time in a rebalance: from the last request to the answers."""
        round_ = effect.round
        took_s = self._clock.monotonic_s() - effect.since_s
        round_.coordinator_s = (round_.coordinator_s or 0.0) + took_s
        if isinstance(effect, RoundFormed):
            count(self._metrics.group_rebalances, round_.cause.value)
        else:
            self._metrics.group_coordinator_time.observe(round_.coordinator_s)

    def note_failure(self, group: Group) -> None:
        now_s = self._clock.monotonic_s()
        group.trace.note(now_s, "something failed; loaded again", group.machine.generation)
        _log.error("a group was loaded again", group=group.key)

    def unreadable(self, row_kind: str, key: str, error: ValueError | None) -> None:
        self.unreadable_ids.add(key)
        if error is None:
            super().unreadable(row_kind, key, error)
        else:
            _log.error("a group cannot be read; its members join anew", group=key, why=error)

    # --- offsets ---------------------------------------------------------------------------------

    def doubt(self, changes: Sequence[Change]) -> None:
        self.doubtful.update(
            (change.kind, change.key) for change in changes if change.kind in OFFSET_KINDS
        )

    def rows_again(self) -> list[Change]:
        # All doubtful rows are stored again, as rows depend on each other: an offset can move
        # between a block and the row of a single partition.
        again = []
        for kind, key in self.doubtful:
            group_id, topic_id, place = parse_row_key(kind, key)
            group = self.entries.get(group_id)
            value = None if group is None else group.offset_row(topic_id, place)
            again.append(Change(kind, key, value))
        return again

    # --- the gauge of members --------------------------------------------------------------------

    def refresh(self, group: Group) -> None:
        super().refresh(group)
        members = group.machine.member_count
        if members != group.counted_members:
            self._count_members(group, members)

    def remove(self, group: Group) -> None:
        super().remove(group)
        self._count_members(group, 0)

    def _count_members(self, group: Group, members: int) -> None:
        self._metrics.group_members += members - group.counted_members
        group.counted_members = members
