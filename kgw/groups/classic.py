"""The machine of a classic group: requests and time in, effects out. Pure.

Kafka's rules (KIP-62, 134, 345, 394, 559, 800, 814), with these of our own:
- a request that is sent again, on whatever connection, takes the place of the first, and the first
  is answered as well (KAFKA-20938);
- ids that were given out count towards the size limit and hold up a round for a moment only;
- a generation is persisted before anybody hears of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode
from kgw.groups.effects import Answer, Effect, Persist, RoundAssigned, RoundFormed
from kgw.groups.members import Member, MemberTable, PendingMember
from kgw.groups.requests import (
    NO_MEMBER_ID,
    GroupDescription,
    JoinedMember,
    JoinRequest,
    JoinResult,
    LeavingMember,
    MemberDescription,
    SyncRequest,
    SyncResult,
)
from kgw.groups.rows import GroupRow, MemberRow
from kgw.groups.states import GroupEvent, GroupState, next_state
from kgw.groups.subscriptions import is_same_interest
from kgw.groups.trace import Cause, Trace, member_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


class ClassicGroup:
    """One group. Every method takes the monotonic time in seconds; nothing here waits."""

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

    # --- requests --------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: object, now_s: float) -> list[Effect]:
        """Take a JoinGroup; its answer may come with a later step."""
        effects: list[Effect] = []
        if self.state is DEAD:
            _refuse_join(effects, waiter, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif request.member_id == NO_MEMBER_ID:
            self._join_new(effects, request, waiter, now_s)
        elif request.member_id in self.members.pending and request.group_instance_id is None:
            if self._is_acceptable(effects, request, waiter):
                del self.members.pending[request.member_id]
                self._add(effects, request.member_id, request, waiter, now_s)
        else:
            found = self.members.find(request.member_id, request.group_instance_id)
            if not isinstance(found, Member):
                _refuse_join(effects, waiter, request, found)
            elif self._is_acceptable(effects, request, waiter):
                self._rejoin(effects, found, request, waiter, now_s)
        return effects

    def sync(self, request: SyncRequest, waiter: object, now_s: float) -> list[Effect]:
        """Take a SyncGroup; its answer may come with a later step."""
        effects: list[Effect] = []
        member = self._find_current(
            request.member_id, request.group_instance_id, request.generation
        )
        if not isinstance(member, Member):
            effects.append(Answer(waiter, SyncResult(member)))
        elif self._is_other_protocol(request):
            effects.append(Answer(waiter, SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
        elif self.state is PREPARING:
            effects.append(Answer(waiter, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)))
        elif self.state is COMPLETING:
            if member.sync_waiter is not None:
                effects.append(
                    Answer(member.sync_waiter, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
                )
            member.sync_waiter = waiter
            member.has_synced = True
            if member.member_id == self.members.leader_id:
                self._assign(effects, dict(request.assignments), now_s)
        else:
            member.has_synced = True
            self._touch(member, now_s)
            effects.append(Answer(waiter, self._assignment(member)))
        return effects

    def heartbeat(
        self, member_id: str, group_instance_id: str | None, generation: int, now_s: float
    ) -> ErrorCode:
        """Keep a member alive; REBALANCE_IN_PROGRESS asks it to join again."""
        member = self._find_current(member_id, group_instance_id, generation)
        if not isinstance(member, Member):
            return member
        self._touch(member, now_s)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, now_s: float
    ) -> ErrorCode:
        """Say whether offsets may be committed, which also keeps the member alive.

        Who names neither member nor generation commits from outside: only while nobody is inside.
        """
        if generation < 0 and member_id == NO_MEMBER_ID and group_instance_id is None:
            return ErrorCode.NONE if self.state is EMPTY else ErrorCode.UNKNOWN_MEMBER_ID
        member = self._find_current(member_id, group_instance_id, generation)
        if not isinstance(member, Member):
            return member
        if self.state is COMPLETING:
            # It has heard of the generation and not yet of its part in it.
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._touch(member, now_s)
        return ErrorCode.NONE

    def leave(
        self, leaving: Sequence[LeavingMember], now_s: float
    ) -> tuple[list[ErrorCode], list[Effect]]:
        """Let members go, all of them in one rebalance; return what became of each."""
        effects: list[Effect] = []
        codes: list[ErrorCode] = []
        gone: list[Member] = []
        reason: str | None = None
        for one in leaving:
            member_id = one.member_id
            if member_id in self.members.pending and one.group_instance_id is None:
                del self.members.pending[member_id]
                codes.append(ErrorCode.NONE)
                continue
            if member_id == NO_MEMBER_ID and one.group_instance_id is not None:
                member_id = self.members.static_id(one.group_instance_id) or NO_MEMBER_ID
            found = self.members.find(member_id, one.group_instance_id)
            if not isinstance(found, Member):
                codes.append(found)
                continue
            self._remove(effects, found, "left", one.reason, now_s)
            gone.append(found)
            reason = reason or one.reason
            codes.append(ErrorCode.NONE)
        self._go_on_without(effects, gone, Cause.MEMBER_LEFT, reason, now_s)
        return codes, effects

    # --- time and administration -----------------------------------------------------------------

    def expire(self, now_s: float) -> list[Effect]:
        """Do what is due: dead members, members that never synced, rounds whose time is up."""
        effects: list[Effect] = []
        pending = self.members.pending
        for member_id in [key for key, one in pending.items() if one.expires_s <= now_s]:
            del pending[member_id]
            self.trace.note(now_s, "id never used", self.generation, member_id=member_id)
        dead = [one for one in self.members if one.deadline_s <= now_s and not one.is_parked]
        for member in dead:
            self._remove(effects, member, "session expired", None, now_s)
        self._go_on_without(effects, dead, Cause.SESSION_EXPIRED, None, now_s)
        if self._sync_deadline_s <= now_s and self.state in {COMPLETING, STABLE}:
            self._sync_deadline_s = NEVER_S
            silent = [one for one in self.members if one.has_joined and not one.has_synced]
            for member in silent:
                self._remove(effects, member, "never asked for its assignment", None, now_s)
            self._go_on_without(effects, silent, Cause.SYNC_EXPIRED, None, now_s)
        if self.state is PREPARING:
            self._close_window(now_s)
            if self._join_deadline_s <= now_s:
                self._window_end_s = None
                self._complete(effects, now_s)
            else:
                self._maybe_complete(effects, now_s)
        self._wake_s = self._earliest_deadline_s(now_s)
        return effects

    def abandon(self, code: ErrorCode) -> list[Effect]:
        """Answer everybody who waits, with an error: this machine will not be used again."""
        effects: list[Effect] = []
        for member in self.members:
            self._release(effects, member, code)
        return effects

    def delete(self) -> None:
        """Let nothing be done with it any more. Only a vacant group is deleted."""
        self.state = next_state(self.state, GroupEvent.DELETED)

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

    def describe(self) -> GroupDescription:
        """Return what DescribeGroups tells: metadata and assignments only while they hold."""
        is_stable = self.state is STABLE
        return GroupDescription(
            self.state.value,
            self.protocol_type,
            (self.protocol_name or "") if is_stable else "",
            self.generation,
            self.members.leader_id,
            tuple(
                MemberDescription(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self.protocol_name) if is_stable else b"",
                    member.assignment if is_stable else b"",
                )
                for member in self.members
            ),
        )

    # --- joining ---------------------------------------------------------------------------------

    def _is_acceptable(self, effects: list[Effect], request: JoinRequest, waiter: object) -> bool:
        if self.members.can_take(request, self.protocol_type):
            return True
        _refuse_join(effects, waiter, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return False

    def _join_new(
        self, effects: list[Effect], request: JoinRequest, waiter: object, now_s: float
    ) -> None:
        """Someone without a member id: a new member, or a static one whose process is new."""
        if not self._is_acceptable(effects, request, waiter):
            return
        if request.group_instance_id is not None:
            current = self.members.static_id(request.group_instance_id)
            member = None if current is None else self.members.get(current)
            if member is not None:
                # Replaces itself: there is always room for that (KAFKA-20601).
                self._replace(effects, member, request, waiter, now_s)
                return
        if self.members.size >= self._limits.max_size:
            _refuse_join(effects, waiter, request, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif request.member_id_required and request.group_instance_id is None:
            pending = PendingMember(now_s, request.session_timeout_ms)
            self.members.pending[request.new_member_id] = pending
            self._wake(pending.holds_until_s)
            result = JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
            effects.append(Answer(waiter, result))
        else:
            self._add(effects, request.new_member_id, request, waiter, now_s)

    def _add(
        self,
        effects: list[Effect],
        member_id: str,
        request: JoinRequest,
        waiter: object,
        now_s: float,
    ) -> None:
        member = Member(member_id, request)
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        self._note(now_s, "joined", member, request.reason)
        self._joined_in_window = True
        self._take_part(effects, member, request, waiter, Cause.MEMBER_JOINED, now_s)

    def _rejoin(
        self,
        effects: list[Effect],
        member: Member,
        request: JoinRequest,
        waiter: object,
        now_s: float,
    ) -> None:
        is_same = member.protocols == request.protocols
        is_leader = member.member_id == self.members.leader_id
        if self.state is PREPARING:
            if member.join_waiter is None and self._awaiting >= self._limits.max_size:
                # The limit was lowered under the group: the last ones to come back go (KAFKA-9885).
                self._remove(effects, member, "one too many", None, now_s)
                _refuse_join(effects, waiter, request, ErrorCode.GROUP_MAX_SIZE_REACHED)
                self._maybe_complete(effects, now_s)
                return
            cause = Cause.MEMBER_CHANGED  # unused: the round has begun
        elif is_same and (self.state is COMPLETING or not is_leader):
            # Most likely the answer was lost: the same again.
            self._release_join(effects, member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            member.has_joined = True
            self._touch(member, now_s)
            effects.append(Answer(waiter, self._formed(member)))
            return
        else:
            cause = Cause.LEADER_REJOINED if is_same else Cause.MEMBER_CHANGED
        self.members.update(member, request)
        self._take_part(effects, member, request, waiter, cause, now_s)

    def _replace(
        self,
        effects: list[Effect],
        member: Member,
        request: JoinRequest,
        waiter: object,
        now_s: float,
    ) -> None:
        """Give a static member's place to its new process, and fence the old one (KIP-345)."""
        self._release(effects, member, ErrorCode.FENCED_INSTANCE_ID)
        old_id = member.member_id
        is_same = is_same_interest(self.protocol_type, member.protocols, request.protocols)
        self.members.rename(member, request.new_member_id)
        self.members.update(member, request)
        self._note(now_s, f"replaced {old_id}", member, request.reason)
        if not (
            self.state is STABLE and is_same and self.members.elect_protocol() == self.protocol_name
        ):
            self._take_part(effects, member, request, waiter, Cause.MEMBER_REPLACED, now_s)
            return
        member.has_joined = True
        self._touch(member, now_s)
        effects.append(Persist(self.row()))
        result = self._formed(member)
        if member.member_id == self.members.leader_id:
            # A leader that cannot be told to keep the assignment must not think that it leads.
            result = (
                result._replace(skip_assignment=True)
                if request.can_skip_assignment
                else result._replace(leader_id=old_id, members=())
            )
        effects.append(Answer(waiter, result))

    def _take_part(
        self,
        effects: list[Effect],
        member: Member,
        request: JoinRequest,
        waiter: object,
        cause: Cause,
        now_s: float,
    ) -> None:
        """Let a member wait for the next generation, which begins to form if it has not."""
        self._release_join(effects, member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        member.join_waiter = waiter
        self._awaiting += 1
        if self.state is not PREPARING:
            self._begin(effects, cause, member.member_id, request.reason, now_s)
        self._maybe_complete(effects, now_s)

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
        if self.members and (
            self._window_end_s is not None
            or any(one.holds_until_s > now_s for one in self.members.pending.values())
        ):
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
                self._touch(member, now_s)
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
                self._touch(member, now_s)
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

    def _find_current(
        self, member_id: str, group_instance_id: str | None, generation: int
    ) -> Member | ErrorCode:
        found = self.members.find(member_id, group_instance_id)
        if isinstance(found, Member) and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return found

    def _is_other_protocol(self, request: SyncRequest) -> bool:
        return (
            request.protocol_type is not None and request.protocol_type != self.protocol_type
        ) or (
            request.protocol_name is not None
            and self.protocol_name is not None
            and request.protocol_name != self.protocol_name
        )

    def _formed(self, member: Member) -> JoinResult:
        """Return what a member is told of the current generation."""
        is_leader = member.member_id == self.members.leader_id
        return JoinResult(
            ErrorCode.NONE,
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
        return SyncResult(ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol_name)

    def _rebalance_timeout_s(self) -> float:
        return max((one.rebalance_timeout_ms for one in self.members), default=0) / 1000

    def _touch(self, member: Member, now_s: float) -> None:
        """Let a member live for another session."""
        member.deadline_s = now_s + member.session_timeout_ms / 1000
        self._wake(member.deadline_s)

    def _wake(self, at_s: float) -> None:
        self._wake_s = min(self._wake_s, at_s)

    def _earliest_deadline_s(self, now_s: float) -> float:
        earliest_s = min(
            (one.deadline_s for one in self.members if not one.is_parked), default=NEVER_S
        )
        for pending in self.members.pending.values():
            held_s = pending.holds_until_s
            earliest_s = min(earliest_s, held_s if held_s > now_s else pending.expires_s)
        if self.state is PREPARING:
            earliest_s = min(earliest_s, self._join_deadline_s)
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


def _refuse_join(
    effects: list[Effect], waiter: object, request: JoinRequest, code: ErrorCode
) -> None:
    effects.append(Answer(waiter, JoinResult(code, request.member_id)))


def waiters_of(effects: Iterable[Effect]) -> list[object]:
    """Return whom effects answer, in order."""
    return [effect.waiter for effect in effects if isinstance(effect, Answer)]
