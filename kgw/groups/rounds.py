"""How the generations of a classic group form and end: its machine without the requests. Pure.

`ClassicGroup` adds what members ask for; here is what becomes of the group as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import NO_ERROR, ErrorCode
from kgw.groups.effects import Answer, Effect, Persist, RoundAssigned, RoundFormed
from kgw.groups.members import Member, MemberTable
from kgw.groups.requests import (
    NO_MEMBER_ID,
    JoinedMember,
    JoinRequest,
    JoinResult,
    SyncResult,
)
from kgw.groups.rows import GroupRow, MemberRow
from kgw.groups.states import GroupEvent, GroupState, next_state
from kgw.groups.trace import Cause, Trace, member_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.groups.trace import Round

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

NEVER_S = float("inf")


class GroupLimits(NamedTuple):
    """What holds for every group of a coordinator."""

    max_size: int = (1 << 31) - 1
    initial_rebalance_delay_s: float = 0.0
    max_bytes: int = 16 << 20
    """Of what all members of a group say of themselves, and of what their leader assigns.

    Both are written with each generation, in one row, while everybody waits: 16 MB cost 100 ms.
    Kafka has the limit of a record, 1 MB.
    """


class GroupRounds:
    """State, members and rounds of one group. Methods take the monotonic time in seconds."""

    def __init__(
        self,
        group_id: str,
        limits: GroupLimits,
        trace: Trace,
        now_s: float,
        row: GroupRow | None = None,
        *,
        generation_floor: int = 0,
    ) -> None:
        """Begin empty, or as stored: every member then has a whole session to be heard of again.

        No generation up to `generation_floor` is given out, whatever the row says.
        """
        self.group_id = group_id
        self.state = EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.members = MemberTable()
        self.trace = trace
        self.empty_since_s = now_s
        self._limits = limits
        self._generation_floor = generation_floor
        self._round: Round | None = None
        self._awaiting = 0
        self._join_deadline_s = NEVER_S
        self._sync_deadline_s = NEVER_S
        self._window_end_s: float | None = None
        self._window_limit_s = 0.0
        self._joined_in_window = False
        self._is_postponed = False
        """Whether a round waits on because nobody has joined but static members may come back."""
        self._wake_s = NEVER_S
        if row is not None:
            self._restore(row, now_s)

    def __repr__(self) -> str:
        return f"<ClassicGroup {self.group_id!r} {self.state.value} {self.generation}>"

    @property
    def next_deadline_s(self) -> float:
        """When `expire` is to be called next. It may come early, never late."""
        return self._wake_s

    @property
    def is_vacant(self) -> bool:
        """Whether nobody is in it, nor has an id to come in with."""
        return self.state is EMPTY and not self.members.pending

    def row(self) -> GroupRow:
        """Return what has to be stored for the group to be as it is. Not while it prepares."""
        return GroupRow(
            self.state,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.members.leader_id,
            tuple(
                MemberRow(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout_ms,
                    member.rebalance_timeout_ms,
                    member.protocols,
                    member.assignment,
                    member.has_joined,
                )
                for member in self.members
            ),
        )

    # --- rounds ----------------------------------------------------------------------------------

    def _begin(
        self,
        effects: list[Effect],
        cause: Cause,
        member_id: str,
        reason: str | None,
        now_s: float,
    ) -> None:
        """Ask everybody to join again."""
        was_empty = self.state is EMPTY
        self.state = next_state(self.state, GroupEvent.REBALANCE_NEEDED)
        for member in self.members:
            if member.sync_waiter is not None:
                self._touch(member, now_s)
                self._release_sync(effects, member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._sync_deadline_s = NEVER_S
        self._round = self.trace.begin_round(now_s, cause, member_id, reason)
        timeout_s = self._rebalance_timeout_s()
        self._join_deadline_s = now_s + timeout_s
        self._wake(self._join_deadline_s)
        self._window_end_s = None
        delay_s = self._limits.initial_rebalance_delay_s
        if was_empty and delay_s > 0:
            self._window_end_s = now_s + min(delay_s, timeout_s)
            self._window_limit_s = self._join_deadline_s
            self._joined_in_window = False
            self._wake(self._window_end_s)

    def _close_window(self, now_s: float) -> None:
        """End the initial delay, or lengthen it when more members came meanwhile (KIP-134)."""
        end_s = self._window_end_s
        if end_s is None or end_s > now_s:
            return
        if self._joined_in_window and end_s < self._window_limit_s:
            self._joined_in_window = False
            delay_s = self._limits.initial_rebalance_delay_s
            self._window_end_s = min(self._window_limit_s, now_s + delay_s)
        else:
            self._window_end_s = None

    def _maybe_complete(self, effects: list[Effect], now_s: float) -> None:
        if self.state is not PREPARING or self._awaiting < len(self.members):
            return
        if self.members:
            held_until_s = self.members.held_until_s
            if held_until_s > now_s:
                # Each time: it is sooner than it was when the last id given out has been used.
                self._wake(held_until_s)
                return
            if self._window_end_s is not None:
                return
        self._complete(effects, now_s)

    def _complete(self, effects: list[Effect], now_s: float) -> None:
        """Form the next generation of those who have joined."""
        missing = [one for one in self.members if one.join_waiter is None]
        for member in missing:
            # A static member keeps its place until its session ends. Heartbeats alone do not keep
            # the group in this state: who can send them for so long could have joined.
            if member.group_instance_id is None or self._is_postponed:
                self._remove(effects, member, "did not join in time", None, now_s)
        round_ = self._round
        if round_ is not None:
            round_.missing = member_list(one.member_id for one in missing)
        if self.members and not self._awaiting:
            self._is_postponed = True
            longest_ms = max(one.session_timeout_ms for one in self.members)
            self._join_deadline_s = now_s + longest_ms / 1000
            self._wake(self._join_deadline_s)
            return
        self._is_postponed = False
        self.generation = max(self.generation, self._generation_floor) + 1
        self._join_deadline_s = NEVER_S
        self._window_end_s = None
        if round_ is not None:
            round_.formed_s = now_s
            round_.generation = self.generation
            round_.member_count = len(self.members)
        if not self.members:
            self._become_empty(effects, now_s)
            return
        leader = self.members.get(self.members.leader_id)
        if leader is None or leader.join_waiter is None:
            self.members.leader_id = next(
                one.member_id for one in self.members if one.join_waiter is not None
            )
        self.protocol_name = self.members.elect_protocol()
        if round_ is not None:
            round_.protocol_name = self.protocol_name
        self.state = next_state(self.state, GroupEvent.EVERYBODY_JOINED)
        self._sync_deadline_s = now_s + self._rebalance_timeout_s()
        self._wake(self._sync_deadline_s)
        for member in self.members:
            # What was assigned before must never be served in this generation.
            member.assignment = b""
            member.has_synced = False
            member.has_joined = member.join_waiter is not None
        self.trace.note(now_s, "generation formed", self.generation)
        effects.append(Persist(self.row()))
        if round_ is not None:
            effects.append(RoundFormed(round_))
        for member in self.members:
            waiter = member.join_waiter
            if waiter is not None:
                self._unpark_join(member)
                member.is_new = False
                member.is_untold = True
                effects.append(Answer(waiter, self._formed(member)))

    def _become_empty(self, effects: list[Effect], now_s: float) -> None:
        self.state = next_state(self.state, GroupEvent.NOBODY_LEFT)
        self.protocol_name = None
        self.members.leader_id = NO_MEMBER_ID
        self.empty_since_s = now_s
        self._round = None
        self.trace.note(now_s, "empty", self.generation)
        effects.append(Persist(self.row()))

    def _assign(self, effects: list[Effect], assignments: dict[str, bytes], now_s: float) -> None:
        """Take the leader's assignment. Who is not in it has nothing to do, as in Kafka.

        Everybody who is in the group was in the list that the leader worked from: whoever comes
        later begins another round. An empty assignment is one like any other.
        """
        for member in self.members:
            member.assignment = bytes(assignments.get(member.member_id, b""))
        self.state = next_state(self.state, GroupEvent.ASSIGNED)
        if self._round is not None:
            self._round.assigned_s = now_s
        self.trace.note(now_s, "assigned", self.generation, member_id=self.members.leader_id)
        effects.append(Persist(self.row()))
        if self._round is not None:
            effects.append(RoundAssigned(self._round))
        for member in self.members:
            waiter = member.sync_waiter
            if waiter is not None:
                member.sync_waiter = None
                member.is_untold = True
                effects.append(Answer(waiter, self._assignment(member)))

    # --- members come and go ---------------------------------------------------------------------

    def _remove(
        self, effects: list[Effect], member: Member, what: str, reason: str | None, now_s: float
    ) -> None:
        self._release(effects, member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.members.remove(member)
        self._note(now_s, what, member, reason)

    def _go_on_without(
        self,
        effects: list[Effect],
        gone: Sequence[Member],
        cause: Cause,
        reason: str | None,
        now_s: float,
    ) -> None:
        """Rebalance, or see whether the round under way waited only for those who have gone."""
        if gone and self.state in {COMPLETING, STABLE}:
            self._begin(effects, cause, gone[0].member_id, reason, now_s)
        self._maybe_complete(effects, now_s)

    def _release(self, effects: list[Effect], member: Member, code: ErrorCode) -> None:
        """Answer whatever of a member's waits."""
        self._release_join(effects, member, code)
        self._release_sync(effects, member, code)

    def _release_join(self, effects: list[Effect], member: Member, code: ErrorCode) -> None:
        waiter = member.join_waiter
        if waiter is not None:
            self._unpark_join(member)
            effects.append(Answer(waiter, JoinResult(code, member.member_id)))

    def _release_sync(self, effects: list[Effect], member: Member, code: ErrorCode) -> None:
        waiter = member.sync_waiter
        if waiter is not None:
            member.sync_waiter = None
            effects.append(Answer(waiter, SyncResult(code)))

    def _unpark_join(self, member: Member) -> None:
        member.join_waiter = None
        self._awaiting -= 1

    # --- small things ----------------------------------------------------------------------------

    def _formed(self, member: Member) -> JoinResult:
        """Return what a member is told of the current generation."""
        is_leader = member.member_id == self.members.leader_id
        return JoinResult(
            NO_ERROR,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.members.leader_id,
            members=self._member_list() if is_leader else (),
        )

    def _member_list(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(one.member_id, one.group_instance_id, one.metadata(self.protocol_name))
            for one in self.members
        )

    def _assignment(self, member: Member) -> SyncResult:
        return SyncResult(NO_ERROR, member.assignment, self.protocol_type, self.protocol_name)

    def _rebalance_timeout_s(self) -> float:
        return max((one.rebalance_timeout_ms for one in self.members), default=0) / 1000

    def _touch(self, member: Member, now_s: float) -> None:
        """Let a member live for another session."""
        member.deadline_s = now_s + member.session_timeout_ms / 1000
        self._wake(member.deadline_s)

    def _wake(self, at_s: float) -> None:
        if at_s < self._wake_s:  # noqa: PLR1730 - min() takes 60 ns of a hot path
            self._wake_s = at_s

    def _earliest_deadline_s(self, now_s: float) -> float:
        earliest_s = min(
            (one.deadline_s for one in self.members if one.can_expire), default=NEVER_S
        )
        expiries_s = (one.expires_s for one in self.members.pending.values())
        earliest_s = min(earliest_s, min(expiries_s, default=NEVER_S))
        if self.state is PREPARING:
            earliest_s = min(earliest_s, self._join_deadline_s)
            if self.members.held_until_s > now_s:
                earliest_s = min(earliest_s, self.members.held_until_s)
            if self._window_end_s is not None:
                earliest_s = min(earliest_s, self._window_end_s)
        return min(earliest_s, self._sync_deadline_s)

    def _note(self, now_s: float, what: str, member: Member, reason: str | None) -> None:
        self.trace.note(
            now_s,
            what,
            self.generation,
            member_id=member.member_id,
            client_id=member.client_id,
            reason=reason,
        )

    def _restore(self, row: GroupRow, now_s: float) -> None:
        self.state = row.state
        self.generation = row.generation
        self.protocol_type = row.protocol_type
        self.protocol_name = row.protocol_name
        for stored in row.members:
            member = Member(stored.member_id, _join_request(stored, row.protocol_type))
            member.assignment = stored.assignment
            member.is_new = False
            member.has_joined = stored.has_joined
            member.has_synced = row.state is STABLE
            self.members.add(member)
            self._touch(member, now_s)
        self.members.leader_id = row.leader_id
        if row.state is COMPLETING:
            self._sync_deadline_s = now_s + self._rebalance_timeout_s()
            self._wake(self._sync_deadline_s)
        if len(self.members) > self._limits.max_size and row.state is not EMPTY:
            self._begin([], Cause.TOO_MANY_MEMBERS, "", None, now_s)


def _join_request(stored: MemberRow, protocol_type: str) -> JoinRequest:
    return JoinRequest(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout_ms,
        stored.rebalance_timeout_ms,
        protocol_type,
        stored.protocols,
        stored.member_id,
    )
