"""ClassicMembership: the state of a classic group, and the checks of requests against it. Pure.

`classic` has the events that change the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.coordinator.machine import NEVER_S
from kgw.errors import NO_ERROR, ErrorCode
from kgw.groups.members import Member, MemberTable
from kgw.groups.requests import NO_MEMBER_ID, GroupDescription, JoinResult, SyncResult
from kgw.groups.rounds import RoundTimes
from kgw.groups.rows import GroupRow
from kgw.groups.states import GroupState
from kgw.groups.subscriptions import CONSUMER, subscribed_topics

if TYPE_CHECKING:
    from kgw.groups.machine import Beginning
    from kgw.groups.requests import (
        CommitRequest,
        HeartbeatRequest,
        JoinRequest,
        SyncRequest,
        TxnCommitRequest,
    )

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD


class ClassicMembership:
    """The members, generation, protocol and deadlines of a classic group."""

    def __init__(self, beginning: Beginning) -> None:
        self.group_id = beginning.group_id
        self.state: GroupState = EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.members = MemberTable()
        self.empty_since_s = beginning.now_s
        self.next_deadline_s = NEVER_S
        self._limits = beginning.limits
        self._times = RoundTimes(beginning.limits.initial_rebalance_delay_s)
        self._now_s = beginning.now_s
        """The time of the event that is handled now."""

    def __repr__(self) -> str:
        return f"<ClassicGroup {self.group_id!r} {self.state.value} {self.generation}>"

    @property
    def member_count(self) -> int:
        return len(self.members.all)

    @property
    def pending_count(self) -> int:
        return len(self.members.pending)

    @property
    def is_vacant(self) -> bool:
        return not (self.members.all or self.members.pending)

    def describe(self) -> GroupDescription:
        """Return the group for DescribeGroups: metadata and assignments only in state Stable."""
        is_stable = self.state is STABLE
        return GroupDescription(
            self.state.value,
            self.protocol_type,
            (self.protocol_name or "") if is_stable else "",
            self.generation,
            tuple(one.describe(self.protocol_name, self.state) for one in self.members.all),
            self.members.rebalance_timeout_ms,
            tuple(self.members.pending),
        )

    def subscribed_topics(self) -> frozenset[str] | None:
        topics: set[str] = set()
        for member in self.members.all:
            for _, metadata in member.said.protocols:
                found = subscribed_topics(metadata)
                if self.protocol_type != CONSUMER or found is None:
                    return None
                topics |= found
        return frozenset(topics)

    def _formed(self, member: Member) -> JoinResult:
        """Return the JoinGroup result of a member in the current generation."""
        is_leader = member.member_id == self.members.leader_id
        return JoinResult(
            NO_ERROR,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.members.leader_id,
            members=self.members.listed(self.protocol_name) if is_leader else (),
        )

    def _assignment(self, member: Member) -> SyncResult:
        return SyncResult(NO_ERROR, member.assignment, self.protocol_type, self.protocol_name)

    def row(self) -> GroupRow:
        """Return the row that restores the group. Not to be called in state PreparingRebalance."""
        return GroupRow(
            self.state,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.members.leader_id,
            self.members.rows(),
        )

    # --- errors in requests ----------------------------------------------------------------------

    def _join_problem(self) -> ErrorCode:
        if not self.group_id:
            return ErrorCode.INVALID_GROUP_ID
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.state is DEAD else NO_ERROR

    def _offer_problem(self, request: JoinRequest, own: Member | None) -> ErrorCode:
        """Check the protocols and metadata in a JoinGroup. Return the error or NO_ERROR.

        `own` is the member that sends the request or that its sender replaces; None for a new
        member.
        """
        if not self.members.can_take(request, own, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.members.size_bytes_with(request, own) > self._limits.max_bytes:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return NO_ERROR

    def _txn_commit_problem(self, request: TxnCommitRequest) -> ErrorCode:
        """Check a transactional commit. Return the error or NO_ERROR.

        As in Kafka, the member must be in the current generation, whatever the state of the group,
        and the commit does not extend its session. A commit without a generation is accepted if the
        group has no members, or if the commit has no member id and no instance id, as with
        producers older than KIP-447.
        """
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        is_anonymous = request.member_id == NO_MEMBER_ID and request.group_instance_id is None
        if request.generation < 0 and (is_anonymous or self.state is EMPTY):
            return NO_ERROR
        member = self._find_current(request)
        return NO_ERROR if isinstance(member, Member) else member

    def _find_current(
        self, request: SyncRequest | HeartbeatRequest | CommitRequest | TxnCommitRequest
    ) -> Member | ErrorCode:
        found = self.members.find(request.member_id, request.group_instance_id)
        if isinstance(found, Member) and request.generation != self.generation:
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

    # --- deadlines -------------------------------------------------------------------------------

    def _touch(self, member: Member) -> None:
        """Restart the session timeout of a member."""
        member.deadline_s = self._now_s + member.said.session_timeout_ms / 1000
        self._wake(member.deadline_s)

    def _wake(self, at_s: float) -> None:
        if at_s < self.next_deadline_s:  # noqa: PLR1730 - min() takes 60 ns of a hot path
            self.next_deadline_s = at_s

    def _earliest_deadline_s(self) -> float:
        deadlines_s = [self._times.sync_s]
        deadlines_s += [one.deadline_s for one in self.members.all if one.can_expire]
        deadlines_s += [one.expires_s for one in self.members.pending.values()]
        if self.state is PREPARING:
            deadlines_s.append(self._times.next_joining_s)
            if self.members.held_until_s > self._now_s:
                deadlines_s.append(self.members.held_until_s)
        return min(deadlines_s)
