"""GroupTable: the groups of a process, and what becomes of the steps that their machines take.

A step changes a group's machine at once and yields effects. What is to be persisted is queued; the
answers that follow wait for it, in order, while further requests run. When storing fails, the group
is loaded again from what is stored, and whoever waited hears COORDINATOR_NOT_AVAILABLE, or
NOT_COORDINATOR when another process has taken the state over. Nothing is awaited while a group is
half changed, and no lock is held: there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kgw.errors import ErrorCode
from kgw.groups.group import Group, Write
from kgw.groups.machine import (
    NEVER_S,
    Abandoned,
    AllStored,
    Answer,
    Beginning,
    Persist,
    RoundFormed,
    TimePassed,
)
from kgw.groups.trace import Trace
from kgw.groups.writer import GroupWriter
from kgw.logs import EventLogger
from kgw.metrics import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from enum import Enum

    from kgw.clock import Clock
    from kgw.groups.group import GroupSettings, Reply
    from kgw.groups.machine import Effect, Event, GroupKind, GroupMachine, StoredRow
    from kgw.metrics import Metrics
    from kgw.state.base import RowKey, StateStore

_log = EventLogger(__name__)

_ALL_STORED = AllStored()
_TIME_PASSED = TimePassed()


class GroupTable:
    """The groups by id, their machines' steps, their timers and gauges."""

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        settings: GroupSettings,
        metrics: Metrics,
        report_bug: Callable[[BaseException], None],
        kinds: Mapping[str, GroupKind],
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._report_bug = report_bug
        self._kinds = kinds
        self.groups: dict[str, Group] = {}
        """By id."""
        self._writer = GroupWriter(state, self.groups, self.load_again, self._written, report_bug)
        self.is_closing = False

    def __iter__(self) -> Iterator[Group]:
        """Yield every group that there was when the first was asked for, and is still there."""
        for group in list(self.groups.values()):
            if self.groups.get(group.group_id) is group:
                yield group

    def create(
        self,
        group_id: str,
        group_type: str,
        rows: Mapping[RowKey, StoredRow] | None = None,
        empty_since_s: float | None = None,
    ) -> Group:
        """Add a group that is new, or as its rows say."""
        group = Group(group_id, Trace())
        group.durable.update(rows or {})
        group.submitted.update(rows or {})
        group.machine = self._begin(group, group_type, empty_since_s)
        self.groups[group_id] = group
        self._arm(group)
        self._count(group, group.machine.state, group.machine.member_count)
        return group

    def remove(self, group: Group) -> None:
        """Forget a group."""
        if self.groups.get(group.group_id) is not group:
            return
        del self.groups[group.group_id]
        _disarm(group)
        self._count(group, None, 0)

    def release(self) -> None:
        """Answer everybody who waits: this process is about to stop. Nobody waits from now on."""
        self.is_closing = True
        for group in self.groups.values():
            _disarm(group)
            self._abandon(group, ErrorCode.NOT_COORDINATOR)

    @property
    def has_doubts(self) -> bool:
        """Whether more may be stored than there is here; what is submitted next sees to that."""
        return self._writer.has_doubts

    async def aclose(self) -> None:
        """Wait until everything that was submitted is stored, or has failed."""
        await self._writer.aclose()

    # --- steps -----------------------------------------------------------------------------------

    def step(self, group: Group, event: Event) -> None:
        """Let a machine take an event, and do what it wants.

        After a bug, which is raised, the group is what it was before, and goes on.
        """
        now_s = self._clock.monotonic_s()
        try:
            effects = group.machine.handle(event, now_s)
        except Exception:
            self.load_again(group)
            raise
        self._deliver(group, effects, now_s)
        if self.is_closing:
            self._abandon(group, ErrorCode.NOT_COORDINATOR)
        self._settle(group)

    def submit(self, group: Group, wanted: Persist) -> Write:
        """Have something stored, and return what answers can wait for."""
        write = Write(group, wanted, self._clock.running_ms(), [], [])
        if wanted.rows:
            group.last_write = write
            for key, row in wanted.rows.items():
                if row is None:
                    group.submitted.pop(key, None)
                else:
                    group.submitted[key] = row
        self._writer.submit(write)
        return write

    def load_again(
        self, group: Group, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ) -> None:
        """Go back to what is stored of a group, or is about to be: what followed did not happen."""
        old = group.machine
        self._abandon(group, code)
        now_s = self._clock.monotonic_s()
        group.trace.note(now_s, "something failed; loaded again", old.generation)
        group.machine = self._begin(group, old.group_type, old.empty_since_s, old.generation)
        _log.error("a group was loaded again", group=group.group_id)
        self._settle(group)

    def _begin(
        self,
        group: Group,
        group_type: str,
        empty_since_s: float | None,
        generation_floor: int = 0,
    ) -> GroupMachine:
        now_s = self._clock.monotonic_s()
        return self._kinds[group_type].begin(
            Beginning(
                group.group_id,
                self._settings.limits,
                group.trace,
                now_s,
                now_s if empty_since_s is None else empty_since_s,
                group.submitted,
                generation_floor,
            )
        )

    def _abandon(self, group: Group, error: ErrorCode) -> None:
        now_s = self._clock.monotonic_s()
        self._deliver(group, group.machine.handle(Abandoned(error), now_s), now_s)

    def _deliver(self, group: Group, effects: list[Effect], now_s: float) -> None:
        write = group.last_write
        for effect in effects:
            if isinstance(effect, Answer):
                waiter = cast("Reply[Any]", effect.waiter)
                if write is not None and not effect.at_once:
                    write.answers.append((waiter, effect.result))
                else:
                    waiter.set_result(effect.result)
            elif isinstance(effect, Persist):
                write = self.submit(group, effect)
            elif write is not None:
                if isinstance(effect, RoundFormed):
                    count(self._metrics.group_rebalances, effect.round.cause.value)
                write.rounds.append((effect, now_s))

    def _written(self, write: Write, error: Exception | None) -> None:
        """Go on after a write: its answers are given, and after a failure its group was loaded."""
        group = write.group
        now_s = self._clock.monotonic_s()
        for effect, began_s in write.rounds if error is None else ():
            # The coordinator's time: from the last request that was needed to its answers given.
            round_ = effect.round
            round_.coordinator_s = (round_.coordinator_s or 0.0) + now_s - began_s
            if not isinstance(effect, RoundFormed):
                self._metrics.group_coordinator_time.observe(round_.coordinator_s)
        if group.last_write is write:
            group.last_write = None
            self._deliver(group, group.machine.handle(_ALL_STORED, now_s), now_s)
            self._arm(group)
        self._drop_if_nothing(group)

    # --- time ------------------------------------------------------------------------------------

    def _arm(self, group: Group) -> None:
        """Have the group's timer go off no later than its machine wants."""
        deadline_s = group.machine.next_deadline_s
        if self.is_closing or deadline_s == NEVER_S:
            return
        if group.timer is not None:
            if group.timer_s <= deadline_s:
                return
            group.timer.cancel()
        group.timer_s = deadline_s
        group.timer = self._clock.call_at(deadline_s, lambda: self._expire(group))

    def _expire(self, group: Group) -> None:
        group.timer = None
        if self.groups.get(group.group_id) is not group or self.is_closing:
            return
        try:
            self.step(group, _TIME_PASSED)
        except Exception as error:  # noqa: BLE001 - a timer has nobody to raise to
            self._report_bug(error)

    # --- small things ----------------------------------------------------------------------------

    def _settle(self, group: Group) -> None:
        """See to the timer and the gauges of a group whose machine has changed."""
        self._arm(group)
        self._count(group, group.machine.state, group.machine.member_count)
        self._drop_if_nothing(group)

    def _drop_if_nothing(self, group: Group) -> None:
        """Forget a group of which nothing is stored, or will be, and in which nobody is."""
        if (
            not group.durable
            and not group.unwritten
            and not group.offsets
            and not group.pending
            and group.machine.is_vacant
        ):
            self.remove(group)

    def _count(self, group: Group, state: Enum | None, member_count: int) -> None:
        """Keep the gauges of states and members; one without a state is not counted."""
        if group.counted_state is not state:
            states = self._metrics.groups
            if group.counted_state is not None:
                states[group.counted_state.value] -= 1
            if state is not None:
                count(states, state.value)
            group.counted_state = state
        self._metrics.group_members += member_count - group.counted_members
        group.counted_members = member_count


def _disarm(group: Group) -> None:
    if group.timer is not None:
        group.timer.cancel()
        group.timer = None
