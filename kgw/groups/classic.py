"""The machine of a classic group: requests and time in, effects out. Pure.

Kafka's rules (KIP-62, 134, 345, 394, 559, 800, 814), with these of our own:
- a request that is sent again, on whatever connection, takes the place of the first, and the first
  is answered as well (KAFKA-20938);
- ids that were given out count towards the size limit and hold up a round for a moment only;
- a generation is persisted before anybody hears of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import NO_ERROR, ErrorCode
from kgw.groups.effects import Answer, Effect, Persist
from kgw.groups.members import NEW_MEMBER_JOIN_S, Member, PendingMember
from kgw.groups.requests import (
    NO_MEMBER_ID,
    GroupDescription,
    JoinRequest,
    JoinResult,
    LeavingMember,
    MemberDescription,
    SyncRequest,
    SyncResult,
)
from kgw.groups.rounds import (
    COMPLETING,
    DEAD,
    EMPTY,
    NEVER_S,
    PREPARING,
    STABLE,
    GroupRounds,
)
from kgw.groups.states import GroupEvent, next_state
from kgw.groups.subscriptions import is_same_interest
from kgw.groups.trace import Cause

if TYPE_CHECKING:
    from collections.abc import Sequence


class ClassicGroup(GroupRounds):
    """One group. Every method takes the monotonic time in seconds; nothing here waits."""

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
        elif sum(len(one) for _, one in request.assignments) > self._limits.max_bytes:
            effects.append(Answer(waiter, SyncResult(ErrorCode.INVALID_REQUEST)))
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
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else NO_ERROR

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, now_s: float
    ) -> ErrorCode:
        """Say whether offsets may be committed, which also keeps the member alive.

        Who names no generation commits from outside: only while nobody is inside. As in Kafka it
        does not matter whom else it names: librdkafka (2.16) sends its instance id.
        """
        if generation < 0 and self.state is EMPTY:
            return NO_ERROR
        member = self._find_current(member_id, group_instance_id, generation)
        if not isinstance(member, Member):
            return member
        if self.state is COMPLETING:
            # It has heard of the generation and not yet of its part in it.
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._touch(member, now_s)
        return NO_ERROR

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
                codes.append(NO_ERROR)
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
            codes.append(NO_ERROR)
        if NO_ERROR in codes:
            # Who is refused changes nothing, not even a round whose time is up just then.
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
        dead = [one for one in self.members if one.deadline_s <= now_s and one.can_expire]
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

    def stored(self, now_s: float) -> None:
        """Everything that was to be persisted is: sessions begin for those who are answered now.

        However long it took, nobody could send heartbeats while it waited.
        """
        for member in self.members:
            if member.is_untold:
                member.is_untold = False
                self._touch(member, now_s)

    def abandon(self, code: ErrorCode) -> list[Effect]:
        """Answer everybody who waits, with an error: this machine will not be used again."""
        effects: list[Effect] = []
        for member in self.members:
            self._release(effects, member, code)
        return effects

    def delete(self) -> None:
        """Let nothing be done with it any more. Only a vacant group is deleted."""
        self.state = next_state(self.state, GroupEvent.DELETED)

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
        if not self.members.can_take(request, self.protocol_type):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif self.members.size_bytes_with(request) > self._limits.max_bytes:
            code = ErrorCode.GROUP_MAX_SIZE_REACHED
        else:
            return True
        _refuse_join(effects, waiter, request, code)
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
            self._wake(pending.holds_until_s if self.state is PREPARING else pending.expires_s)
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
        member.deadline_s = now_s + NEW_MEMBER_JOIN_S
        self._wake(member.deadline_s)
        self._take_part(effects, member, request, waiter, Cause.MEMBER_JOINED, now_s)

    def _rejoin(
        self,
        effects: list[Effect],
        member: Member,
        request: JoinRequest,
        waiter: object,
        now_s: float,
    ) -> None:
        member.is_new = False
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
        member.is_new = False
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
        member.is_untold = True
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


def _refuse_join(
    effects: list[Effect], waiter: object, request: JoinRequest, code: ErrorCode
) -> None:
    effects.append(Answer(waiter, JoinResult(code, request.member_id)))
