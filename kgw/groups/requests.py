"""What groups are asked and what they answer, free of protocol versions: handlers translate.

Every request says what becomes of it where there is no such group, and how it is refused: that is
all that the coordinator knows of it (`machine.GroupRequest`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import NO_ERROR, ErrorCode

if TYPE_CHECKING:
    from kgw.groups.states import MemberState
    from kgw.offsets.pending import PendingCommit
    from kgw.offsets.topic_offsets import OffsetChanges

CLASSIC = "classic"
"""The type of group, as ListGroups names it."""
NO_GENERATION = -1
NO_MEMBER_ID = ""


class MemberProtocol(NamedTuple):
    """A way to share work that a member knows, and what it wants its leader to know."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """A member, or who wants to be one, takes part in the next generation."""

    member_id: str
    """NO_MEMBER_ID for someone new."""

    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    """Best first."""

    new_member_id: str
    """The id that a new member gets: chosen by the caller, so that nothing here is random."""

    reason: str | None = None
    member_id_required: bool = False
    """Whether a new dynamic member is given its id first and joins with it (KIP-394)."""

    can_skip_assignment: bool = False
    """Whether a static leader that returns can be told to keep the assignment (KIP-814)."""

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode | str:
        if not group_id or self.member_id != NO_MEMBER_ID:
            return _unknown(group_id)
        return CLASSIC if has_room else ErrorCode.GROUP_MAX_SIZE_REACHED

    def refused(self, error: ErrorCode) -> JoinResult:
        return JoinResult(error, self.member_id)


class JoinedMember(NamedTuple):
    """A member as its leader is told of it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The generation that formed; `members` for its leader alone."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncRequest(NamedTuple):
    """A member waits for its assignment; the leader brings everybody's."""

    member_id: str
    group_instance_id: str | None
    generation: int
    assignments: tuple[tuple[str, bytes], ...] = ()
    """By member id."""

    protocol_type: str | None = None
    """None: not checked, as `protocol_name`."""

    protocol_name: str | None = None

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode:
        return _unknown(group_id)

    def refused(self, error: ErrorCode) -> SyncResult:
        return SyncResult(error)


class SyncResult(NamedTuple):
    """A member's assignment."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class HeartbeatRequest(NamedTuple):
    """A member lives. Answered with an error code: REBALANCE_IN_PROGRESS asks it to join again."""

    member_id: str
    group_instance_id: str | None
    generation: int

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode:
        return _unknown(group_id)

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class LeavingMember(NamedTuple):
    """Who leaves, or is removed: by member id, by instance id (KIP-345), or by both."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveRequest(NamedTuple):
    """Members leave, all of them in one rebalance. Answered with an error code for each."""

    leaving: tuple[LeavingMember, ...]

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode:
        return _unknown(group_id)

    def refused(self, error: ErrorCode) -> list[ErrorCode]:
        return [error] * len(self.leaving)


class CommitRequest(NamedTuple):
    """A member commits offsets, or somebody does from outside. Answered with an error code."""

    member_id: str
    group_instance_id: str | None
    generation: int
    """NO_GENERATION from outside."""
    offsets: OffsetChanges

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode | str:
        """Make a group for somebody who is no member."""
        if self.generation >= 0:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not self.offsets:
            return NO_ERROR
        return CLASSIC if has_room else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class TxnCommitRequest(NamedTuple):
    """A producer commits offsets in its transaction, for a member or not (KIP-98, KIP-447)."""

    member_id: str
    group_instance_id: str | None
    generation: int
    """NO_GENERATION where the producer does not say for whom: then nobody is fenced."""
    commit: PendingCommit

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode | str:
        """Make a group for somebody who is no member."""
        if self.generation >= 0:
            return ErrorCode.ILLEGAL_GENERATION
        return CLASSIC if has_room else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class DeleteRequest(NamedTuple):
    """The group and its offsets are to go, if nobody is in it. Answered with an error code."""

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class MemberDescription(NamedTuple):
    """A member as administrators see it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    state: MemberState


class GroupDescription(NamedTuple):
    """A group as administrators see it."""

    state: str
    protocol_type: str
    protocol_name: str
    generation: int
    members: tuple[MemberDescription, ...]
    rebalance_timeout_ms: int = 0
    """The longest of its members."""
    pending_ids: tuple[str, ...] = ()
    """Ids that were given to clients that have yet to join with them."""


def _unknown(group_id: str) -> ErrorCode:
    """Return what a member of a group that does not exist is told."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
