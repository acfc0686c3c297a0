"""Makes a subscriber a member of a group of type `consumer`, beside Kafka's own consumers.

It calls the coordinator in this process like a Kafka consumer over the network: it joins, assigns
partitions to all members if it is the leader, and sends heartbeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.errors import NO_ERROR, DecodeError, ErrorCode, KafkaError
from kgw.groups.assignors import ASSIGNORS, Subscription
from kgw.groups.group import new_member_id
from kgw.groups.requests import (
    NO_GENERATION,
    NO_MEMBER_ID,
    CommitRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    MemberProtocol,
    SyncRequest,
)
from kgw.groups.subscriptions import CONSUMER
from kgw.protocol.blobs import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_blob,
    decode_subscribed_topics,
    encode_blob,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.gateway import Gateway
    from kgw.groups.coordinator import GroupCoordinator
    from kgw.groups.requests import JoinedMember, JoinResult
    from kgw.offsets.topic_offsets import OffsetChanges

_ASSIGNORS: Final = ("range", "roundrobin")
"""The assignors that this member offers, best first. Other assignors need the partitions that a
member owned before; cooperative ones would make it revoke some first."""
SESSION_MS: Final = 10_000
_REBALANCE_MS: Final = 60_000
_RETRY_S: Final = 0.1
_RETRIES: Final = 100

_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
_NO_MEMBER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The group has removed this member: others may have its partitions."""


