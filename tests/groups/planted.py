"""Bugs that are planted in the coordinator, one at a time: what G1 must find, and by which rule."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.coordinator.entry import Reply
from kgw.coordinator.machine import NEVER_S, Answer
from kgw.errors import NO_ERROR, ErrorCode
from kgw.groups import classic
from kgw.groups.classic import ClassicGroup
from kgw.groups.classic_membership import COMPLETING
from kgw.groups.coordinator import GroupCoordinator
from kgw.groups.machine import OffsetWrite
from kgw.groups.members import Member, MemberTable
from kgw.groups.requests import HeartbeatRequest, JoinResult, SyncResult
from kgw.groups.table import GroupTable
from kgw.groups.writes import MergedOffsets
from kgw.offsets.pending import PendingCommit, PendingTable
from kgw.offsets.table import OffsetTable
from tests.groups.model import BYSTANDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EARLY_S = 3_000.0
START_WALL_S = 1_700_000_000.0


@contextmanager
def method(owner: Any, name: str, broken: Callable[..., Any]) -> Iterator[None]:
    """Put a broken method in place of one; it is given the right one first."""
    right = getattr(owner, name)

    def called(*arguments: Any, **options: Any) -> Any:
        return broken(right, *arguments, **options)

    setattr(owner, name, property(called) if isinstance(right, property) else called)
    try:
        yield
    finally:
        setattr(owner, name, right)


class Bug(NamedTuple):
    """What is broken, and what a finding must say."""

    owner: object
    name: str
    broken: Callable[..., Any]
    found_by: str

    def plant(self) -> Any:
        """Return a context in which the bug is there."""
        return method(self.owner, self.name, self.broken)


def commit_before_the_assignment(right: Any, self: ClassicGroup, request: Any) -> ErrorCode:
    """Take the commit of a member that has not heard its part of the generation."""
    code: ErrorCode = right(self, request)
    return NO_ERROR if code is ErrorCode.REBALANCE_IN_PROGRESS else code


def commit_of_any_generation(right: Any, self: ClassicGroup, request: Any) -> ErrorCode:
    """Take a member's commit whatever generation it names."""
    code: ErrorCode = right(self, request)
    return NO_ERROR if code is ErrorCode.ILLEGAL_GENERATION else code


def instance_is_proof(
    right: Any, self: MemberTable, member_id: str, group_instance_id: str | None
) -> Any:
    """Take whoever names an instance for the member that it is."""
    if group_instance_id is not None:
        static = self.static(group_instance_id)
        member_id = member_id if static is None else static.member_id
    return right(self, member_id, group_instance_id)


def parked_join_is_forgotten(right: Any, self: ClassicGroup, member: Member, *what: Any) -> None:
    """Replace a static member without a word to the process that waits."""
    if member.join_waiter is not None:
        member.join_waiter = None
        self._awaiting -= 1
    right(self, member, *what)


def no_time_to_sync(right: Any, self: ClassicGroup) -> None:
    """Wait for an assignment for ever."""
    right(self)
    self._times.sync_s = NEVER_S


def no_time_to_join(right: Any, self: ClassicGroup, *what: Any) -> None:
    """Wait for members to join for ever."""
    right(self, *what)
    self._times.join_s = NEVER_S


def nobody_completes_a_round(right: Any, self: ClassicGroup) -> None:
    """Only its time-out ends a round, though everybody has joined."""
    if self._now_s >= self._times.join_s or not self.members.all or self.group_id == BYSTANDER:
        right(self)


def answers_before_the_store(right: Any, self: GroupTable, group: Any, effects: Any) -> None:
    """Let no member wait for what is being stored."""
    right(self, group, [_told_at_once(one) for one in effects])


def _told_at_once(effect: Any) -> Any:
    is_early = isinstance(effect, Answer) and isinstance(effect.result, JoinResult | SyncResult)
    return effect._replace(at_once=True) if is_early else effect


def commits_before_the_store(right: Any, self: GroupCoordinator, *what: Any) -> Any:
    """Answer commits before they are stored."""
    answer = right(self, *what)
    if answer.is_done:
        return answer
    early: Reply[ErrorCode] = Reply(lambda error: error)
    early.set_result(NO_ERROR)
    return early


def leaves_before_the_store(right: Any, self: ClassicGroup, *what: Any) -> Any:
    """Answer a LeaveGroup before it is stored."""
    right(self, *what)
    *before, answer = self._effects
    assert isinstance(answer, Answer)
    self._effects = [*before, answer._replace(at_once=True)]


def one_part_for_all(right: Any, self: ClassicGroup, given: Any) -> None:
    """Give every member the same part."""
    part = min(given.values(), default=b"")
    right(self, dict.fromkeys(given, part))


def joiner_slips_in(
    right: Any, self: ClassicGroup, member: Member, request: Any, waiter: Any, *why: Any
) -> None:
    """Who comes after the leader's list was made is a member of the generation."""
    if self.state is COMPLETING and member.is_new:
        member.is_new, member.has_joined = False, True
        self._effects.append(Answer(waiter, self._formed(member)))
    else:
        right(self, member, request, waiter, *why)


def static_member_rebalances(_: Any, *what: Any) -> bool:
    """Find that whoever comes back wants something else."""
    return False


def ids_take_no_place(_: Any, self: MemberTable) -> int:
    """Count members alone."""
    return len(self.all)


def expires_early(
    right: Any,
    self: OffsetTable,
    now_s: float,
    empty_since_s: float,
    retention_s: float,
    *what: Any,
) -> Any:
    """Let offsets expire ten minutes after their time began."""
    return right(self, now_s, empty_since_s, retention_s - EARLY_S, *what)


