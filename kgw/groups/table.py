"""GroupTable: the groups of a process, and what becomes of the steps that their machines take.

A step changes a group's machine at once and yields effects. What is to be persisted is queued; the
answers that follow wait for it, in order, while further requests run. When storing fails, the group
is loaded again from what is stored, and whoever waited hears COORDINATOR_NOT_AVAILABLE. Nothing is
awaited while a group is half changed, and no lock is held: there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from kgw.errors import ErrorCode
from kgw.groups.classic import ClassicGroup
from kgw.groups.effects import Answer, Persist, RoundFormed
from kgw.groups.group import Group
from kgw.groups.rounds import NEVER_S
from kgw.groups.states import GroupState
from kgw.groups.trace import Trace
from kgw.groups.writer import GroupWriter
from kgw.groups.writes import GroupDeletion, RowWrite, Write
from kgw.logs import EventLogger
from kgw.metrics import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.clock import Clock
    from kgw.completion import Completion
    from kgw.groups.effects import Effect
    from kgw.groups.group import GroupSettings
    from kgw.groups.rows import GroupRow
    from kgw.groups.trace import Round
    from kgw.metrics import Metrics
    from kgw.state.base import StateStore

_log = EventLogger(__name__)

ResultT = TypeVar("ResultT")


class GroupTable:
    """The groups by id, their machines' steps, their timers and gauges."""

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        settings: GroupSettings,
        metrics: Metrics,
        report_bug: Callable[[BaseException], None],
    ) -> None:
        self._state = state
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._report_bug = report_bug
        self._groups: dict[str, Group] = {}
        self._writer = GroupWriter(state, self._groups, report_bug)
        self._is_closing = False

    # --- steps -----------------------------------------------------------------------------------

    def load_again(self, group: Group) -> None:
        """Go back to what is stored of a group, or is about to be: what followed did not happen."""
        old = group.machine
        row = group.durable if group.last_write is None else group.last_write.row
        self._deliver(group, old.abandon(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        now_s = self._clock.monotonic_s()
        group.trace.note(now_s, "something failed; loaded again", old.generation)
        group.machine = self._machine(group, row, generation_floor=old.generation)
        group.machine.empty_since_s = old.empty_since_s
        _log.error("a group was loaded again", group=group.group_id)
        self._arm(group)
        self._count(group)
        self._drop_if_nothing(group)

    def _guarded(self, group: Group, step: Callable[[], ResultT]) -> ResultT:
        """Take a step of a machine; after a bug the group is what it was before, and goes on."""
        try:
            return step()
        except Exception:
            self.load_again(group)
            raise

    def _step(self, group: Group, effects: list[Effect]) -> None:
        """Carry out what a step of the machine wants."""
        self._deliver(group, effects)
        self._arm(group)
        self._count(group)
        self._drop_if_nothing(group)

    def _deliver(self, group: Group, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                waiter = cast("Completion[object]", effect.waiter)
                if group.last_write is not None:
                    group.last_write.answers.append((waiter, effect.result))
                elif not waiter.is_done:
                    waiter.set_result(effect.result)
            elif isinstance(effect, Persist):
                self._persist(group, effect.row)
            elif group.last_write is not None:
                self._time(group.last_write, effect.round, formed=isinstance(effect, RoundFormed))

    def _persist(self, group: Group, row: GroupRow) -> None:
        empty_since_ms = self._clock.wall_ms() if row.state is GroupState.EMPTY else -1
        write = RowWrite(group, row, empty_since_ms)
        self._writer.submit(write)
        group.last_write = write

        def done(_: Exception | None) -> None:
            # Not after a failure: then the group has been loaded again, and has no last write.
            if group.last_write is write:
                group.last_write = None
                group.machine.stored(self._clock.monotonic_s())
                self._arm(group)
            self._drop_if_nothing(group)

        write.then.append(done)

    def _time(self, write: Write, round_: Round, *, formed: bool) -> None:
        """Take the coordinator's time: from the last request needed to its answers given."""
        began_s = self._clock.monotonic_s()
        if formed:
            count(self._metrics.group_rebalances, round_.cause.value)

        def done(error: Exception | None) -> None:
            if error is not None:
                return
            took_s = self._clock.monotonic_s() - began_s
            round_.coordinator_s = (round_.coordinator_s or 0.0) + took_s
            if not formed:
                self._metrics.group_coordinator_time.observe(round_.coordinator_s)

        write.then.append(done)

    # --- time ------------------------------------------------------------------------------------

    def _arm(self, group: Group) -> None:
        """Have the group's timer go off no later than its machine wants."""
        deadline_s = group.machine.next_deadline_s
        if self._is_closing or deadline_s == NEVER_S:
            return
        if group.timer is not None:
            if group.timer_s <= deadline_s:
                return
            group.timer.cancel()
        group.timer_s = deadline_s
        group.timer = self._clock.call_at(deadline_s, lambda: self._expire(group))

    def _expire(self, group: Group) -> None:
        group.timer = None
        if self._groups.get(group.group_id) is not group or self._is_closing:
            return
        now_s = self._clock.monotonic_s()
        try:
            step = self._guarded(group, lambda: group.machine.expire(now_s))
        except Exception as error:  # noqa: BLE001 - a timer has nobody to raise to
            self._report_bug(error)
            return
        self._step(group, step)

    # --- the table -------------------------------------------------------------------------------

    def _get_or_create(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        return self._create(group_id) if group is None else group

    def _create(self, group_id: str, row: GroupRow | None = None) -> Group:
        group = Group(group_id, Trace(), self.load_again)
        group.durable = row
        group.machine = self._machine(group, row)
        self._groups[group_id] = group
        self._arm(group)
        self._count(group)
        return group

    def _machine(
        self, group: Group, row: GroupRow | None, *, generation_floor: int = 0
    ) -> ClassicGroup:
        return ClassicGroup(
            group.group_id,
            self._settings.limits,
            group.trace,
            self._clock.monotonic_s(),
            row,
            generation_floor=generation_floor,
        )

    def _delete(self, group: Group) -> Write:
        group.is_being_deleted = True
        write = self._writer.submit(GroupDeletion(group))

        def done(error: Exception | None) -> None:
            if error is None:
                self._remove(group)

        write.then.append(done)
        return write

    def _drop_if_nothing(self, group: Group) -> None:
        """Forget a group that was never stored and in which nobody is."""
        if (
            group.durable is None
            and not group.unwritten
            and group.machine.is_vacant
            and group.offsets.is_empty
        ):
            self._remove(group)

    def _drop_after(self, group: Group, _: Exception | None) -> None:
        self._drop_if_nothing(group)

    def _remove(self, group: Group) -> None:
        if self._groups.get(group.group_id) is not group:
            return
        del self._groups[group.group_id]
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        group.machine.delete()
        self._count(group)

    def _count(self, group: Group) -> None:
        """Keep the gauges of states and members."""
        state = group.machine.state
        member_count = len(group.machine.members)
        if group.counted_state is not state:
            states = self._metrics.groups
            if group.counted_state is not None:
                states[group.counted_state.value] -= 1
            if state is GroupState.DEAD:
                group.counted_state = None
            else:
                group.counted_state = state
                count(states, state.value)
        self._metrics.group_members += member_count - group.counted_members
        group.counted_members = member_count
