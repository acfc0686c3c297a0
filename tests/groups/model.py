"""A random history of requests, time, crashes and storage failures, and the invariants of groups.

Every choice comes from one `Random`, so that a failure is repeated from its seed. What each request
is answered with is held against what any coordinator may say; the invariants I1 to I10 of the
project's design are checked after every step.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode, StorageError
from kgw.groups.coordinator import GroupCoordinator
from kgw.groups.effects import Answer
from kgw.groups.group import GroupSettings
from kgw.groups.requests import (
    NO_MEMBER_ID,
    JoinRequest,
    JoinResult,
    LeavingMember,
    MemberProtocol,
    SyncRequest,
    SyncResult,
)
from kgw.groups.rounds import GroupLimits
from kgw.groups.states import GroupState
from kgw.metrics import Metrics
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.protocol.blobs import ConsumerProtocolSubscription, encode_blob
from kgw.state.memory import MemoryStateStore
from kgw.testing.clock import ManualClock
from kgw.types import TopicId
from tests.offsets.blocks import block_of

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Sequence
    from random import Random

    from kgw.groups.classic import ClassicGroup
    from kgw.groups.effects import Effect
    from kgw.groups.group import Group
    from kgw.groups.reply import Reply
    from kgw.groups.writes import Write
    from kgw.state.base import Change

GROUP = "g"
MAX_SIZE = 5
SESSIONS_MS = (6_000, 10_000)
REBALANCES_MS = (5_000, 20_000)
# A round ends within the rebalance timeout; static members that stay away end with their session.
TRANSITIONAL_S = (max(REBALANCES_MS) + max(SESSIONS_MS)) / 1000 + 0.001
TOPICS = tuple(TopicId(bytes([index]) * 16) for index in (1, 2))


class FlakyStore(MemoryStateStore):
    """A store that fails, is slow, or fails after having stored."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome = "stored"
        self.gate: Future[None] | None = None
        self.held: Sequence[Change] = ()

    async def apply(self, changes: Sequence[Change]) -> None:
        self.held = changes
        if self.gate is not None:
            await self.gate
        self.held = ()
        outcome, self.outcome = self.outcome, "stored"
        if outcome != "refused":
            await super().apply(changes)
        if outcome != "stored":
            raise StorageError(f"the disk says {outcome}")


class JumpyClock(ManualClock):
    """A clock whose wall time is set by hand now and then (I9)."""

    jump_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.jump_ms