def sessions_by_the_wall_clock(
    right: Any, self: GroupCoordinator, group_id: str, request: Any
) -> Any:
    """A heartbeat keeps a member alive until a time of the wall clock."""
    reply = right(self, group_id, request)
    group: Any = self._table.entries.get(group_id)
    if isinstance(request, HeartbeatRequest) and reply.result is NO_ERROR:
        ahead_s = self._clock.wall_ms() / 1000 - START_WALL_S - self._clock.monotonic_s()
        group.machine.members.get(request.member_id).deadline_s += ahead_s + 1000.0
    return reply


def waits_for_any_write(right: Any, self: GroupTable, group: Any, effects: Any) -> None:
    """Answers wait for whatever is being stored, as behind a lock."""
    busy = next((one for one in self.entries.values() if one.last_write is not None), None)
    written, group.last_write = group.last_write, group.last_write or (busy and busy.last_write)
    right(self, group, [one for one in effects if isinstance(one, Answer)])
    group.last_write = written
    right(self, group, [one for one in effects if not isinstance(one, Answer)])


def generation_goes_back(right: Any, self: ClassicGroup) -> Any:
    """A row says one generation less than there is."""
    row = right(self)
    return row._replace(generation=row.generation - 1)


def dead_members_stay(right: Any, self: ClassicGroup) -> Any:
    """Let members live on for a minute after their session."""
    for member in self.members.all:
        if member.deadline_s <= self._now_s:
            member.deadline_s = self._now_s + 60.0
    return right(self)


def a_later_commit_is_undone(right: Any, self: PendingTable, changes: Any) -> Any:
    """Let the end of a transaction take the place of what was committed after it."""
    return right(self, {topic_id: one for topic_id, one in changes.items() if one is None})


def aborts_commit(right: Any, self: PendingTable, end: Any) -> Any:
    """Commit whatever ends."""
    return right(self, end._replace(is_commit=True))


def pending_is_committed(right: Any, self: MergedOffsets, wanted: OffsetWrite) -> Any:
    """Commit what a transaction brings at once, and hold the places open."""
    if isinstance(wanted.pending, PendingCommit):
        right(self, OffsetWrite(offsets=wanted.pending.offsets))
    return right(self, wanted)


def ends_before_the_store(right: Any, self: GroupCoordinator, *what: Any, **how: Any) -> Any:
    """Answer the end of a transaction before it is stored."""
    right(self, *what, **how)
    early: Reply[ErrorCode] = Reply(lambda error: error)
    early.set_result(NO_ERROR)
    return early


def expires_under_a_transaction(right: Any, self: OffsetTable, *what: Any) -> Any:
    """Let offsets expire whatever is pending."""
    return right(self, *what[:3])


def what_failed_is_forgotten(_: Any, self: GroupTable) -> Any:
    """Leave rows on the disk as a failure has left them."""
    return []


BUGS: dict[str, Bug] = {
    "commits-before-the-assignment": Bug(
        ClassicGroup, "_commit_problem", commit_before_the_assignment, "I4"
    ),
    "commits-of-any-generation": Bug(
        ClassicGroup, "_commit_problem", commit_of_any_generation, "I4"
    ),
    "an-instance-id-is-proof": Bug(MemberTable, "find", instance_is_proof, "I4"),
    "a-parked-join-is-forgotten": Bug(ClassicGroup, "_replace", parked_join_is_forgotten, "I8"),
    "no-time-to-sync": Bug(ClassicGroup, "_complete", no_time_to_sync, "I6"),
    "no-time-to-join": Bug(ClassicGroup, "_begin", no_time_to_join, "I6"),
    "only-time-ends-a-round": Bug(ClassicGroup, "_maybe_complete", nobody_completes_a_round, "I6"),
    "answers-before-the-store": Bug(GroupTable, "_deliver", answers_before_the_store, "I3"),
    "commits-before-the-store": Bug(
        GroupCoordinator, "commit", commits_before_the_store, "an acknowledged commit is lost"
    ),
    "leaves-before-the-store": Bug(
        ClassicGroup, "_leave", leaves_before_the_store, "told that it has left is back"
    ),
    "one-part-for-all": Bug(ClassicGroup, "_assign", one_part_for_all, "I1"),
    "a-joiner-slips-in": Bug(ClassicGroup, "_take_part", joiner_slips_in, "I2"),
    "a-static-member-rebalances": Bug(classic, "is_same_interest", static_member_rebalances, "I5"),
    "ids-take-no-place": Bug(MemberTable, "size", ids_take_no_place, "I7"),
    "dead-members-stay": Bug(ClassicGroup, "_expire", dead_members_stay, "I6"),
    "expires-early": Bug(OffsetTable, "expired", expires_early, "an acknowledged commit is lost"),
    "sessions-by-the-wall-clock": Bug(GroupCoordinator, "ask", sessions_by_the_wall_clock, "I9"),
    "waits-for-any-write": Bug(GroupTable, "_deliver", waits_for_any_write, "I10"),
    "a-generation-goes-back": Bug(ClassicGroup, "row", generation_goes_back, "I3"),
    "a-later-commit-is-undone": Bug(
        PendingTable, "outdate", a_later_commit_is_undone, "a commit was rewound"
    ),
    "aborts-commit": Bug(PendingTable, "end", aborts_commit, "I11"),
    "pending-is-committed": Bug(MergedOffsets, "add", pending_is_committed, "I11"),
    "ends-before-the-store": Bug(GroupCoordinator, "end_transaction", ends_before_the_store, "I12"),
    "expires-under-a-transaction": Bug(OffsetTable, "expired", expires_under_a_transaction, "I12"),
    "what-failed-is-forgotten": Bug(GroupTable, "rows_again", what_failed_is_forgotten, "I12"),
}
