"""The members of one group: dynamic and static members, and pending ones, which have only an id."""

from __future__ import annotations

from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode
from kgw.groups.requests import JoinedMember, MemberDescription
from kgw.groups.rows import MemberRow
from kgw.groups.states import GroupState, MemberState

if TYPE_CHECKING:
    from kgw.groups.requests import JoinRequest, MemberProtocol

PENDING_HOLD_S = 3.0
"""How long a rebalance waits for a client that has got a member id but has not joined with it.

Clients join again within milliseconds. The member id is valid for the session timeout, as in Kafka,
but a client that has crashed must not delay the other members for 45 seconds.
"""


NEW_MEMBER_JOIN_S = 300.0
"""How long a new member may wait for its first generation, as in Kafka.

A client that joins without a member id (before v4) and gives up during a long rebalance joins again
as another new member. Without this limit its former members would stay until the rebalance ends.
"""

_REBALANCE_TIMEOUT_MS = attrgetter("said.rebalance_timeout_ms")
_HOLDS_UNTIL_S = attrgetter("holds_until_s")


class Member:
    """One member. Times are monotonic seconds."""

    __slots__ = (
        "assignment",
        "deadline_s",
        "group_instance_id",
        "has_joined",
        "has_synced",
        "is_new",
        "is_untold",
        "join_waiter",
        "member_id",
        "said",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        said: JoinRequest,
        assignment: bytes = b"",
        *,
        has_joined: bool = False,
        has_synced: bool = False,
        is_new: bool = True,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        """A static member keeps its instance id, even if its next JoinGroup has none."""
        self.said = said
        """The last JoinGroup of the member."""
        self.assignment = assignment
        self.has_joined = has_joined
        """Whether the member sent a JoinGroup for the current generation."""
        self.join_waiter: object | None = None
        """Gets the JoinGroup answer when the generation has formed."""
        self.sync_waiter: object | None = None
        """Gets the SyncGroup answer when the leader has sent the assignments."""
        self.has_synced = has_synced
        """Whether the member has sent SyncGroup in the current generation."""
        self.deadline_s = 0.0
        """The monotonic time at which the member expires without a request; see `can_expire`."""
        self.is_new = is_new
        """Whether the member has sent only one JoinGroup and waits for its first generation."""
        self.is_untold = False
        """Whether an answer to the member is delayed until the group is stored."""

    @property
    def is_parked(self) -> bool:
        """Whether a request of the member waits. Meanwhile it sends no heartbeats."""
        return self.join_waiter is not None or self.sync_waiter is not None

    @property
    def can_expire(self) -> bool:
        """Whether the deadline applies.

        While a request of the member waits, it applies to new members only.

        A request also waits while its answer is being stored.
        """
        return self.is_new or not (self.is_parked or self.is_untold)

    def state_in(self, group: GroupState) -> MemberState:
        """Return the state of the member in a group that is in state `group`."""
        if self.join_waiter is not None:
            return MemberState.JOINING
        if group is GroupState.PREPARING_REBALANCE or not self.has_joined:
            return MemberState.LEAVING
        is_done = group is GroupState.STABLE and self.has_synced
        return MemberState.STABLE if is_done else MemberState.JOINING

    def describe(self, protocol_name: str | None, group: GroupState) -> MemberDescription:
        """Return the member for DescribeGroups: metadata and assignment only in state Stable."""
        is_stable = group is GroupState.STABLE
        return MemberDescription(
            self.member_id,
            self.group_instance_id,
            self.said.client_id,
            self.said.client_host,
            self.metadata(protocol_name) if is_stable else b"",
            self.assignment if is_stable else b"",
            self.state_in(group),
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; b"" if the member does not support it."""
        for name, metadata in self.said.protocols:
            if name == protocol_name:
                return metadata
        return b""


class PendingMember(NamedTuple):
    """A member id whose client has not joined with it yet (KIP-394)."""

    expires_s: float
    """The monotonic time at which the id becomes invalid."""
    holds_until_s: float
    """The monotonic time until which a rebalance waits for the client."""

    @classmethod
    def begin(cls, now_s: float, session_timeout_ms: int) -> PendingMember:
        """Return a new pending member."""
        # Rounded up to whole seconds, so that the machine looks for expired ids at most once a
        # second, however many clients ask for ids.
        expires_s = float(ceil(now_s + session_timeout_ms / 1000))
        return cls(expires_s, min(expires_s, now_s + PENDING_HOLD_S))


class MemberTable:
    """The members by id, in the order in which they joined; static members also by instance id.

    Counts the members that support each protocol, so that a vote need not look at all members.
    """

    __slots__ = ("_by_id", "_by_instance", "_knowing", "all", "leader_id", "pending", "size_bytes")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._knowing: dict[str, int] = {}
        self.all = self._by_id.values()
        """A dictionary view of all current members."""
        self.size_bytes = 0
        """The size of the metadata of all members, as `_size_bytes` counts it."""
        self.pending: dict[str, PendingMember] = {}
        self.leader_id = ""

    @property
    def size(self) -> int:
        """The number of members and pending members, which the size limit restricts (I7)."""
        return len(self.all) + len(self.pending)

    @property
    def held_until_s(self) -> float:
        """The monotonic time until which a rebalance waits for pending members; 0 without any."""
        return max(map(_HOLDS_UNTIL_S, self.pending.values()), default=0.0)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max(map(_REBALANCE_TIMEOUT_MS, self.all), default=0)

    @property
    def rebalance_timeout_s(self) -> float:
        """`rebalance_timeout_ms` in seconds."""
        return self.rebalance_timeout_ms / 1000

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def static(self, group_instance_id: str | None) -> Member | None:
        """Return the current member of a static instance; None if there is none."""
        if group_instance_id is None:
            return None
        return self._by_id.get(self._by_instance.get(group_instance_id, ""))

    def find(self, member_id: str, group_instance_id: str | None) -> Member | ErrorCode:
        """Return the member with the ids in a request, or an error.

        FENCED_INSTANCE_ID if the instance id now belongs to another member id, as a newer process
        has joined with it (KIP-345); otherwise UNKNOWN_MEMBER_ID.
        """
        if group_instance_id is not None:
            current = self._by_instance.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return self._by_id.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        self._by_id[member.member_id] = member
        if member.group_instance_id is not None:
            self._by_instance[member.group_instance_id] = member.member_id
        self.size_bytes += _size_bytes(member.said, member)
        self._count(member.said.protocols, 1)
        if not self.leader_id:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member. If it was the leader, the oldest other member becomes the leader."""
        del self._by_id[member.member_id]
        if member.group_instance_id is not None:
            del self._by_instance[member.group_instance_id]
        self.size_bytes -= _size_bytes(member.said, member)
        self._count(member.said.protocols, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._by_id), "")

    def rename(self, member: Member, member_id: str) -> None:
        """Change the member id of a static member, which keeps its position in `all`."""
        old_id = member.member_id
        member.member_id = member_id
        renamed = {one.member_id: one for one in self.all}
        self._by_id.clear()
        self._by_id.update(renamed)
        assert member.group_instance_id is not None  # noqa: S101 - only static ones are replaced
        self._by_instance[member.group_instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id

    def update(self, member: Member, request: JoinRequest) -> None:
        """Replace the metadata of a member with that of its new JoinGroup."""
        before = member.said
        # Most members join again with the same metadata, whose size and protocols are counted
        # already.
        if (before.protocols, before.client_id) != (request.protocols, request.client_id):
            self.size_bytes = self.size_bytes_with(request, member)
            self._count(before.protocols, -1)
            self._count(request.protocols, 1)
        # The reason is not kept: it is in the trace already, and may be long.
        member.said = request if request.reason is None else request._replace(reason=None)

    def size_bytes_with(self, request: JoinRequest, own: Member | None) -> int:
        """Return `size_bytes` as it would be after a JoinGroup.

        `own` is the member that the request belongs to; None if it adds a new member.
        """
        before = 0 if own is None else _size_bytes(own.said, own)
        return self.size_bytes - before + _size_bytes(request, own)

    def listed(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """Return the members for the leader's JoinGroup answer."""
        return tuple(
            [
                JoinedMember(one.member_id, one.group_instance_id, one.metadata(protocol_name))
                for one in self.all
            ]
        )

    def rows(self) -> tuple[MemberRow, ...]:
        """Return the members in their stored form."""
        return tuple(
            [
                MemberRow(
                    one.member_id,
                    one.group_instance_id,
                    one.said,
                    one.assignment,
                    one.has_joined,
                )
                for one in self.all
            ]
        )

    def can_take(self, request: JoinRequest, own: Member | None, protocol_type: str) -> bool:
        """Return whether a JoinGroup has a protocol that all other members support.

        `own` is the member that the request belongs to; None if it adds a new member.
        `protocol_type` is the group's. A group without members accepts any protocol type.
        """
        if not request.protocol_type or not request.protocols:
            return False
        if not self.all:
            return True
        if request.protocol_type != protocol_type:
            return False
        others = len(self.all) - (own is not None)
        known_by_own = () if own is None else dict(own.said.protocols)
        for name, _ in request.protocols:
            if self._knowing.get(name, 0) - (name in known_by_own) == others:
                return True
        return False

    def elect_protocol(self) -> str:
        """Return the protocol with the most votes.

        Each member votes for the first of its protocols that all members support. In a tie the
        protocol with the earlier first vote wins.
        """
        votes: dict[str, int] = {}
        for member in self.all:
            for name, _ in member.said.protocols:
                if self._knowing[name] == len(self.all):
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def _count(self, protocols: tuple[MemberProtocol, ...], change: int) -> None:
        for name in dict(protocols):
            count = self._knowing.get(name, 0) + change
            if count:
                self._knowing[name] = count
            else:
                del self._knowing[name]


def _size_bytes(said: JoinRequest, member: Member | None) -> int:
    """Return the size of a member's metadata in bytes; names are counted in characters.

    The instance id is taken from the member if it exists: a static member keeps its instance id
    even if its next JoinGroup has none.
    """
    instance = said.group_instance_id if member is None else member.group_instance_id
    size_bytes = len(said.client_id) + len(instance or "")
    for name, metadata in said.protocols:
        size_bytes += len(name) + len(metadata)
    return size_bytes