class WatchedCoordinator(GroupCoordinator):
    """Sees every answer that a machine gives: no waiter may be answered twice (I8)."""

    answered: set[int]
    kept: list[object]
    deletions = 0

    def _delete(self, group: Group) -> Write:
        self.deletions += 1
        return super()._delete(group)

    def _deliver(self, group: Group, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                assert id(effect.waiter) not in self.answered, "answered twice"
                self.answered.add(id(effect.waiter))
                self.kept.append(effect.waiter)
        super()._deliver(group, effects)


class Client:
    """What a member's process believes."""

    def __init__(self, number: int, instance: str | None) -> None:
        self.number = number
        self.instance = instance
        self.member_id = NO_MEMBER_ID
        self.generation = -1
        self.is_leader = False
        self.listed: tuple[str, ...] = ()
        self.variant = 0


class Pending:
    """A request that has not been answered yet."""

    def __init__(self, kind: str, future: Reply[Any], client: Client, since_s: float) -> None:
        self.kind = kind
        self.future = future
        self.client = client
        self.since_s = since_s
        self.nonce = 0
        self.generation = -1


class GroupModel:
    """One group under random load."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.clock = JumpyClock()
        self.store = FlakyStore()
        self.clients = [
            Client(number, f"static-{number}" if number % 3 == 0 else None) for number in range(6)
        ]
        self.requests: list[Pending] = []
        self.bugs: list[BaseException] = []
        self.nonce = 0
        self.commit_number = 0
        self.delay_s = random.choice((0.0, 0.0, 3.0))
        self.transitional_since: dict[GroupState, float] = {}
        self.last_machine: ClassicGroup | None = None
        self.dropped: dict[TopicId, int] = {}
        self.accepted: dict[tuple[TopicId, int], set[int]] = {}
        self.forget_history()

    def forget_history(self) -> None:
        """The group is another one from now on: it was deleted, or nothing of it was left."""
        self.top_generation = 0
        self.formed: dict[int, tuple[str | None, frozenset[str]]] = {}
        self.nonces: dict[int, int] = {}
        self.acknowledged: dict[tuple[TopicId, int], int] = {}

    # --- running ---------------------------------------------------------------------------------

    async def run(self, steps: int) -> None:
        """Take so many steps and check after each of them."""
        await self.start()
        actions = [
            (self.join, 14),
            (self.join_again, 10),
            (self.sync, 18),
            (self.heartbeat, 8),
            (self.zombie, 8),
            (self.commit, 8),
            (self.commit_from_outside, 2),
            (self.leave, 4),
            (self.static_returns, 4),
            (self.advance, 12),
            (self.wait_alive, 2),
            (self.advance_far, 3),
            (self.jump, 2),
            (self.break_store, 3),
            (self.hold_store, 3),
            (self.crash, 2),
            (self.delete, 1),
            (self.forget_topic, 1),
        ]
        kinds = [action for action, _ in actions]
        weights = [weight for _, weight in actions]
        for _ in range(steps):
            action = self.random.choices(kinds, weights)[0]
            await action()
            await self.settle()
            self.check()
            if self.store.gate is not None and self.random.random() < 0.4:
                self.release_store()
                await self.settle()
                self.check()
        self.release_store()
        await self.settle()
        await self.end()

    async def start(self) -> None:
        self.coordinator = WatchedCoordinator(
            self.store,
            self.clock,
            GroupSettings(
                groups_max=10,
                offsets_retention_s=3600.0,
                limits=GroupLimits(MAX_SIZE, self.delay_s),
            ),
            Metrics(),
            self.bugs.append,
        )
        self.coordinator.answered = set()
        self.coordinator.kept = []
        await self.coordinator.open(lambda _: True)

    async def settle(self) -> None:
        """Let callbacks and the writer run, and the clients learn of their answers."""
        for _ in range(4):
            await asyncio.sleep(0)
        left = []
        for request in self.requests:
            if request.future.done():
                self.learn(request)
            else:
                left.append(request)
        self.requests = left

    async def end(self) -> None:
        """Everybody is answered when the process stops, and nothing was our own bug."""
        self.check()
        await self.coordinator.aclose()
        await self.settle()
        assert [] == self.requests
        assert [] == self.bugs

    # --- what a group's machine looks like -------------------------------------------------------

    @property
    def group(self) -> Group | None:
        return self.coordinator._groups.get(GROUP)

    @property
    def machine(self) -> ClassicGroup | None:
        group = self.group
        return None if group is None else group.machine

    def picture(self) -> object:
        """Everything of the machine that a refused request must leave alone (I4)."""
        machine = self.machine
        if machine is None:
            return None
        return (
            machine.state,
            machine.generation,
            machine.members.leader_id,
            sorted(machine.members.pending),
            [
                (
                    one.member_id,
                    one.deadline_s,
                    one.protocols,
                    one.assignment,
                    one.join_waiter,
                    one.sync_waiter,
                )
                for one in machine.members
            ],
        )

    # --- actions ---------------------------------------------------------------------------------

    def request_of(self, client: Client, member_id: str, *, is_old: bool = False) -> JoinRequest:
        self.nonce += 1
        subscription = ConsumerProtocolSubscription(topics=[f"topic-{client.variant}"])
        return JoinRequest(
            member_id,
            client.instance,
            f"client-{client.number % 2}",
            "/192.0.2.1",
            self.random.choice(SESSIONS_MS),
            self.random.choice(REBALANCES_MS),
            "consumer",
            (MemberProtocol("range", encode_blob(subscription, 1)),),
            f"member-{client.number}-{self.nonce}",
            None,
            not is_old,
            self.random.random() < 0.5,
        )

    async def join(self) -> None:
        """A client joins with what it knows, or begins anew."""
        client = self.random.choice(self.clients)
        if self.random.random() < 0.1:
            client.member_id = NO_MEMBER_ID
        if self.random.random() < 0.1:
            client.variant = self.random.randrange(2)
        is_old = self.random.random() < 0.2
        self.ask_to_join(client, self.request_of(client, client.member_id, is_old=is_old))

    async def join_again(self) -> None:
        """Everybody who is in the group follows the call to rebalance; some ask twice."""
        machine = self.machine
        if machine is None:
            return
        for client in self.clients:
            if client.member_id in machine.members or client.member_id in machine.members.pending:
                for _ in range(1 + (self.random.random() < 0.15)):
                    self.ask_to_join(client, self.request_of(client, client.member_id))

    def ask_to_join(self, client: Client, request: JoinRequest) -> None:
        future = self.coordinator.join(GROUP, request)
        self.requests.append(Pending("join", future, client, self.clock.monotonic_s()))

    async def sync(self) -> None:
        """Members ask for their assignment; leaders bring one, now and then an empty one."""
        clients = [one for one in self.clients if one.generation >= 0]
        self.random.shuffle(clients)
        for client in clients[: self.random.randint(1, 6)]:
            self.nonce += 1
            assignments: tuple[tuple[str, bytes], ...] = ()
            if client.is_leader and self.random.random() < 0.9:
                assignments = tuple(
                    (one, f"{client.generation}/{self.nonce}/{index}".encode())
                    for index, one in enumerate(client.listed)
                )
            for _ in range(1 + (self.random.random() < 0.1)):
                future = self.coordinator.sync(
                    GROUP,
                    SyncRequest(client.member_id, client.instance, client.generation, assignments),
                )
                pending = Pending("sync", future, client, self.clock.monotonic_s())
                pending.generation = client.generation
                self.requests.append(pending)

    async def heartbeat(self) -> None:
        for client in self.clients:
            code = self.coordinator.heartbeat(
                GROUP, client.member_id, client.instance, client.generation
            )
            if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
                client.member_id, client.generation = NO_MEMBER_ID, -1

    async def zombie(self) -> None:
        """A wrong generation, an unknown member or a fenced instance changes nothing (I4)."""
        machine = self.machine
        client = self.random.choice(self.clients)
        before = self.picture()
        kind = self.random.randrange(3)
        member_id, instance = client.member_id, client.instance
        generation = client.generation
        current = machine.generation if machine is not None else 0
        if kind == 0:
            generation = max(0, current + self.random.choice((-1, 1, 100)))
            if generation == current:
                return
        elif kind == 1:
            member_id, generation = f"nobody-{self.nonce}", current
        else:
            static = self.clients[0]
            member_id, instance, generation = "someone-before", static.instance, current
        how = self.random.randrange(4)
        place = (TOPICS[0], 0)
        if how == 0:
            code = self.coordinator.heartbeat(GROUP, member_id, instance, generation)
        elif how == 1:
            request = SyncRequest(member_id, instance, generation, ((member_id, b"zombie"),))
            future = self.coordinator.sync(GROUP, request)
            assert before == self.picture()
            if not future.done():  # behind a row that is being stored
                self.requests.append(Pending("sync", future, client, self.clock.monotonic_s()))
                return
            code = future.result().error
        elif how == 2:
            answer = self.coordinator.commit(
                GROUP, member_id, instance, generation, {place: self.committed(-7)}
            )
            assert isinstance(answer, ErrorCode)
            code = answer
        else:
            if kind == 0:
                return  # LeaveGroup carries no generation
            codes = self.coordinator.leave(GROUP, [LeavingMember(member_id, instance)])
            assert isinstance(codes, list)
            (code,) = codes
        assert ErrorCode.NONE is not code
        assert before == self.picture()

    async def commit(self) -> None:
        """Members commit; several commits of one may overlap, and count in their order."""
        client = self.random.choice(self.clients)
        for _ in range(self.random.randint(1, 3)):
            self.start_commit(client, client.member_id, client.instance, client.generation)

    async def commit_from_outside(self) -> None:
        """Anybody commits while the group has no members, whomever the request names."""
        machine = self.machine
        is_open = machine is None or machine.state is GroupState.EMPTY
        client = self.random.choice(self.clients)
        member_id = self.random.choice((NO_MEMBER_ID, client.member_id, "nobody"))
        instance = self.random.choice((None, client.instance))
        answer = self.start_commit(client, member_id, instance, -1)
        if not is_open:
            assert isinstance(answer, ErrorCode), "taken beside the members"

    def committed(self, number: int) -> CommittedOffset:
        now_s = self.clock.monotonic_s()
        return CommittedOffset(number, -1, "", self.clock.wall_ms(), NO_EXPIRY_MS, now_s)

    def start_commit(
        self, client: Client, member_id: str, instance: str | None, generation: int
    ) -> object:
        self.commit_number += 1
        number = self.commit_number
        topic_id = self.random.choice(TOPICS)
        partitions = self.random.choice(((0,), (1,), (17,), (0, 1), (0, 17), (17, 1, 0)))
        places = [(topic_id, partition) for partition in partitions]
        if len(places) == 1:
            answer = self.coordinator.commit(
                GROUP, member_id, instance, generation, {places[0]: self.committed(number)}
            )
        else:
            blocks = {topic_id: block_of(dict.fromkeys(partitions, self.committed(number)))}
            answer = self.coordinator.commit(GROUP, member_id, instance, generation, {}, blocks)
        if isinstance(answer, ErrorCode):
            assert ErrorCode.NONE is not answer
            return answer
        for place in places:
            self.accepted.setdefault(place, set()).add(number)
        acknowledged = self.acknowledged

        def done(_: object) -> None:
            is_stored = answer.result() is ErrorCode.NONE
            if is_stored and number > self.dropped.get(topic_id, 0):
                for place in places:
                    acknowledged[place] = max(number, acknowledged.get(place, 0))

        answer.when_done(done)
        return answer

    async def leave(self) -> None:
        """Some members leave in one request, with somebody unknown among them."""
        leavers = self.random.sample(self.clients, self.random.randint(1, 2))
        leaving = [LeavingMember(one.member_id, one.instance) for one in leavers]
        leaving.insert(0, LeavingMember("nobody"))
        known = self.machine is not None
        answer = self.coordinator.leave(GROUP, leaving)
        if isinstance(answer, list):
            assert ErrorCode.UNKNOWN_MEMBER_ID is answer[0]
            assert known or set(answer) == {ErrorCode.UNKNOWN_MEMBER_ID}
        for client in leavers:
            client.member_id, client.generation = NO_MEMBER_ID, -1

    async def static_returns(self) -> None:
        """A static member of a stable group comes back, wanting the same (I5)."""
        machine, group = self.machine, self.group
        if machine is None or group is None or machine.state is not GroupState.STABLE:
            return
        for client in self.clients:
            member = (
                None
                if client.instance is None
                else machine.members.get(machine.members.static_id(client.instance) or "")
            )
            if member is None or group.is_being_deleted:
                continue
            old_id, generation, assignment = member.member_id, machine.generation, member.assignment
            wanted = self.request_of(client, NO_MEMBER_ID)._replace(protocols=member.protocols)
            future = self.coordinator.join(GROUP, wanted)
            self.requests.append(Pending("join", future, client, self.clock.monotonic_s()))
            assert GroupState.STABLE is machine.state
            assert generation == machine.generation
            assert assignment == member.assignment
            code = self.coordinator.heartbeat(GROUP, old_id, client.instance, generation)
            assert ErrorCode.FENCED_INSTANCE_ID is code
            return

    async def advance(self) -> None:
        self.clock.advance(self.random.choice((0.1, 1.0, 3.0)))

    async def wait_alive(self) -> None:
        """Time passes while every member sends heartbeats and nothing else."""
        for _ in range(9):
            self.clock.advance(4.0)
            await self.heartbeat()
            await self.settle()
            self.check()

    async def advance_far(self) -> None:
        self.clock.advance(self.random.choice((7.0, 25.0, 4000.0)))

    async def jump(self) -> None:
        """Somebody sets the wall clock (I9)."""
        self.clock.jump_ms += self.random.choice((-1, 1)) * self.random.choice((1000, 10**10))

    async def break_store(self) -> None:
        self.store.outcome = self.random.choice(("refused", "unknown"))

    async def hold_store(self) -> None:
        if self.store.gate is None:
            self.store.gate = asyncio.get_running_loop().create_future()

    def release_store(self) -> None:
        gate, self.store.gate = self.store.gate, None
        if gate is not None:
            gate.set_result(None)

    async def crash(self) -> None:
        """The process dies: what was on its way to the disk has arrived, or it has not."""
        old = self.coordinator
        old._is_closing = True
        task = old._writer._task
        if task is not None:
            held = self.store.held
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if held and self.random.random() < 0.5:
                await MemoryStateStore.apply(self.store, held)
        self.store.gate, self.store.held = None, ()
        self.store.outcome = "stored"
        self.requests = []
        self.clock.jump_ms = 0
        self.transitional_since = {}
        was_going = self.coordinator.deletions > 0
        await self.start()
        machine = self.machine
        # A deletion that failed may have been stored all the same.
        if was_going and (machine is None or machine.generation == 0):
            self.forget_history()
        # I3: nothing that anybody was told is given out again.
        assert (0 if machine is None else machine.generation) >= self.top_generation

    async def delete(self) -> None:
        machine = self.machine
        answer = self.coordinator.delete(GROUP)
        if isinstance(answer, ErrorCode):
            assert ErrorCode.NONE is not answer
            return
        assert machine is not None
        assert GroupState.EMPTY is machine.state
        self.forget_history()

    async def forget_topic(self) -> None:
        topic_id = self.random.choice(TOPICS)
        self.coordinator.forget_topic(topic_id)
        self.dropped[topic_id] = self.commit_number
        for place in [one for one in self.acknowledged if one[0] == topic_id]:
            del self.acknowledged[place]

    # --- what clients learn ----------------------------------------------------------------------

    def learn(self, request: Pending) -> None:
        result = request.future.result()
        client = request.client
        if isinstance(result, JoinResult):
            self.learn_join(client, result)
        elif isinstance(result, SyncResult) and result.error is ErrorCode.NONE:
            self.learn_sync(request, result)
        if result.error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            client.member_id, client.generation = NO_MEMBER_ID, -1

    def learn_join(self, client: Client, result: JoinResult) -> None:
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
        if result.error is not ErrorCode.NONE:
            return
        client.member_id, client.generation = result.member_id, result.generation
        client.is_leader = bool(result.members) and not result.skip_assignment
        client.listed = tuple(one.member_id for one in result.members)
        self.top_generation = max(self.top_generation, result.generation)
        listed = frozenset(one.group_instance_id or one.member_id for one in result.members)
        # I3: one generation is one set of members and one protocol, whoever is told when.
        told = self.formed.setdefault(result.generation, (result.protocol_name, listed))
        assert told[0] == result.protocol_name
        if listed:
            assert not told[1] or told[1] == listed, "a generation formed twice"
            self.formed[result.generation] = (result.protocol_name, listed)

    def learn_sync(self, request: Pending, result: SyncResult) -> None:
        """I1: within a generation everybody has its part of one and the same assignment."""
        generation = request.generation
        if result.assignment:
            told_generation, nonce, _ = map(int, result.assignment.split(b"/"))
            assert generation == told_generation, "an assignment of another generation"
        else:
            nonce = 0
        if nonce:
            assert nonce == self.nonces.setdefault(generation, nonce), "two assignments"

    # --- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        assert [] == self.bugs
        self.check_offsets()
        self.check_waiters()
        machine = self.machine
        now_s = self.clock.monotonic_s()
        if machine is None:
            if not self.requests:
                self.forget_history()
            self.transitional_since = {}
            return
        members = list(machine.members)
        # Consistency of what is counted.
        assert machine._awaiting == sum(one.join_waiter is not None for one in members)
        assert len(members) == self.coordinator._metrics.group_members
        assert 1 == self.coordinator._metrics.groups[machine.state.value]
        # I1: no two members have the same part.
        parts = [one.assignment for one in members if one.assignment]
        assert len(parts) == len(set(parts))
        # I2: the leader knew of everybody.
        if machine.state is GroupState.STABLE and machine.generation in self.formed:
            listed = self.formed[machine.generation][1]
            for one in members:
                assert not listed or (one.group_instance_id or one.member_id) in listed
        # I3
        assert machine.generation >= self.top_generation or self.group_is_unwritten()
        # I7
        assert machine.members.size <= MAX_SIZE
        assert all(one.expires_s > now_s for one in machine.members.pending.values())
        # Nobody lives longer than heard of, and there is a timer for whatever comes next.
        for one in members:
            assert not one.can_expire or one.deadline_s > now_s
        # Whoever is not told yet will be: there is a row on its way.
        group = self.group
        assert group is None or group.last_write or not any(one.is_untold for one in members)
        self.check_states(machine, now_s)
        assert (0 == len(members)) == (machine.state is GroupState.EMPTY)
        if members:
            assert machine.members.leader_id in machine.members

    def group_is_unwritten(self) -> bool:
        group = self.group
        return group is not None and group.unwritten > 0

    def check_states(self, machine: ClassicGroup, now_s: float) -> None:
        """I6: no transitional state lasts longer than its timeouts allow."""
        state = machine.state
        if state not in {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE}:
            self.transitional_since = {}
            return
        if machine is not self.last_machine:
            # Loaded again: its timeouts begin anew.
            self.last_machine, self.transitional_since = machine, {}
        key = self.transitional_since.setdefault(state, now_s)
        for other in [one for one in self.transitional_since if one is not state]:
            del self.transitional_since[other]
        # Within one state a new round may begin between two looks; each has a time of its own.
        began_s = machine.trace.rounds[-1].began_s if machine.trace.rounds else key
        assert now_s - max(key, began_s) <= TRANSITIONAL_S, "stuck"
        if state is GroupState.PREPARING_REBALANCE:
            assert not any(one.sync_waiter for one in machine.members)
            # Everybody has joined: it waits for more to come, no longer than it says.
            assert (
                machine._awaiting < len(machine.members)
                or machine._window_end_s is not None
                or machine.members.held_until_s > now_s
            ), "late"
        else:
            assert not any(one.join_waiter for one in machine.members)

    def check_waiters(self) -> None:
        """I8: who is not answered waits in the machine or for the disk, and nowhere else."""
        machine, group = self.machine, self.group
        held: set[int] = set()
        if machine is not None and group is not None:
            for one in machine.members:
                held.update(id(waiter) for waiter in (one.join_waiter, one.sync_waiter) if waiter)
        if group is not None and group.last_write is not None:
            held.update(id(waiter) for waiter, _ in group.last_write.answers)
        held.update(
            id(waiter) for write in self.coordinator._writer._queue for waiter, _ in write.answers
        )
        if self.store.gate is None:
            for request in self.requests:
                assert request.future.done() or id(request.future) in held, "nobody will answer"

    def check_offsets(self) -> None:
        """Every acknowledged commit is there, unless one that came later is."""
        table = self.coordinator.offsets(GROUP)
        expired = self.clock.monotonic_s() - 1000.0 > 3600.0
        for place, number in self.acknowledged.items():
            found = None if table is None else table.get(*place)
            if found is None and expired:
                continue
            assert found is not None, "an acknowledged commit is lost"
            assert found.offset >= number, "a commit was rewound"
        if table is not None:
            for topic_id, partitions in table.topics().items():
                for partition, found in partitions.items():
                    assert found.offset > 0, "a zombie's commit was taken"
                    assert (topic_id, partition) not in self.accepted or found.offset in (
                        self.accepted[topic_id, partition]
                    )