class Membership:
    """One member of a group: joins, sends heartbeats, commits and leaves."""

    def __init__(
        self, gateway: Gateway, group_id: str, instance_id: str | None, topic: str, client_host: str
    ) -> None:
        self._gateway = gateway
        self._group_id = group_id
        self._instance_id = instance_id
        self._topic = topic
        self._client_host = client_host
        self._member_id = NO_MEMBER_ID
        self._new_member_id = ""
        self._generation = NO_GENERATION
        self._counts: dict[str, int] | None = None
        """The partition counts of the topics that this member has assigned as the leader; else
        None."""
        self.has_lost = False
        """Whether the group has removed this member since its last assignment, so that others may
        have had its partitions."""

    async def join(self) -> list[int]:
        """Join the next generation; return the partitions of the topic that this member gets.

        Raises KafkaError with the group's error, if a retry would not help.
        """
        limits = self._gateway.config
        session_ms = min(
            max(SESSION_MS, limits.group_min_session_timeout_ms),
            limits.group_max_session_timeout_ms,
        )
        metadata = encode_blob(ConsumerProtocolSubscription(topics=[self._topic]), 0)
        protocols = tuple(MemberProtocol(name, metadata) for name in _ASSIGNORS)
        for _ in range(_RETRIES):
            if not self._new_member_id:
                self._new_member_id = new_member_id(self._instance_id or "smq-agent")
            joined = await self._coordinator().ask(
                self._group_id,
                JoinRequest(
                    self._member_id,
                    self._instance_id,
                    "smq-agent",
                    f"/{self._client_host}",
                    session_ms,
                    max(session_ms, _REBALANCE_MS),
                    CONSUMER,
                    protocols,
                    self._new_member_id,
                ),
            )
            if joined.error is not NO_ERROR:
                await self._after(joined.error)
                continue
            self._member_id, self._generation = joined.member_id, joined.generation
            synced = await self._coordinator().ask(
                self._group_id,
                SyncRequest(
                    self._member_id, self._instance_id, self._generation, self._assignments(joined)
                ),
            )
            if synced.error is NO_ERROR:
                return _partitions(synced.assignment, self._topic)
            await self._after(synced.error)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group cannot be joined now")

    def must_rejoin(self) -> bool:
        """Return whether this member leads and its topics have other partition counts now."""
        return self._counts is not None and self._counts != self._count(self._counts)

    async def heartbeat(self) -> bool:
        """Send a heartbeat; return whether the member must join again. Raises KafkaError."""
        code = await self._coordinator().ask(
            self._group_id,
            HeartbeatRequest(self._member_id, self._instance_id, self._generation),
        )
        if code is NO_ERROR:
            return self.must_rejoin()
        if code not in _AGAIN and code not in _NO_MEMBER:
            raise self._refused(code)
        if code in _NO_MEMBER:
            self._forget()
        return code not in {
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        }

    async def commit(self, offsets: OffsetChanges) -> bool:
        """Commit offsets as this member; return whether they are durable. Raises KafkaError."""
        if not self._member_id:
            return False  # a commit from outside would be accepted by an empty group
        code = await self._coordinator().commit(
            self._group_id,
            CommitRequest(self._member_id, self._instance_id, self._generation, offsets),
        )
        if code is NO_ERROR:
            return True
        if code in _AGAIN or code in _NO_MEMBER:
            return False  # the next heartbeat reports the error
        raise self._refused(code)

    async def leave(self) -> None:
        """Leave at once, so that others get the partitions; works during a join, too."""
        member_id = self._member_id or self._new_member_id
        if member_id:
            leaving = LeavingMember(member_id, self._instance_id, "the stream has ended")
            await self._coordinator().ask(self._group_id, LeaveRequest((leaving,)))
            self._forget()

    def _coordinator(self) -> GroupCoordinator:
        coordinator = self._gateway.groups.coordinator(self._group_id)
        if coordinator is None:
            raise self._refused(ErrorCode.NOT_COORDINATOR)
        return coordinator

    async def _after(self, code: ErrorCode) -> None:
        """Prepare for a retry after an error code. Raises KafkaError if a retry would not help."""
        if code in _NO_MEMBER:
            self._forget()
        elif code in _AGAIN:
            clock = self._gateway.clock
            if code is not ErrorCode.REBALANCE_IN_PROGRESS:
                await clock.sleep_until(clock.monotonic_s() + _RETRY_S)
        else:
            raise self._refused(code)

    def _forget(self) -> None:
        self._member_id, self._new_member_id = NO_MEMBER_ID, ""
        self._generation = NO_GENERATION
        self._counts = None
        self.has_lost = True

    def _refused(self, code: ErrorCode) -> KafkaError:
        return KafkaError(code, f"group {self._group_id!r} refuses this subscriber")

    def _assignments(self, joined: JoinResult) -> tuple[tuple[str, bytes], ...]:
        """Return the assignments of all members, if this member is the leader."""
        self._counts = None
        if joined.leader_id != joined.member_id or not joined.members:
            return ()
        members = {one.member_id: Subscription(_topics(one)) for one in joined.members}
        topics = frozenset[str]().union(*(one.topics for one in members.values()))
        self._counts = self._count(topics)
        shared = ASSIGNORS[joined.protocol_name or _ASSIGNORS[0]](members, self._counts)
        return tuple((member_id, _encoded(places)) for member_id, places in shared.items())

    def _count(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition count of each topic; 0 for a topic that does not exist."""
        found = {name: self._gateway.catalog.get(name) for name in topics}
        return {name: 0 if one is None else one.partition_count for name, one in found.items()}


def _topics(member: JoinedMember) -> frozenset[str]:
    try:
        return frozenset(decode_subscribed_topics(member.metadata))
    except DecodeError:
        return frozenset()  # this member gets no partitions, as its subscription cannot be read


def _encoded(places: Iterable[tuple[str, int]]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    return encode_blob(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolTopicPartition(topic=topic, partitions=indexes)
                for topic, indexes in by_topic.items()
            ]
        ),
        0,
    )


def _partitions(assignment: bytes, topic: str) -> list[int]:
    """Return a topic's partitions in an assignment; none if the bytes are not an assignment."""
    if not assignment:
        return []
    try:
        assigned, _ = decode_blob(ConsumerProtocolAssignment, assignment)
    except DecodeError:
        return []
    return sorted(
        index
        for one in assigned.assigned_partitions
        if one.topic == topic
        for index in one.partitions
    )
