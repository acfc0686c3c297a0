"""The members of one group: dynamic, static, and those who only have an id yet."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.groups.requests import MemberDescription

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Member:
    """One member. Times are monotonic seconds."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_s",
        "group_instance_id",
        "has_joined",
        "has_synced",
        "is_new",
        "is_untold",
        "join_waiter",
        "member_id",
        "protocol_names",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "size_bytes",
        "sync_waiter",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.group_instance_id = request.group_instance_id
        self.assignment = b""
        self.join_waiter: object | None = None
        """Whom to answer when the generation has formed."""
        self.sync_waiter: object | None = None
        """Whom to answer when the assignment is there."""
        self.has_joined = False
        """Whether it took part in forming the current generation."""
        self.has_synced = False
        """Whether it has asked for its assignment in the current generation."""
        self.deadline_s = 0.0
        """Dead when nothing was heard until then; see `can_expire`."""
        self.is_new = True
        """Whether it has been heard of once only, and waits for its first generation."""
        self.is_untold = False
        """Whether its answer waits for the group to be stored."""
        self.take(request)

    def __repr__(self) -> str:
        return f"<Member {self.member_id}>"

    def take(self, request: JoinRequest) -> None:
        """Take over what a JoinGroup says of the member."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols: tuple[MemberProtocol, ...] = request.protocols
        self.protocol_names = [name for name, _ in request.protocols]
        self.size_bytes = _size_bytes(request, self.group_instance_id)

    @property
    def is_parked(self) -> bool:
        """Whether a request of its waits here: it cannot send heartbeats meanwhile."""
        return self.join_waiter is not None or self.sync_waiter is not None

    @property
    def can_expire(self) -> bool:
        """Whether its deadline counts: not while a request of its waits, unless it is new."""
        return self.is_new or not (self.is_parked or self.is_untold)

    def describe(self, protocol_name: str | None, *, is_stable: bool) -> MemberDescription:
        """Return what administrators see: metadata and assignment only while they hold."""
        return MemberDescription(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol_name) if is_stable else b"",
            self.assignment if is_stable else b"",
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return what the member says of itself under a protocol; b"" if it does not know it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""


class PendingMember:
    """An id that was given to a client which has yet to join with it (KIP-394)."""

    __slots__ = ("expires_s", "holds_until_s")

    def __init__(self, now_s: float, session_timeout_ms: int) -> None:
        # Whole seconds: however many ids are asked for, they are looked through once a second.
        self.expires_s = float(ceil(now_s + session_timeout_ms / 1000))
        self.holds_until_s = min(self.expires_s, now_s + PENDING_HOLD_S)


class MemberTable:
    """Members by id in the order in which they came, static ones also by instance id.

    Counts how many members know each protocol, so that a vote need not ask everybody.
    """

    __slots__ = ("_by_id", "_by_instance", "_knowing", "leader_id", "pending", "size_bytes")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._knowing: dict[str, int] = {}
        self.size_bytes = 0
        """What the members say of themselves, taken together."""
        self.pending: dict[str, PendingMember] = {}
        self.leader_id = ""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    @property
    def size(self) -> int:
        """What the size limit counts: an id that was given out is a place taken (I7)."""
        return len(self._by_id) + len(self.pending)

    @property
    def held_until_s(self) -> float:
        """Until when a round waits for ids that were given out; long ago if there are none."""
        return max((one.holds_until_s for one in self.pending.values()), default=0.0)

    @property
    def rebalance_timeout_s(self) -> float:
        """How long the slowest member may take to join."""
        return max([one.rebalance_timeout_ms for one in self], default=0) / 1000

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def static_id(self, group_instance_id: str) -> str | None:
        """Return the member id that an instance has now."""
        return self._by_instance.get(group_instance_id)

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
        self.size_bytes += member.size_bytes
        self._count(member.protocol_names, 1)
        if not self.leader_id:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Take a member out. Another one leads if it led."""
        del self._by_id[member.member_id]
        if member.group_instance_id is not None:
            del self._by_instance[member.group_instance_id]
        self.size_bytes -= member.size_bytes
        self._count(member.protocol_names, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._by_id), "")

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member the id of the process that replaces it."""
        old_id = member.member_id
        self._by_id = {
            (member_id if key == old_id else key): one for key, one in self._by_id.items()
        }
        member.member_id = member_id
        assert member.group_instance_id is not None  # noqa: S101 - only static ones are replaced
        self._by_instance[member.group_instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id

    def update(self, member: Member, request: JoinRequest) -> None:
        """Take over what a member says of itself now."""
        known, size_bytes = member.protocol_names, member.size_bytes
        member.take(request)
        self.size_bytes += member.size_bytes - size_bytes
        # As a rule it comes back knowing what it knew.
        if member.protocol_names != known:
            self._count(known, -1)
            self._count(member.protocol_names, 1)

    def size_bytes_with(self, request: JoinRequest) -> int:
        """Return what `size_bytes` will be when a request is taken."""
        own = self._own(request)
        if own is None:
            return self.size_bytes + _size_bytes(request, request.group_instance_id)
        return self.size_bytes - own.size_bytes + _size_bytes(request, own.group_instance_id)

    def can_take(self, request: JoinRequest, protocol_type: str) -> bool:
        """Whether everybody would know a protocol in common with someone who joins.

        A group without members takes any protocol type; `protocol_type` is the group's.
        """
        if not request.protocol_type or not request.protocols:
            return False
        if not self._by_id:
            return True
        if request.protocol_type != protocol_type:
            return False
        own = self._own(request)
        others = len(self._by_id) - (own is not None)
        known_by_own = own.protocol_names if own is not None else ()
        for name, _ in request.protocols:
            if self._knowing.get(name, 0) - (name in known_by_own) == others:
                return True
        return False

    def elect_protocol(self) -> str:
        """Return the protocol that everybody knows and most members like best.

        Each votes for its first one that all know; a tie goes to the one voted for first.
        """
        votes: dict[str, int] = {}
        for member in self._by_id.values():
            for protocol in member.protocols:
                if self._knowing[protocol.name] == len(self._by_id):
                    votes[protocol.name] = votes.get(protocol.name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def _own(self, request: JoinRequest) -> Member | None:
        """Return the member whose place a request takes."""
        own = self._by_id.get(request.member_id)
        if own is None and request.group_instance_id is not None:
            own = self._by_id.get(self._by_instance.get(request.group_instance_id, ""))
        return own

    def _count(self, protocol_names: list[str], change: int) -> None:
        for name in set(protocol_names):
            count = self._knowing.get(name, 0) + change
            if count:
                self._knowing[name] = count
            else:
                del self._knowing[name]


def _size_bytes(request: JoinRequest, group_instance_id: str | None) -> int:
    """Return how much somebody says of itself; names are counted in characters.

    A member that is static stays so, and is stored so, whatever it says when it joins again.
    """
    size_bytes = len(request.client_id) + len(group_instance_id or "")
    for name, metadata in request.protocols:
        size_bytes += len(name) + len(metadata)
    return size_bytes
