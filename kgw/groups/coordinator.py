"""GroupCoordinator: what clients and administrators ask of groups, and what time asks of them.

It alone waits, writes, tells time; the machines of the groups decide. See `table` for their steps.
"""

from __future__ import annotations

import asyncio
from functools import partial
from operator import gt
from typing import TYPE_CHECKING, Any, TypeVar

from kgw.completion import Completion
from kgw.errors import NO_ERROR, ErrorCode
from kgw.groups.group import CLASSIC, Group, ListedGroup
from kgw.groups.requests import NO_MEMBER_ID, JoinResult, SyncResult
from kgw.groups.states import GroupState
from kgw.groups.subscriptions import CONSUMER, subscribed_topics
from kgw.groups.table import GroupTable
from kgw.groups.writes import BlocksWrite, OffsetsWrite, TopicsDrop, Write
from kgw.turns import Share, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kgw.clock import Clock, Timer
    from kgw.groups.group import GroupSettings
    from kgw.groups.requests import (
        GroupDescription,
        JoinRequest,
        LeavingMember,
        SyncRequest,
    )
    from kgw.metrics import Metrics
    from kgw.offsets.block import OffsetBlock
    from kgw.offsets.committed import OffsetChanges, Place
    from kgw.offsets.table import OffsetTable
    from kgw.state.base import StateStore
    from kgw.turns import Turns
    from kgw.types import TopicId

# Groups that are asked whether they have offsets of a topic, and told to drop them: 2 ms.
_FORGOTTEN_PER_TURN = 500

# Groups whose offsets are looked at for their age: 2 ms. As much takes a look at so many offsets.
_SWEPT_PER_TURN = 400
_OFFSETS_PER_GROUP = 16

ResultT = TypeVar("ResultT")


