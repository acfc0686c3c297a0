"""What groups are asked and what they answer, free of protocol versions: handlers translate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kgw.errors import ErrorCode

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

    def refused(self, error: ErrorCode) -> JoinResult:
        return JoinResult(error, self.member_id)


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


class SyncResult(NamedTuple):
    """A member's assignment."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None

    def refused(self, error: ErrorCode) -> SyncResult:
        return SyncResult(error)


class LeavingMember(NamedTuple):
    """Who leaves, or is removed: by member id, by instance id (KIP-345), or by both."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class MemberDescription(NamedTuple):
    """A member as administrators see it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group as administrators see it."""

    state: str
    protocol_type: str
    protocol_name: str
    generation: int
    leader_id: str
    members: tuple[MemberDescription, ...]
