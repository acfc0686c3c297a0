"""The members of one group: dynamic, static, and those who only have an id yet."""

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
"""How long a round waits for someone who was given an id and has not joined with it.

Clients join again within milliseconds. The id itself lives as long as a session, as in Kafka, but a
client that died in between must not hold up the others for 45 seconds.
"""


NEW_MEMBER_JOIN_S = 300.0
"""How long someone new may wait for its first generation, as in Kafka.

Who joins without an id (before v4) and gives up in a long round joins as another one; the ones
before would otherwise pile up for as long as the round lasts.
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
        """One that is static stays so, whatever it says when it joins again."""
        self.said = said
        """What it said of itself when it joined last."""
        self.assignment = assignment
        self.has_joined = has_joined
        """Whether it took part in forming the current generation."""
        self.join_waiter: object | None = None
        """Whom to answer when the generation has formed."""
        self.sync_waiter: object | None = None
        """Whom to answer when the assignment is there."""
        self.has_synced = has_synced
        """Whether it has asked for its assignment in the current generation."""
        self.deadline_s = 0.0
        """Dead when nothing was heard until then; see `can_expire`."""
        self.is_new = is_new
        """Whether it has been heard of once only, and waits for its first generation."""
        self.is_untold = False
        """Whether its answer waits for the group to be stored."""

    @property
    def is_parked(self) -> bool:
        """Whether a request of its waits here: it cannot send heartbeats meanwhile."""
        return self.join_waiter is not None or self.sync_waiter is not None

    @property
    def can_expire(self) -> bool:
        """Whether its deadline counts: not while a request of its waits, unless it is new."""
        return self.is_new or not (self.is_parked or self.is_untold)

    def state_in(self, group: GroupState) -> MemberState:
        """Return how far it is in a group in this state."""
        if self.join_waiter is not None:
            return MemberState.JOINING
        if group is GroupState.PREPARING_REBALANCE or not self.has_joined:
            return MemberState.LEAVING
        is_done = group is GroupState.STABLE and self.has_synced
        return MemberState.STABLE if is_done else MemberState.JOINING

    def describe(self, protocol_name: str | None, group: GroupState) -> MemberDescription:
        """Return what administrators see: metadata and assignment only while they hold."""
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
        """Return what the member says of itself under a protocol; b"" if it does not know it."""
        for name, metadata in self.said.protocols:
            if name == protocol_name:
                return metadata
        return b""


class PendingMember(NamedTuple):
    """An id that was given to a client which has yet to join with it (KIP-394)."""

    expires_s: float
    holds_until_s: float

    @classmethod
    def begin(cls, now_s: float, session_timeout_ms: int) -> PendingMember:
        """Return one that was given its id now."""
        # Whole seconds: however many ids are asked for, they are looked through once a second.
        expires_s = float(ceil(now_s + session_timeout_ms / 1000))
        return cls(expires_s, min(expires_s, now_s + PENDING_HOLD_S))


class MemberTable:
    """Members by id in the order in which they came, static ones also by instance id.

    Counts how many members know each protocol, so that a vote need not ask everybody.
    """

    __slots__ = ("_by_id", "_by_instance", "_knowing", "all", "leader_id", "pending", "size_bytes")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._knowing: dict[str, int] = {}
        self.all = self._by_id.values()
        """Every member: a view, which says at any time who there is."""
        self.size_bytes = 0
        """What the members say of themselves, taken together."""
        self.pending: dict[str, PendingMember] = {}
        self.leader_id = ""

    @property
    def size(self) -> int:
        """What the size limit counts: an id that was given out is a place taken (I7)."""
        return len(self.all) + len(self.pending)

    @property
    def held_until_s(self) -> float:
        """Until when a round waits for ids that were given out; long ago if there are none."""
        return max(map(_HOLDS_UNTIL_S, self.pending.values()), default=0.0)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join."""
        return max(map(_REBALANCE_TIMEOUT_MS, self.all), default=0)

    @property
    def rebalance_timeout_s(self) -> float:
        """The same in seconds."""
        return self.rebalance_timeout_ms / 1000

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def static(self, group_instance_id: str | None) -> Member | None:
        """Return the member that an instance is now."""
        if group_instance_id is None:
            return None
        return self._by_id.get(self._by_instance.get(group_instance_id, ""))

    def find(self, member_id: str, group_instance_id: str | None) -> Member | ErrorCode:
        """Return the member that a request speaks for, or why there is none.

        FENCED_INSTANCE_ID when another process has taken the instance over (KIP-345).
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
        """Take a member out. Another one leads if it led."""
        del self._by_id[member.member_id]
        if member.group_instance_id is not None:
            del self._by_instance[member.group_instance_id]
        self.size_bytes -= _size_bytes(member.said, member)
        self._count(member.said.protocols, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._by_id), "")

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member the id of the process that replaces it; it keeps its rank."""
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
        """Take over what a member says of itself now."""
        before = member.said
        # As a rule it comes back saying what it said.
        if (before.protocols, before.client_id) != (request.protocols, request.client_id):
            self.size_bytes = self.size_bytes_with(request, member)
            self._count(before.protocols, -1)
            self._count(request.protocols, 1)
        # A reason may be long, and is of interest once.
        member.said = request if request.reason is None else request._replace(reason=None)

    def size_bytes_with(self, request: JoinRequest, own: Member | None) -> int:
        """Return what `size_bytes` will be when a request is taken, as that of a member or new."""
        before = 0 if own is None else _size_bytes(own.said, own)
        return self.size_bytes - before + _size_bytes(request, own)

    def listed(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """Return the members as their leader is told of them."""
        return tuple(
            [
                JoinedMember(one.member_id, one.group_instance_id, one.metadata(protocol_name))
                for one in self.all
            ]
        )

    def rows(self) -> tuple[MemberRow, ...]:
        """Return what is stored of the members."""
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
        """Whether everybody would know a protocol in common with someone who joins.

        `own` is the member whose place it takes. A group without members takes any protocol type;
        `protocol_type` is the group's.
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
        """Return the protocol that everybody knows and most members like best.

        Each votes for its first one that all know; a tie goes to the one voted for first.
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
    """Return how much somebody says of itself; names are counted in characters.

    A member that is static is stored so, whatever it says when it joins again.
    """
    instance = said.group_instance_id if member is None else member.group_instance_id
    size_bytes = len(said.client_id) + len(instance or "")
    for name, metadata in said.protocols:
        size_bytes += len(name) + len(metadata)
    return size_bytes
