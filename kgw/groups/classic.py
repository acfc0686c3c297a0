"""The state machine of a classic group: takes requests and the time, and returns effects.

It follows Kafka's rules (KIP-62, 134, 345, 394, 559, 800, 814), and adds these:
- if a member repeats a waiting request, on any connection, the old request is answered with an
  error and the new one waits (KAFKA-20938);
- member ids that no client has joined with yet count towards the size limit, and delay a rebalance
  only for `PENDING_HOLD_S`;
- a generation is persisted before any member gets it in an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kgw.coordinator.machine import (
    NEVER_S,
    Abandoned,
    AllStored,
    Answer,
    Asked,
    Kind,
    Persist,
)
from kgw.errors import NO_ERROR, ErrorCode
from kgw.groups.classic_membership import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicMembership,
)
from kgw.groups.machine import OffsetWrite, RoundAssigned, RoundFormed, refuse_other_kind
from kgw.groups.members import NEW_MEMBER_JOIN_S, Member, PendingMember
from kgw.groups.requests import (
    NO_MEMBER_ID,
    CommitRequest,
    DeleteRequest,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    SyncRequest,
    SyncResult,
    TxnCommitRequest,
)
from kgw.groups.rows import GroupRow, decode_row
from kgw.groups.states import GroupEvent, next_state
from kgw.groups.subscriptions import is_same_interest
from kgw.groups.trace import RebalanceCause, member_list
from kgw.state.kinds import CLASSIC_GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.coordinator.machine import Event
    from kgw.groups.machine import Beginning, Effect
    from kgw.groups.trace import Round


class ClassicGroup(ClassicMembership):
    """One group. `handle` is the only entry point, and no method waits.

    While an event is handled, `_now_s` is its time and `_effects` has the effects to return.
    """

    def __init__(self, beginning: Beginning) -> None:
        """Begin with the state of the stored row, or as an empty group if there is none."""
        super().__init__(beginning)
        self._trace = beginning.trace
        self._generation_floor = beginning.generation_floor
        self._round: Round | None = None
        self._row_key = (CLASSIC_GROUP, beginning.group_id)
        self._awaiting = 0
        """How many members wait for the next generation."""
        self._effects: list[Effect] = []
        row = beginning.rows.get(self._row_key)
        if row is not None:
            self._restore(cast("GroupRow", row), beginning.running_ms)
        if beginning.empty_since_s is not None:
            self.empty_since_s = beginning.empty_since_s

    # --- events ----------------------------------------------------------------------------------

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        self._now_s = now_s
        self._effects = []
        if isinstance(event, Asked):
            request, waiter = event
            if isinstance(request, JoinRequest):
                self._join(request, waiter)
            elif isinstance(request, SyncRequest):
                self._sync(request, waiter)
            elif isinstance(request, HeartbeatRequest):
                self._effects.append(Answer(waiter, self._heartbeat(request), at_once=True))
            elif isinstance(request, CommitRequest):
                write = OffsetWrite(request.offsets) if request.offsets else None
                self._commit(waiter, self._commit_problem(request), write)
            elif isinstance(request, LeaveRequest):
                self._leave(request, waiter)
            elif isinstance(request, TxnCommitRequest):
                is_empty = not any(request.commit.offsets.values())
                write = None if is_empty else OffsetWrite(pending=request.commit)
                self._commit(waiter, self._txn_commit_problem(request), write)
            elif isinstance(request, DeleteRequest):
                self._delete(waiter)
            else:
                self._effects.append(refuse_other_kind(event))
        elif isinstance(event, AllStored):
            # A member sends no heartbeats while its JoinGroup or SyncGroup waits for storage, so
            # its session begins again now.
            for member in self.members.all:
                if member.is_untold:
                    member.is_untold = False
                    self._touch(member)
        elif isinstance(event, Abandoned):
            for member in self.members.all:
                self._release(member, event.error)
        else:
            self._expire()
        return self._effects

    def _join(self, request: JoinRequest, waiter: object) -> None:
        """Answer a JoinGroup, or let it wait for the next generation."""
        member_id = request.member_id
        code = self._join_problem()
        if code is not NO_ERROR:
            self._refuse_join(request, waiter, code)
        elif member_id == NO_MEMBER_ID:
            self._join_new(request, waiter)
        elif member_id in self.members.pending and request.group_instance_id is None:
            code = self._offer_problem(request, None)
            if code is not NO_ERROR:
                self._refuse_join(request, waiter, code)
                return
            del self.members.pending[member_id]
            self._add(member_id, request, waiter)
        else:
            found = self.members.find(member_id, request.group_instance_id)
            code = self._offer_problem(request, found) if isinstance(found, Member) else found
            if isinstance(found, Member) and code is NO_ERROR:
                self._rejoin(found, request, waiter)
            else:
                self._refuse_join(request, waiter, code)

    def _sync(self, request: SyncRequest, waiter: object) -> None:
        """Answer a SyncGroup, or let it wait for the SyncGroup of the leader."""
        member = self._find_current(request)
        if not isinstance(member, Member):
            self._refuse_sync(waiter, member)
        elif self._is_other_protocol(request):
            self._refuse_sync(waiter, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif sum(len(one) for _, one in request.assignments) > self._limits.max_bytes:
            self._refuse_sync(waiter, ErrorCode.INVALID_REQUEST)
        elif self.state is PREPARING:
            self._refuse_sync(waiter, ErrorCode.REBALANCE_IN_PROGRESS)
        elif self.state is COMPLETING:
            if member.sync_waiter is not None:
                self._refuse_sync(member.sync_waiter, ErrorCode.REBALANCE_IN_PROGRESS)
            member.sync_waiter = waiter
            member.has_synced = True
            if member.member_id == self.members.leader_id:
                self._assign(dict(request.assignments))
        else:
            member.has_synced = True
            self._touch(member)
            self._effects.append(Answer(waiter, self._assignment(member)))

    def _heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Extend the session of a member."""
        member = self._find_current(request)
        if not isinstance(member, Member):
            return member
        self._touch(member)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else NO_ERROR

    def _commit(self, waiter: object, code: ErrorCode, write: OffsetWrite | None) -> None:
        """Answer a commit: at once if it has an error or no offsets, else once they are stored."""
        is_stored = code is NO_ERROR and write is not None
        if is_stored:
            self._effects.append(Persist(more=write))
        self._effects.append(Answer(waiter, code, at_once=not is_stored))

    def _commit_problem(self, request: CommitRequest) -> ErrorCode:
        """Return the error of a commit, or NO_ERROR; an accepted commit extends the session.

        A commit without a generation comes from a client that is no member, and is allowed only
        while the group has no members. Its member id and instance id are not checked, as in Kafka:
        librdkafka (2.16) sends its instance id.
        """
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if request.generation < 0 and self.state is EMPTY:
            return NO_ERROR
        member = self._find_current(request)
        if not isinstance(member, Member):
            return member
        if self.state is COMPLETING:
            # The member knows the generation, but not yet its assignment.
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._touch(member)
        return NO_ERROR

    def _leave(self, request: LeaveRequest, waiter: object) -> None:
        """Remove members, and answer when the changes that their removal causes are durable.

        If the group only begins to wait for other members to join, nothing is stored: after a crash
        the removed members are members again until their sessions end, as in Kafka.
        """
        codes: list[ErrorCode] = []
        gone: list[Member] = []
        reason: str | None = None
        for one in request.leaving:
            member_id = one.member_id
            if member_id in self.members.pending and one.group_instance_id is None:
                del self.members.pending[member_id]
                codes.append(NO_ERROR)
                continue
            static = self.members.static(one.group_instance_id)
            if member_id == NO_MEMBER_ID and static is not None:
                member_id = static.member_id
            found = self.members.find(member_id, one.group_instance_id)
            if not isinstance(found, Member):
                codes.append(found)
                continue
            self._remove(found, "left", one.reason)
            gone.append(found)
            reason = reason or one.reason
            codes.append(NO_ERROR)
        is_any = NO_ERROR in codes
        if is_any:
            # If no member was removed, the group does not change: even a rebalance whose time to
            # join is over now is not completed here.
            self._go_on_without(gone, RebalanceCause.MEMBER_LEFT, reason)
        self._effects.append(Answer(waiter, codes, at_once=not is_any))

    def _delete(self, waiter: object) -> None:
        """Delete the group and its offsets.

        If the deletion cannot be stored, load the group again.
        """
        code = NO_ERROR
        if self.state is DEAD:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        elif self.members.all:
            code = ErrorCode.NON_EMPTY_GROUP
        if code is not NO_ERROR:
            self._effects.append(Answer(waiter, code, at_once=True))
            return
        self.state = next_state(self.state, GroupEvent.DELETED)
        self.members.pending.clear()
        self._effects.append(Persist({self._row_key: None}, OffsetWrite(drops_all=True)))
        self._effects.append(Answer(waiter, code))

    def _expire(self) -> None:
        """Handle the deadlines that have passed.

        Removes unused member ids, members whose session has expired and members that have not sent
        SyncGroup in time. Completes a rebalance whose time to join is over.
        """
        now_s = self._now_s
        pending = self.members.pending
        for member_id in [key for key, one in pending.items() if one.expires_s <= now_s]:
            del pending[member_id]
            self._trace.note(now_s, "id never used", self.generation, member_id=member_id)
        dead = [one for one in self.members.all if one.deadline_s <= now_s and one.can_expire]
        for member in dead:
            self._remove(member, "session expired", None)
        self._go_on_without(dead, RebalanceCause.SESSION_EXPIRED, None)
        if self._times.sync_s <= now_s and self.state in {COMPLETING, STABLE}:
            self._times.sync_s = NEVER_S
            silent = [one for one in self.members.all if one.has_joined and not one.has_synced]
            for member in silent:
                self._remove(member, "never asked for its assignment", None)
            self._go_on_without(silent, RebalanceCause.SYNC_EXPIRED, None)
        if self.state is PREPARING:
            if self._times.is_joining_over(now_s):
                self._complete()
            else:
                self._maybe_complete()
        self.next_deadline_s = self._earliest_deadline_s()

    # --- joining ---------------------------------------------------------------------------------

    def _join_new(self, request: JoinRequest, waiter: object) -> None:
        """Handle a JoinGroup without a member id, from a new or a restarted static member."""
        member = self.members.static(request.group_instance_id)
        code = self._offer_problem(request, member)
        if code is not NO_ERROR:
            self._refuse_join(request, waiter, code)
        elif member is not None:
            # The size limit is not checked, as the number of members stays the same (KAFKA-20601).
            self._replace(member, request, waiter)
        elif self.members.size >= self._limits.max_size:
            self._refuse_join(request, waiter, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif request.member_id_required and request.group_instance_id is None:
            pending = PendingMember.begin(self._now_s, request.session_timeout_ms)
            self.members.pending[request.new_member_id] = pending
            self._wake(pending.holds_until_s if self.state is PREPARING else pending.expires_s)
            result = JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
            self._effects.append(Answer(waiter, result))
        else:
            self._add(request.new_member_id, request, waiter)

    def _add(self, member_id: str, request: JoinRequest, waiter: object) -> None:
        member = Member(member_id, request.group_instance_id, request)
        if not self.members.all:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        self._note("joined", member, request.reason)
        self._times.somebody_came = True
        member.deadline_s = self._now_s + NEW_MEMBER_JOIN_S
        self._wake(member.deadline_s)
        self._take_part(member, request, waiter, RebalanceCause.MEMBER_JOINED)

    def _rejoin(self, member: Member, request: JoinRequest, waiter: object) -> None:
        member.is_new = False
        is_same = member.said.protocols == request.protocols
        is_leader = member.member_id == self.members.leader_id
        if self.state is PREPARING:
            if member.join_waiter is None and self._awaiting >= self._limits.max_size:
                # The size limit was lowered below the number of members: the members that join
                # last are removed (KAFKA-9885).
                self._remove(member, "one too many", None)
                self._refuse_join(request, waiter, ErrorCode.GROUP_MAX_SIZE_REACHED)
                self._maybe_complete()
                return
            cause = RebalanceCause.MEMBER_CHANGED  # unused: the round has begun
        elif is_same and (self.state is COMPLETING or not is_leader):
            # The member has probably not received the first answer, so it is sent again.
            self._release_join(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            member.has_joined = True
            self._touch(member)
            self._effects.append(Answer(waiter, self._formed(member)))
            return
        else:
            cause = RebalanceCause.LEADER_REJOINED if is_same else RebalanceCause.MEMBER_CHANGED
        self.members.update(member, request)
        self._take_part(member, request, waiter, cause)

    def _replace(self, member: Member, request: JoinRequest, waiter: object) -> None:
        """Give a static member a new member id, and fence the process with the old id (KIP-345).

        There is no rebalance if the group is stable and the subscription has not changed.
        """
        self._release(member, ErrorCode.FENCED_INSTANCE_ID)
        member.is_new = False
        old_id = member.member_id
        is_same = is_same_interest(self.protocol_type, member.said.protocols, request.protocols)
        self.members.rename(member, request.new_member_id)
        self.members.update(member, request)
        self._note(f"replaced {old_id}", member, request.reason)
        if not (
            self.state is STABLE and is_same and self.members.elect_protocol() == self.protocol_name
        ):
            self._take_part(member, request, waiter, RebalanceCause.MEMBER_REPLACED)
            return
        member.has_joined = True
        member.is_untold = True
        self._persist()
        result = self._formed(member)
        if member.member_id == self.members.leader_id:
            # The leader would assign again. If its JoinGroup version has no skip_assignment, the
            # answer has the old id as the leader, so that the member does not act as the leader.
            result = (
                result._replace(skip_assignment=True)
                if request.can_skip_assignment
                else result._replace(leader_id=old_id, members=())
            )
        self._effects.append(Answer(waiter, result))

    def _take_part(
        self, member: Member, request: JoinRequest, waiter: object, cause: RebalanceCause
    ) -> None:
        """Let a member wait for the next generation. Begin a rebalance if none is under way."""
        self._release_join(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        member.join_waiter = waiter
        self._awaiting += 1
        if self.state is not PREPARING:
            self._begin(cause, member.member_id, request.reason)
        self._maybe_complete()

    # --- rounds ----------------------------------------------------------------------------------

    def _begin(self, cause: RebalanceCause, member_id: str, reason: str | None) -> None:
        """Begin a rebalance: all members have to join again."""
        was_empty = self.state is EMPTY
        self.state = next_state(self.state, GroupEvent.REBALANCE_NEEDED)
        for member in self.members.all:
            if member.sync_waiter is not None:
                self._touch(member)
                self._release_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._round = self._trace.begin_round(self._now_s, cause, member_id, reason)
        self._times.begin(self._now_s, self.members.rebalance_timeout_s, is_first=was_empty)
        self._wake(self._times.next_joining_s)

    def _maybe_complete(self) -> None:
        if self.state is not PREPARING or self._awaiting < len(self.members.all):
            return
        if self.members.all:
            held_until_s = self.members.held_until_s
            if held_until_s > self._now_s:
                # Set on each call: the time becomes earlier when the client joins whose member id
                # would have delayed the rebalance the longest.
                self._wake(held_until_s)
                return
            if self._times.more_until_s != NEVER_S:
                return
        self._complete()

    def _complete(self) -> None:
        """Form the next generation from the members that have joined."""
        now_s, members, times = self._now_s, self.members, self._times
        missing = [one for one in members.all if one.join_waiter is None]
        for member in missing:
            # A static member stays until its session ends. After the rebalance was postponed, it is
            # removed even if it sends heartbeats, as it could have sent a JoinGroup.
            if member.group_instance_id is None or times.is_postponed:
                self._remove(member, "did not join in time", None)
        round_ = self._round
        if round_ is not None and missing:
            round_.missing = member_list([one.member_id for one in missing])
        if members.all and not self._awaiting:
            longest_ms = max(one.said.session_timeout_ms for one in members.all)
            times.postpone(now_s + longest_ms / 1000)
            self._wake(times.join_s)
            return
        self.generation = max(self.generation, self._generation_floor) + 1
        if round_ is not None:
            round_.formed_s = now_s
            round_.generation = self.generation
            round_.member_count = len(members.all)
        if not members.all:
            times.formed(NEVER_S)
            self._become_empty()
            return
        leader = members.get(members.leader_id)
        if leader is None or leader.join_waiter is None:
            members.leader_id = next(
                one.member_id for one in members.all if one.join_waiter is not None
            )
        self.protocol_name = members.elect_protocol()
        self.state = next_state(self.state, GroupEvent.EVERYBODY_JOINED)
        times.formed(now_s + members.rebalance_timeout_s)
        self._wake(times.sync_s)
        for member in members.all:
            # An assignment of an older generation must not be sent in this one.
            member.assignment = b""
            member.has_synced = False
            member.has_joined = member.join_waiter is not None
        self._trace.note(now_s, "generation formed", self.generation)
        self._persist()
        if round_ is not None:
            round_.protocol_name = self.protocol_name
        for member in members.all:
            waiter = member.join_waiter
            if waiter is not None:
                member.join_waiter = None
                member.is_new = False
                member.is_untold = True
                self._effects.append(Answer(waiter, self._formed(member)))
        if round_ is not None:
            self._effects.append(RoundFormed(round_, now_s))
        self._awaiting = 0

    def _become_empty(self) -> None:
        self.state = next_state(self.state, GroupEvent.NOBODY_LEFT)
        self.protocol_name = None
        self.members.leader_id = NO_MEMBER_ID
        self.empty_since_s = self._now_s
        self._round = None
        self._trace.note(self._now_s, "empty", self.generation)
        self._persist()

    def _assign(self, assignments: dict[str, bytes]) -> None:
        """Store the leader's assignments.

        A member without an assignment gets empty bytes, as in Kafka. The leader knew all current
        members, as a member that joins later begins another rebalance. It is no error if the leader
        assigns nothing.
        """
        for member in self.members.all:
            member.assignment = bytes(assignments.get(member.member_id, b""))
        self.state = next_state(self.state, GroupEvent.ASSIGNED)
        leader_id = self.members.leader_id
        self._trace.note(self._now_s, "assigned", self.generation, member_id=leader_id)
        self._persist()
        if self._round is not None:
            self._round.assigned_s = self._now_s
        for member in self.members.all:
            waiter = member.sync_waiter
            if waiter is not None:
                member.sync_waiter = None
                member.is_untold = True
                self._effects.append(Answer(waiter, self._assignment(member)))
        if self._round is not None:
            self._effects.append(RoundAssigned(self._round, self._now_s))

    # --- removal of members ----------------------------------------------------------------------

    def _remove(self, member: Member, what: str, reason: str | None) -> None:
        self._release(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.members.remove(member)
        self._note(what, member, reason)

    def _go_on_without(
        self, gone: Sequence[Member], cause: RebalanceCause, reason: str | None
    ) -> None:
        """Begin a rebalance after members were removed.

        If there is a rebalance already, complete it if it waited only for the removed members.
        """
        if gone and self.state in {COMPLETING, STABLE}:
            self._begin(cause, gone[0].member_id, reason)
        self._maybe_complete()

    def _release(self, member: Member, code: ErrorCode) -> None:
        """Answer the waiting requests of a member with an error."""
        self._release_join(member, code)
        self._release_sync(member, code)

    def _release_join(self, member: Member, code: ErrorCode) -> None:
        waiter = member.join_waiter
        if waiter is not None:
            member.join_waiter = None
            self._awaiting -= 1
            self._effects.append(Answer(waiter, JoinResult(code, member.member_id)))

    def _release_sync(self, member: Member, code: ErrorCode) -> None:
        waiter = member.sync_waiter
        if waiter is not None:
            member.sync_waiter = None
            self._refuse_sync(waiter, code)

    def _refuse_join(self, request: JoinRequest, waiter: object, code: ErrorCode) -> None:
        self._effects.append(Answer(waiter, request.refused(code)))

    def _refuse_sync(self, waiter: object, code: ErrorCode) -> None:
        self._effects.append(Answer(waiter, SyncResult(code)))

    # --- rows and the trace ----------------------------------------------------------------------

    def _persist(self) -> None:
        self._effects.append(Persist({self._row_key: self.row()}))

    def _restore(self, row: GroupRow, running_ms: int) -> None:
        self.state = row.state
        if row.empty_since_ms >= 0:
            self.empty_since_s -= max(0, running_ms - row.empty_since_ms) / 1000
        self.generation = row.generation
        self.protocol_type = row.protocol_type
        self.protocol_name = row.protocol_name
        for stored in row.members:
            member = Member(
                stored.member_id,
                stored.group_instance_id,
                stored.said,
                stored.assignment,
                has_joined=stored.has_joined,
                has_synced=row.state is STABLE,
                is_new=False,
            )
            self.members.add(member)
            self._touch(member)
        self.members.leader_id = row.leader_id
        if row.state is COMPLETING:
            self._times.sync_s = self._now_s + self.members.rebalance_timeout_s
            self._wake(self._times.sync_s)
        if len(self.members.all) > self._limits.max_size and row.state is not EMPTY:
            self._begin(RebalanceCause.TOO_MANY_MEMBERS, "", None)

    def _note(self, what: str, member: Member, reason: str | None) -> None:
        self._trace.note(
            self._now_s,
            what,
            self.generation,
            member_id=member.member_id,
            client_id=member.said.client_id,
            reason=reason,
        )


CLASSIC_KIND = Kind((CLASSIC_GROUP,), decode_row, ClassicGroup)
