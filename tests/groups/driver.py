"""Speaks to one coordinator as the protocol does: join, sync, advance, expect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from kgw.errors import ErrorCode
from kgw.groups.classic import CLASSIC_KIND, ClassicGroup
from kgw.groups.coordinator import GroupCoordinator
from kgw.groups.group import GroupSettings
from kgw.groups.machine import GroupLimits
from kgw.groups.requests import (
    CLASSIC,
    NO_MEMBER_ID,
    CommitRequest,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeavingMember,
    MemberProtocol,
    SyncRequest,
    SyncResult,
    TxnCommitRequest,
)
from kgw.metrics import Metrics
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.pending import PendingCommit
from kgw.protocol.blobs import ConsumerProtocolSubscription, encode_blob
from kgw.testing.clock import ManualClock
from kgw.types import TopicId
from tests.groups.life import FlakyStore, OneLife, at_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.coordinator.entry import Reply
    from kgw.coordinator.machine import Event
    from kgw.groups.machine import Beginning, Effect
    from kgw.offsets.topic_offsets import OffsetChanges

ResultT = TypeVar("ResultT")

TOPIC = TopicId(bytes(range(16)))


def subscription(*topics: str) -> bytes:
    """Return what a consumer of these topics says of itself."""
    return encode_blob(ConsumerProtocolSubscription(topics=list(topics)), 1)


class WatchedGroup(ClassicGroup):
    """A machine that notes what it is told."""

    def __init__(self, beginning: Beginning, events: list[Event]) -> None:
        super().__init__(beginning)
        self._events = events

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        self._events.append(event)
        return super().handle(event, now_s)


class GroupDriver:
    """One coordinator with a clock that stands still; `group` is the group that is meant."""

    def __init__(
        self, *, max_size: int = 1000, delay_s: float = 0.0, store: FlakyStore | None = None
    ) -> None:
        self.clock = ManualClock()
        self.store = FlakyStore() if store is None else store
        self.metrics = Metrics()
        self.group = "group"
        self.bugs: list[BaseException] = []
        self.settings = GroupSettings(
            offsets_retention_s=3600.0, limits=GroupLimits(max_size, delay_s)
        )
        self._numbers = 0
        self._machines: dict[str, ClassicGroup] = {}
        self.events: list[Event] = []
        """What machines were told."""

    async def start(self, topic_exists: Callable[[TopicId], bool] = lambda _: True) -> GroupDriver:
        """Begin, or begin again over the same store."""
        self._life = OneLife(self.clock)
        self.groups = GroupCoordinator(
            self.store,
            self._life,
            self.settings,
            self.metrics,
            self.bugs.append,
            {CLASSIC: CLASSIC_KIND._replace(begin=self._begin)},
        )
        await self.groups.open(topic_exists)
        return self

    async def crash(self) -> None:
        """Forget everything that is not stored, and start."""
        self._life.end()
        await self.start()

    def _begin(self, beginning: Beginning) -> ClassicGroup:
        machine = WatchedGroup(beginning, self.events)
        self._machines[beginning.group_id] = machine
        return machine

    @property
    def machine(self) -> ClassicGroup:
        """The machine of the group that is meant, which there is."""
        assert self.groups.describe(self.group) is not None
        return self._machines[self.group]

    @property
    def state(self) -> str:
        found = self.groups.describe(self.group)
        return "Dead" if found is None else found.state

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # --- requests --------------------------------------------------------------------------------

    def ask_to_join(
        self,
        member_id: str = NO_MEMBER_ID,
        *,
        instance: str | None = None,
        client_id: str = "client",
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_s: float = 10.0,
        rebalance_s: float = 30.0,
        id_first: bool = False,
        can_skip: bool = False,
        reason: str | None = None,
    ) -> Reply[JoinResult]:
        """Send a JoinGroup; the answer may come later."""
        self._numbers += 1
        known = {"range": subscription("orders")} if protocols is None else protocols
        return self.groups.ask(
            self.group,
            JoinRequest(
                member_id,
                instance,
                client_id,
                "/192.0.2.1",
                round(session_s * 1000),
                round(rebalance_s * 1000),
                protocol_type,
                tuple(MemberProtocol(name, metadata) for name, metadata in known.items()),
                f"{instance or client_id}-{self._numbers}",
                reason,
                id_first,
                can_skip,
            ),
        )

    async def join(self, member_id: str = NO_MEMBER_ID, **options: Any) -> JoinResult:
        """Send a JoinGroup that is to be answered at once."""
        return await answer(self.ask_to_join(member_id, **options))

    def ask_to_sync(
        self,
        joined: JoinResult,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        generation: int | None = None,
    ) -> Reply[SyncResult]:
        """Send a SyncGroup; the answer may come later."""
        return self.groups.ask(
            self.group,
            SyncRequest(
                joined.member_id,
                instance,
                joined.generation if generation is None else generation,
                tuple((assignments or {}).items()),
            ),
        )

    async def sync(
        self, joined: JoinResult, assignments: dict[str, bytes] | None = None, **options: Any
    ) -> SyncResult:
        """Send a SyncGroup that is to be answered at once."""
        return await answer(self.ask_to_sync(joined, assignments, **options))

    def heartbeat(self, joined: JoinResult, instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(joined.member_id, instance, joined.generation)
        return at_once(self.groups.ask(self.group, request))

    def ask_to_leave(self, *leaving: LeavingMember) -> Reply[list[ErrorCode]]:
        """Send a LeaveGroup; the answer may come later."""
        return self.groups.ask(self.group, LeaveRequest(leaving))

    async def leave(self, *leaving: LeavingMember) -> list[ErrorCode]:
        return await answer(self.ask_to_leave(*leaving))

    def ask_to_commit(
        self,
        offset: int,
        joined: JoinResult | None = None,
        *,
        instance: str | None = None,
        partition: int = 0,
        topic_id: TopicId = TOPIC,
    ) -> Reply[ErrorCode]:
        """Send an OffsetCommit, of a member or from outside."""
        committed, member_id, generation = self._commit_of(offset, joined)
        offsets = {topic_id: {partition: committed}}
        return self.ask_to_commit_all(offsets, member_id, instance, generation)

    def _commit_of(
        self, offset: int, joined: JoinResult | None
    ) -> tuple[CommittedOffset, str, int]:
        """Return an offset that is committed now, and the member and generation that do so."""
        committed = CommittedOffset(
            offset, -1, "", self.clock.wall_ms(), NO_EXPIRY_MS, self.clock.monotonic_s()
        )
        if joined is None:
            return committed, NO_MEMBER_ID, -1
        return committed, joined.member_id, joined.generation

    def ask_to_commit_all(
        self,
        offsets: OffsetChanges,
        member_id: str = NO_MEMBER_ID,
        instance: str | None = None,
        generation: int = -1,
    ) -> Reply[ErrorCode]:
        """Send an OffsetCommit of any form."""
        request = CommitRequest(member_id, instance, generation, offsets)
        return self.groups.commit(self.group, request)

    async def commit(
        self, offset: int, joined: JoinResult | None = None, **options: Any
    ) -> ErrorCode:
        return await answer(self.ask_to_commit(offset, joined, **options))

    def ask_to_commit_in_transaction(
        self,
        offset: int,
        joined: JoinResult | None = None,
        *,
        producer: int = 7,
        epoch: int = 0,
        instance: str | None = None,
        partition: int = 0,
        topic_id: TopicId = TOPIC,
    ) -> Reply[ErrorCode]:
        """Send a TxnOffsetCommit, for a member or for nobody."""
        committed, member_id, generation = self._commit_of(offset, joined)
        commit = PendingCommit(producer, epoch, {topic_id: {partition: committed}})
        request = TxnCommitRequest(member_id, instance, generation, commit)
        return self.groups.commit_in_transaction(self.group, request)

    async def commit_in_transaction(
        self, offset: int, joined: JoinResult | None = None, **options: Any
    ) -> ErrorCode:
        return await answer(self.ask_to_commit_in_transaction(offset, joined, **options))

    def ask_to_end(
        self, *, is_commit: bool = True, producer: int = 7, epoch: int = 0
    ) -> Reply[ErrorCode]:
        """Tell the group that a transaction has ended; the answer may come later."""
        return self.groups.end_transaction(self.group, producer, epoch, is_commit=is_commit)

    async def end(self, **options: Any) -> ErrorCode:
        return await answer(self.ask_to_end(**options))

    def unstable(self, topic_id: TopicId = TOPIC) -> set[int]:
        """Return the partitions for which something is pending."""
        pending = self.groups.unstable_offsets(self.group)
        return set() if pending is None else set(pending.partitions(topic_id))

    def committed(self, partition: int = 0, topic_id: TopicId = TOPIC) -> int | None:
        table = self.groups.offsets(self.group)
        found = None if table is None else table.get(topic_id, partition)
        return None if found is None else found.offset

    # --- whole stories ---------------------------------------------------------------------------

    async def stable(self, count: int, **options: Any) -> list[JoinResult]:
        """Bring a group of so many members to Stable; the first one leads."""
        joined: list[JoinResult] = []
        for _ in range(count):
            newcomer = self.ask_to_join(**options)
            asked = [self.ask_to_join(one.member_id, **options) for one in joined]
            joined = [await answer(one) for one in (*asked, newcomer)]
        parts = {one.member_id: f"part of {one.member_id}".encode() for one in joined}
        for one in joined:
            # The leader is the first: it brings what the others ask for.
            synced = await self.sync(one, parts if one.members else None)
            assert ErrorCode.NONE is synced.error
        assert "Stable" == self.state
        return joined


async def turn() -> None:
    """Let what has been submitted be stored and answered."""
    for _ in range(5):
        await asyncio.sleep(0)


async def answer(future: Reply[ResultT]) -> ResultT:
    """Return an answer that must be there within a few turns of the loop."""
    await turn()
    assert future.is_done, "no answer"
    return future.result
