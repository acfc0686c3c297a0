"""The requests to a group and their results. Handlers translate them to and from API versions.

Every request has three methods (`machine.GroupRequest`): `without_group` handles that the group
does not exist, `other_kind` that it is of another kind, `refused` returns the result for an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import NO_ERROR, ErrorCode

if TYPE_CHECKING:
    from kgw.groups.states import MemberState
    from kgw.offsets.pending import PendingCommit
    from kgw.offsets.topic_offsets import OffsetChanges

CLASSIC = "classic"
"""The group type of classic groups in ListGroups."""
NO_GENERATION = -1
NO_MEMBER_ID = ""


class MemberProtocol(NamedTuple):
    """A protocol that a member supports, such as an assignor, with its metadata."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """A member, or a client that wants to become one, joins the next generation."""

    member_id: str
    """NO_MEMBER_ID for a client that is not a member yet."""

    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    """In the member's order of preference, the best one first."""

    new_member_id: str
    """The id for a new member. The caller makes it, so that the machine is deterministic."""

    reason: str | None = None
    member_id_required: bool = False
    """Whether a new dynamic member first gets an id and must join again with it (KIP-394)."""

    can_skip_assignment: bool = False
    """Whether the answer has the field `skip_assignment`, for a static leader that returns
    (KIP-814)."""

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode | str:
        if not group_id or self.member_id != NO_MEMBER_ID:
            return _unknown(group_id)
        return CLASSIC if has_room else ErrorCode.GROUP_MAX_SIZE_REACHED

    def other_kind(self) -> ErrorCode:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def refused(self, error: ErrorCode) -> JoinResult:
        return JoinResult(error, self.member_id)


class JoinedMember(NamedTuple):
    """A member in the JoinGroup answer to the leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The generation that has formed; `members` is empty except in the leader's result."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncRequest(NamedTuple):
    """A member waits for its assignment; the leader sends the assignments of all members."""

    member_id: str
    group_instance_id: str | None
    generation: int
    assignments: tuple[tuple[str, bytes], ...] = ()
    """By member id."""

    protocol_type: str | None = None
    """None: not checked. The same applies to `protocol_name`."""

    protocol_name: str | None = None

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode:
        return _unknown(group_id)

    def other_kind(self) -> ErrorCode:
        return ErrorCode.UNKNOWN_MEMBER_ID

    def refused(self, error: ErrorCode) -> SyncResult:
        return SyncResult(error)


class SyncResult(NamedTuple):
    """A member's assignment."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class HeartbeatRequest(NamedTuple):
    """A member extends its session. The result is an error code.

    REBALANCE_IN_PROGRESS makes the client join again.
    """

    member_id: str
    group_instance_id: str | None
    generation: int

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode:
        return _unknown(group_id)

    def other_kind(self) -> ErrorCode:
        return ErrorCode.UNKNOWN_MEMBER_ID

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class LeavingMember(NamedTuple):
    """A member that leaves or is removed, named by member id, instance id (KIP-345) or both."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveRequest(NamedTuple):
    """Members leave, all of them in one rebalance. The result has an error code for each member."""

    leaving: tuple[LeavingMember, ...]

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode:
        return _unknown(group_id)

    def other_kind(self) -> ErrorCode:
        return ErrorCode.UNKNOWN_MEMBER_ID

    def refused(self, error: ErrorCode) -> list[ErrorCode]:
        return [error] * len(self.leaving)


class CommitRequest(NamedTuple):
    """A client commits offsets, as a member or not. The result is an error code."""

    member_id: str
    group_instance_id: str | None
    generation: int
    """NO_GENERATION if the client is no member."""
    offsets: OffsetChanges

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode | str:
        """Create a group if the commit has no generation: the client is no member."""
        if self.generation >= 0:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not self.offsets:
            return NO_ERROR
        return CLASSIC if has_room else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def other_kind(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class TxnCommitRequest(NamedTuple):
    """A producer commits offsets in its transaction (KIP-98). The result is an error code.

    The request may have the consumer's member id and generation (KIP-447).
    """

    member_id: str
    group_instance_id: str | None
    generation: int
    """NO_GENERATION if the request has no member; the commit is then not fenced."""
    commit: PendingCommit

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode | str:
        """Create a group if the commit has no generation: the client is no member."""
        if self.generation >= 0:
            return ErrorCode.ILLEGAL_GENERATION
        return CLASSIC if has_room else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def other_kind(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class DeleteRequest(NamedTuple):
    """Delete the group and its offsets, if it has no members. The result is an error code."""

    def without_group(self, group_id: str, *, has_room: bool) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def other_kind(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class MemberDescription(NamedTuple):
    """A member in DescribeGroups and the admin API."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    state: MemberState


class GroupDescription(NamedTuple):
    """A group in DescribeGroups and the admin API."""

    state: str
    protocol_type: str
    protocol_name: str
    generation: int
    members: tuple[MemberDescription, ...]
    rebalance_timeout_ms: int = 0
    """The longest rebalance timeout of the members."""
    pending_ids: tuple[str, ...] = ()
    """The member ids whose clients have not joined with them yet."""


def _unknown(group_id: str) -> ErrorCode:
    """Return the error for a request with a member id if the group does not exist."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