class GroupCoordinator(GroupTable):
    """The groups that this node coordinates, of every kind side by side in one table.

    Called in the event loop's thread only.
    """

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        settings: GroupSettings,
        metrics: Metrics,
        report_bug: Callable[[BaseException], None],
    ) -> None:
        super().__init__(state, clock, settings, metrics, report_bug)
        self._sweep_timer: Timer | None = None
        self._gone_topics: set[TopicId] = set()
        self._forgetting: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self.when_committed_back: list[Callable[[str, Place, int, int], None]] = []
        """Called with group, place, offset and the one before when a member commits less than
        that. Who resets offsets from outside does not count."""

    # --- start and stop --------------------------------------------------------------------------

    async def open(
        self,
        topic_exists: Callable[[TopicId], bool],
        is_ours: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Load the groups that this node coordinates: those of which `is_ours` says so.

        Offsets of topics that are gone are dropped. Raises StorageError.
        """
        # Not at the top: where nothing is stored, nobody needs it.
        from kgw.groups.loading import GroupLoader

        loader = GroupLoader(self._state, self._clock, self._groups, self._create)
        gone_topics = await loader.load(topic_exists)
        for group in list(self._groups.values()):
            if not is_ours(group.group_id):
                self._remove(group)
        for topic_id in gone_topics:
            self.forget_topic(topic_id)
        self._arm_sweep()

    def open_empty(self) -> None:
        """Begin where nothing of any group is stored."""
        self._arm_sweep()

    def release(self) -> None:
        """Answer everybody who waits: this process is about to stop. Nobody waits from now on."""
        self._is_closing = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for group in self._groups.values():
            if group.timer is not None:
                group.timer.cancel()
                group.timer = None
            self._deliver(group, group.machine.abandon(ErrorCode.NOT_COORDINATOR))

    async def aclose(self) -> None:
        """Release everybody, and wait until what was submitted is stored."""
        self.release()
        while tasks := [one for one in (self._forgetting, self._sweeping) if one is not None]:
            await asyncio.wait(tasks)
        await self._writer.aclose()

    # --- membership ------------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest) -> Completion[JoinResult]:
        """Take part in the next generation; the reply may wait for others to do so too."""
        waiter: Completion[JoinResult] = Completion()
        code = self._join_problem(group_id, request)
        if code is not NO_ERROR:
            waiter.set_result(JoinResult(code, request.member_id))
            return waiter
        group = self._get_or_create(group_id)
        now_s = self._clock.monotonic_s()
        try:
            effects = group.machine.join(request, waiter, now_s)
        except Exception:
            self.load_again(group)
            raise
        self._step(group, effects)
        return waiter

    def sync(self, group_id: str, request: SyncRequest) -> Completion[SyncResult]:
        """Wait for the assignment, or bring it."""
        waiter: Completion[SyncResult] = Completion()
        group = self._groups.get(group_id)
        if self._is_closing:
            waiter.set_result(SyncResult(ErrorCode.NOT_COORDINATOR))
        elif group is None:
            waiter.set_result(SyncResult(_unknown(group_id)))
        else:
            now_s = self._clock.monotonic_s()
            try:
                effects = group.machine.sync(request, waiter, now_s)
            except Exception:
                self.load_again(group)
                raise
            self._step(group, effects)
        return waiter

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Keep a member alive."""
        group = self._groups.get(group_id)
        if group is None:
            return _unknown(group_id)
        now_s = self._clock.monotonic_s()
        code = group.machine.heartbeat(member_id, group_instance_id, generation, now_s)
        self._arm(group)
        return code

    def leave(
        self, group_id: str, leaving: Sequence[LeavingMember]
    ) -> Completion[list[ErrorCode]] | list[ErrorCode]:
        """Let members go; return what became of each, once what follows at once is durable.

        While others have yet to join that is nothing: after a crash, whoever left is a member again
        until its session ends, as in Kafka.
        """
        group = self._groups.get(group_id)
        if group is None:
            return [_unknown(group_id)] * len(leaving)
        now_s = self._clock.monotonic_s()
        codes, effects = self._guarded(group, lambda: group.machine.leave(leaving, now_s))
        self._step(group, effects)
        write = group.last_write
        if write is None or NO_ERROR not in codes:
            return codes
        refused = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(codes)
        return _after(write, codes, refused)

    # --- committed offsets -----------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        offsets: OffsetChanges,
        blocks: dict[TopicId, OffsetBlock] | None = None,
    ) -> Completion[ErrorCode] | ErrorCode:
        """Store how far a group has read. Commits count in the order of these calls.

        Offsets are single ones, or blocks by topic in place of them.
        GROUP_ID_NOT_FOUND when a member of a group that does not exist commits; who commits from
        outside (no generation) creates the group.
        """
        group = self._groups.get(group_id)
        if group is None:
            if generation >= 0:
                return ErrorCode.GROUP_ID_NOT_FOUND
            if len(self._groups) >= self._settings.groups_max:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if not offsets and not blocks:
                return NO_ERROR
            group = self._create(group_id)
        if group.is_being_deleted:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        now_s = self._clock.monotonic_s()
        code = group.machine.check_commit(member_id, group_instance_id, generation, now_s)
        self._arm(group)
        if code is not NO_ERROR or not (offsets or blocks):
            return code
        if blocks:
            self._metrics.offset_commits += sum(map(len, blocks.values()))
            write: Write = BlocksWrite(group, blocks)
        else:
            self._metrics.offset_commits += len(offsets)
            write = OffsetsWrite(group, offsets)
        if generation >= 0 and self.when_committed_back:
            self._compare(group, offsets)
            for topic_id, block in (blocks or {}).items():
                self._compare_block(group, topic_id, block)
        reply: Completion[ErrorCode] = Completion()
        write.then.append(partial(self._committed, group, reply))
        self._writer.submit(write)
        return reply

    def _committed(
        self, group: Group, reply: Completion[ErrorCode], error: Exception | None
    ) -> None:
        """Answer a commit that is durable, or has failed."""
        if error is not None:
            # It may have been the first thing that the group was to have.
            self._drop_if_nothing(group)
        reply.set_result(ErrorCode.COORDINATOR_NOT_AVAILABLE if error else NO_ERROR)

    def _compare(self, group: Group, offsets: OffsetChanges) -> None:
        stored = group.offsets
        for place, committed in offsets.items():
            before = stored.get(*place)
            if before is not None and committed is not None and committed.offset < before.offset:
                for tell in self.when_committed_back:
                    tell(group.group_id, place, committed.offset, before.offset)

    def _compare_block(self, group: Group, topic_id: TopicId, block: OffsetBlock) -> None:
        before = group.offsets.block(topic_id, block.partitions)
        if before is not None and not any(map(gt, before.offset_numbers(), block.offset_numbers())):
            return
        entries = block.entries()
        self._compare(group, {(topic_id, index): entries[index] for index in entries})

    def offsets(self, group_id: str) -> OffsetTable | None:
        """Return a group's durable offsets; None when there is no such group."""
        group = self._groups.get(group_id)
        return None if group is None else group.offsets

    def subscribed_topics(self, group_id: str) -> frozenset[str] | ErrorCode:
        """Return the topics whose offsets may not be deleted: those that the group reads now.

        GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP when nobody can say what its members read.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        machine = group.machine
        if machine.state is GroupState.EMPTY:
            return frozenset()
        topics: set[str] = set()
        for member in machine.members:
            for protocol in member.protocols:
                found = subscribed_topics(protocol.metadata)
                if machine.protocol_type != CONSUMER or found is None:
                    return ErrorCode.NON_EMPTY_GROUP
                topics |= found
        return frozenset(topics)

    def delete_offsets(
        self, group_id: str, places: Iterable[Place]
    ) -> Completion[ErrorCode] | ErrorCode:
        """Forget committed offsets, durably. Those that do not exist are no error."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        changes: OffsetChanges = dict.fromkeys(places)
        if not changes:
            return NO_ERROR
        write = self._writer.submit(OffsetsWrite(group, changes))
        write.then.append(partial(self._drop_after, group))
        return _after(write, NO_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def forget_topic(self, topic_id: TopicId) -> None:
        """Drop every group's offsets of a topic that has been deleted, soon.

        What a crash leaves of them is dropped at the next start.
        """
        self._gone_topics.add(topic_id)
        if self._forgetting is None:
            self._begin_to_forget()

    def _begin_to_forget(self) -> None:
        rest = in_turns(self._forget())
        if rest is not None:
            self._forgetting = asyncio.ensure_future(rest)
            self._forgetting.add_done_callback(self._forgotten)

    def _forget(self) -> Turns[None]:
        """Go through all groups, once for all the topics that have gone since the last time.

        Each topic by itself took a minute where 200 topics went and 20,000 groups had writes
        waiting: they had to be told of each.
        """
        share = Share(_FORGOTTEN_PER_TURN)
        while self._gone_topics:
            topics = frozenset(self._gone_topics)
            self._gone_topics.clear()
            for group in list(self._groups.values()):
                if self._groups.get(group.group_id) is group and (
                    group.unwritten or any(map(group.offsets.has_topic, topics))
                ):
                    write = self._writer.submit(TopicsDrop(group, topics))
                    write.then.append(partial(self._drop_after, group))
                if share.spend(1 + len(topics) // 8):
                    yield

    def _forgotten(self, task: asyncio.Task[None]) -> None:
        self._forgetting = None
        self._report_bug_of(task)
        if self._gone_topics and not task.cancelled():
            # They went after the task's last look at them, and before its end was known here.
            self._begin_to_forget()

    def _report_bug_of(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report_bug(error)

    # --- administration --------------------------------------------------------------------------

    def listed(self) -> Iterator[ListedGroup]:
        """Yield every group that there was when the first was asked for, as it is by then."""
        for group in list(self._groups.values()):
            yield ListedGroup(
                group.group_id, group.machine.protocol_type, group.machine.state.value, CLASSIC
            )

    def ids(self) -> list[str]:
        """Return the id of every group."""
        return list(self._groups)

    def describe(self, group_id: str) -> GroupDescription | None:
        group = self._groups.get(group_id)
        return None if group is None else group.machine.describe()

    def explain(self, group_id: str) -> dict[str, Any] | None:
        """Return what a group decided lately and why, as plain values; None for no such group."""
        group = self._groups.get(group_id)
        if group is None:
            return None
        machine = group.machine
        return {
            "group_id": group_id,
            "type": CLASSIC,
            "state": machine.state.value,
            "generation": machine.generation,
            "members": len(machine.members),
            "pending_members": len(machine.members.pending),
            **group.trace.export(self._clock.monotonic_s(), self._clock.wall_ms()),
        }

    def delete(self, group_id: str) -> Completion[ErrorCode] | ErrorCode:
        """Delete a group and its offsets, for good: durable before the answer."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.machine.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        if group.is_being_deleted:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        write = self._delete(group)
        return _after(write, NO_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # --- time ------------------------------------------------------------------------------------

    def _arm_sweep(self) -> None:
        at_s = self._clock.monotonic_s() + self._settings.retention_check_interval_s
        self._sweep_timer = self._clock.call_at(at_s, self._sweep)

    def _sweep(self) -> None:
        """Let expire what groups that are empty committed long ago, and groups without anything."""
        if self._is_closing:
            return
        self._arm_sweep()
        if self._sweeping is not None:
            return
        rest = in_turns(self._expire_offsets())
        if rest is not None:
            self._sweeping = asyncio.ensure_future(rest)
            self._sweeping.add_done_callback(self._swept)

    def _expire_offsets(self) -> Turns[None]:
        """Go through all groups; each is judged by what it is when its turn has come."""
        share = Share(_SWEPT_PER_TURN)
        for group in list(self._groups.values()):
            if self._is_closing:
                return
            if share.spend(1 + self._expire_offsets_of(group) // _OFFSETS_PER_GROUP):
                yield

    def _expire_offsets_of(self, group: Group) -> int:
        """Let go what a group need not keep any longer; return how many offsets were looked at."""
        if (
            self._groups.get(group.group_id) is not group
            or not group.machine.is_vacant
            # Not while a commit is on its way: it may renew what looks old.
            or group.unwritten
            or group.is_being_deleted
        ):
            return 0
        count = len(group.offsets)
        places = group.offsets.expired(
            self._clock.monotonic_s(),
            group.machine.empty_since_s,
            self._settings.offsets_retention_s,
        )
        self._metrics.offsets_expired += len(places)
        if len(places) == count:
            self._delete(group)
        elif places:
            self._writer.submit(OffsetsWrite(group, dict.fromkeys(places)))
        return count

    def _swept(self, task: asyncio.Task[None]) -> None:
        self._sweeping = None
        self._report_bug_of(task)

    # --- small things ----------------------------------------------------------------------------

    def _join_problem(self, group_id: str, request: JoinRequest) -> ErrorCode:
        settings = self._settings
        group = self._groups.get(group_id)
        shortest_ms, longest_ms = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        if self._is_closing:
            return ErrorCode.NOT_COORDINATOR
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if group is None:
            if request.member_id != NO_MEMBER_ID:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if len(self._groups) >= settings.groups_max:
                return ErrorCode.GROUP_MAX_SIZE_REACHED
        elif group.is_being_deleted:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return NO_ERROR


def _unknown(group_id: str) -> ErrorCode:
    """Return what a member of a group that does not exist is told."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID


def _after(write: Write, value: ResultT, refused: ResultT) -> Completion[ResultT]:
    """Return a reply that is given when a write is durable; another one when it fails."""
    reply: Completion[ResultT] = Completion()
    write.then.append(lambda error: reply.set_result(value if error is None else refused))
    return reply
