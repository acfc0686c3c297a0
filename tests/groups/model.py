"""A random history of requests, time, crashes and storage failures, and the invariants of groups.

Every choice comes from one `Random`, so that a failure is repeated from its seed. What each request
is answered with is held against what any coordinator may say; the invariants I1 to I10 of the
project's design are checked after every step, and two of transactions: I11, what a transaction
commits is seen when it is committed, all of it or nothing, and what is aborted never; I12, its
places are unstable from the first answer until its end is answered, and no longer. How long
anything may take is judged by the model's own clock: see `own_clock`.

I9 (wall-clock jumps change nothing) is seen by running a history without crashes twice, with jumps
and without, and comparing the transcripts. After a crash the age of commits is told by the wall
clock; there is nothing else to tell it by.

I10 (nobody waits for the disk for the sake of somebody else) is seen by a second group, which has
all it needs: it is answered at once whatever is being stored for the first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from kgw.coordinator.machine import Answer, Persist
from kgw.errors import ErrorCode
from kgw.groups.classic import CLASSIC_KIND, ClassicGroup
from kgw.groups.coordinator import GroupCoordinator
from kgw.groups.group import GroupSettings
from kgw.groups.machine import GroupLimits
from kgw.groups.requests import (
    CLASSIC,
    NO_MEMBER_ID,
    CommitRequest,
    DeleteRequest,
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
from kgw.groups.states import GroupState
from kgw.groups.subscriptions import subscribed_topics
from kgw.metrics import Metrics
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.pending import PendingCommit
from kgw.protocol.blobs import (
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    encode_blob,
)
from kgw.state.memory import MemoryStateStore
from kgw.types import TopicId
from tests.groups.driver import GroupDriver, answer
from tests.groups.life import FlakyStore, OneLife, at_once
from tests.groups.own_clock import Moment, OwnClock, Times, Waiting
from tests.groups.transactions import Transactions
from tests.offsets.blocks import block_of, held

if TYPE_CHECKING:
    from random import Random

    from kgw.coordinator.entry import Reply
    from kgw.coordinator.machine import Event
    from kgw.groups.machine import Beginning, Effect
    from kgw.offsets.committed import Place
    from kgw.offsets.topic_offsets import OffsetChanges

GROUP = "g"
BYSTANDER = "bystander"
BYSTANDER_SESSION_MS = 1 << 30
MAX_SIZE = 5
SESSIONS_MS = (6_000, 10_000)
REBALANCES_MS = (5_000, 20_000)
RETENTION_S = 3600.0
TOPICS = tuple(TopicId(bytes([index]) * 16) for index in (1, 2))
BYSTANDER_TOPIC = TopicId(bytes([3]) * 16)


class WatchedGroup(ClassicGroup):
    """Sees every answer that a machine gives: no waiter may be answered twice (I8)."""

    def __init__(self, beginning: Beginning, seen: Seen) -> None:
        super().__init__(beginning)
        self._seen = seen

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        effects = super().handle(event, now_s)
        for effect in effects:
            if isinstance(effect, Answer):
                assert effect.waiter not in self._seen.answered, "I8: answered twice"
                self._seen.answered.add(effect.waiter)
            elif isinstance(effect, Persist) and effect.more is not None and effect.more.drops_all:
                self._seen.deletions += 1
        return effects


class Seen:
    """What machines of one process have done."""

    def __init__(self) -> None:
        self.machines: dict[str, ClassicGroup] = {}
        self.answered: set[object] = set()
        self.deletions = 0

    def begin(self, beginning: Beginning) -> ClassicGroup:
        machine = WatchedGroup(beginning, self)
        self.machines[beginning.group_id] = machine
        return machine


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
        self.synced_generation = -1
        self.part = b""
        self.owned: list[int] = []
        """Partitions that it says it owns (KIP-429)."""


class Pending:
    """A request that has not been answered yet."""

    def __init__(
        self, kind: str, future: Reply[Any], client: Client, since_s: float, member_id: str
    ) -> None:
        self.kind = kind
        self.future = future
        self.client = client
        self.waiting = Waiting(kind, since_s, member_id)
        self.generation = -1


class GroupModel:
    """One group under random load, and another one beside it that must not notice."""

    group = GROUP
    topics = TOPICS

    def __init__(self, random: Random, *, jumps: bool = True, crashes: bool = True) -> None:
        self.random = random
        self.jumps = jumps
        self.crashes = crashes
        self.counts: Counter[str] = Counter()
        self.transcript: list[object] = []
        """All that anybody was told, and when."""
        self.beside = GroupDriver()
        """Speaks for the group that is left alone."""
        self.beside.group = BYSTANDER
        self.clock = self.beside.clock
        self.jump_ms = 0
        self.metrics = Metrics()
        self.store = FlakyStore()
        self.clients = [
            Client(number, f"static-{number}" if number % 3 == 0 else None) for number in range(6)
        ]
        self.requests: list[Pending] = []
        self.bugs: list[BaseException] = []
        self.nonce = 0
        self.commit_number = 0
        self.delay_s = random.choice((0.0, 0.0, 3.0))
        self.is_cooperative = random.random() < 0.4
        self.own_clock = OwnClock(
            Times(max(SESSIONS_MS) / 1000, max(REBALANCES_MS) / 1000, self.delay_s, RETENTION_S)
        )
        self.failures_seen = 0
        self.last_round = (0, 0.0)
        self.said: dict[str, set[bytes]] = {}
        """What each member id was ever sent with."""
        self.gone: set[str] = set()
        """Member ids that have left an empty group, which they were told."""
        self.dropped: dict[TopicId, int] = {}
        self.accepted: dict[Place, set[int]] = {}
        self.transactions = Transactions(self)
        self.forget_history()

    def forget_history(self) -> None:
        """The group is another one from now on: it was deleted, or nothing of it was left."""
        self.top_generation = 0
        self.formed: dict[int, tuple[str | None, frozenset[str]]] = {}
        self.nonces: dict[int, int] = {}
        self.acknowledged: dict[Place, int] = {}
        self.transactions.forget()

    # --- running ---------------------------------------------------------------------------------

    async def run(self, steps: int) -> None:
        """Take so many steps and check after each of them."""
        await self.start()
        await self.form_bystander()
        actions = [
            (self.join, 14),
            (self.join_again, 10),
            (self.sync, 18),
            (self.go_round, 8),
            (self.heartbeat, 8),
            (self.zombie, 8),
            (self.commit, 8),
            (self.commit_from_outside, 2),
            (self.transactions.commit_in_transaction, 8),
            (self.transactions.end_transaction, 8),
            (self.transactions.fail_in_a_transaction, 1),
            (self.transactions.zombie_of_a_transaction, 2),
            (self.leave, 4),
            (self.static_returns, 4),
            (self.advance, 12),
            (self.wait_alive, 2),
            (self.advance_far, 3),
            (self.jump, 2),
            (self.break_store, 3),
            (self.hold_store, 3),
            (self.crash, 2 if self.crashes else 0),
            (self.delete, 1),
            (self.forget_topic, 1),
        ]
        kinds = [action for action, _ in actions]
        weights = [weight for _, weight in actions]
        for _ in range(steps):
            action = self.random.choices(kinds, weights)[0]
            await action()
            self.counts[action.__name__] += 1
            self.counts["steps"] += 1
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
        self.seen = Seen()
        self.metrics = Metrics()
        self.life = OneLife(self.clock, self.look)
        self.life.jump_ms = self.jump_ms
        self.coordinator = GroupCoordinator(
            self.store,
            self.life,
            GroupSettings(
                groups_max=10,
                offsets_retention_s=RETENTION_S,
                limits=GroupLimits(MAX_SIZE, self.delay_s),
            ),
            self.metrics,
            self.bugs.append,
            {CLASSIC: CLASSIC_KIND._replace(begin=self.seen.begin)},
        )
        await self.coordinator.open(lambda _: True)
        self.beside.groups = self.coordinator

    async def form_bystander(self) -> None:
        """Bring the group that is left alone to Stable, with an offset committed."""
        joining = self.beside.ask_to_join(session_s=BYSTANDER_SESSION_MS / 1000)
        self.clock.advance(2 * self.delay_s)
        self.bystander = await answer(joining)
        await self.beside.sync(self.bystander, {self.bystander.member_id: b"all"})
        await self.beside.commit(1, self.bystander, topic_id=BYSTANDER_TOPIC)

    @property
    def now(self) -> Moment:
        return Moment(self.clock.monotonic_s(), self.life.wall_ms())

    def look(self) -> None:
        """See by the model's own clock what has become of the group."""
        if self.store.failures != self.failures_seen:
            # Loaded again from what is stored.
            self.failures_seen = self.store.failures
            self.own_clock.begin_anew(self.clock.monotonic_s())
        group = self.coordinator.describe(GROUP)
        self.own_clock.look(group, self.now)
        if self.store.gate is None:
            self.own_clock.judge_sessions(group, self.clock.monotonic_s())
        if group is not None:
            self.tell("look", group.state, group.generation, len(group.members))

    def tell(self, *what: object) -> None:
        """Write down what anybody was told; the wall clock is nowhere in it."""
        self.transcript.append((self.clock.monotonic_s(), *what))

    async def settle(self) -> None:
        """Let callbacks and the writer run, and the clients learn of their answers."""
        for _ in range(4):
            await asyncio.sleep(0)
        left = []
        for request in self.requests:
            if request.future.is_done:
                self.learn(request)
            else:
                left.append(request)
        self.requests = left
        self.look()

    async def end(self) -> None:
        """Everybody is answered when the process stops, and nothing was our own bug."""
        self.check()
        await self.coordinator.aclose()
        await self.settle()
        assert [] == self.requests
        assert [] == self.bugs

    # --- what a group's machine looks like -------------------------------------------------------

    @property
    def machine(self) -> ClassicGroup | None:
        return self.seen.machines[GROUP] if GROUP in self.coordinator.ids() else None

    @property
    def is_writing(self) -> bool:
        """Whether something is on its way to the store."""
        return len(asyncio.all_tasks()) > 1

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
                    one.said.protocols,
                    one.assignment,
                    one.join_waiter,
                    one.sync_waiter,
                )
                for one in machine.members.all
            ],
        )

    # --- actions ---------------------------------------------------------------------------------

    def request_of(self, client: Client, member_id: str, *, is_old: bool = False) -> JoinRequest:
        self.nonce += 1
        topic = f"topic-{client.variant}"
        subscription = ConsumerProtocolSubscription(topics=[topic])
        if self.is_cooperative and client.owned:
            owned = ConsumerProtocolTopicPartition(topic=topic, partitions=client.owned)
            subscription.owned_partitions = [owned]
        assignor = "cooperative-sticky" if self.is_cooperative else "range"
        return JoinRequest(
            member_id,
            client.instance,
            f"client-{client.number % 2}",
            "/192.0.2.1",
            self.random.choice(SESSIONS_MS),
            self.random.choice(REBALANCES_MS),
            "consumer",
            (MemberProtocol(assignor, encode_blob(subscription, 1)),),
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
            if machine.members.get(client.member_id) or client.member_id in machine.members.pending:
                for _ in range(1 + (self.random.random() < 0.15)):
                    self.ask_to_join(client, self.request_of(client, client.member_id))

    async def go_round(self) -> None:
        """Everybody with an id joins and asks for its part, as clients do that nothing disturbs."""
        for client in self.clients:
            if client.member_id:
                self.ask_to_join(client, self.request_of(client, client.member_id))
        await self.settle()
        for client in sorted(self.clients, key=lambda one: one.is_leader):
            if client.generation >= 0:
                self.ask_to_sync(client, self.assignments_of(client))

    def ask_to_join(self, client: Client, request: JoinRequest) -> None:
        member_id = request.member_id or request.new_member_id
        self.said.setdefault(member_id, set()).add(request.protocols[0].metadata)
        now_s = self.clock.monotonic_s()
        self.own_clock.asked(now_s)
        self.own_clock.heard(member_id, now_s)
        future = self.coordinator.ask(GROUP, request)
        self.requests.append(Pending("join", future, client, now_s, member_id))

    async def sync(self) -> None:
        """Members ask for their assignment; leaders bring one, now and then an empty one."""
        clients = [one for one in self.clients if one.generation >= 0]
        self.random.shuffle(clients)
        for client in clients[: self.random.randint(1, 6)]:
            brings = self.random.random() < 0.9
            assignments = self.assignments_of(client) if brings else ()
            for _ in range(1 + (self.random.random() < 0.1)):
                self.ask_to_sync(client, assignments)

    def assignments_of(self, client: Client) -> tuple[tuple[str, bytes], ...]:
        """Return what a leader hands out; nothing of any other member."""
        self.nonce += 1
        return tuple(
            (one, f"{client.generation}/{self.nonce}/{index}".encode())
            for index, one in enumerate(client.listed if client.is_leader else ())
        )

    def ask_to_sync(self, client: Client, assignments: tuple[tuple[str, bytes], ...]) -> None:
        request = SyncRequest(client.member_id, client.instance, client.generation, assignments)
        future = self.coordinator.ask(GROUP, request)
        now_s = self.clock.monotonic_s()
        self.own_clock.heard(client.member_id, now_s)
        pending = Pending("sync", future, client, now_s, client.member_id)
        pending.generation = client.generation
        self.requests.append(pending)

    async def heartbeat(self) -> None:
        for client in self.clients:
            code = self.heartbeat_of(client.member_id, client.instance, client.generation)
            self.tell("heartbeat", client.number, code.name)
            if code is ErrorCode.NONE or code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.own_clock.heard(client.member_id, self.clock.monotonic_s())
            if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
                client.member_id, client.generation = NO_MEMBER_ID, -1

    def heartbeat_of(self, member_id: str, instance: str | None, generation: int) -> ErrorCode:
        request = HeartbeatRequest(member_id, instance, generation)
        return at_once(self.coordinator.ask(GROUP, request))

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
        how = self.random.randrange(5)
        if how == 0:
            code = self.heartbeat_of(member_id, instance, generation)
        elif how == 1:
            request = SyncRequest(member_id, instance, generation, ((member_id, b"zombie"),))
            future = self.coordinator.ask(GROUP, request)
            assert before == self.picture(), "I4: a zombie's SyncGroup changes the group"
            if not future.is_done:  # behind a row that is being stored
                now_s = self.clock.monotonic_s()
                self.requests.append(Pending("sync", future, client, now_s, member_id))
                return
            code = future.result.error
        elif how == 2:
            offsets: OffsetChanges = {TOPICS[0]: {0: self.committed(-7)}}
            commit = CommitRequest(member_id, instance, generation, offsets)
            answer = self.coordinator.commit(GROUP, commit)
            assert answer.is_done, "I4: a zombie's commit is taken"
            code = answer.result
        elif how == 3:
            pending = PendingCommit(99, 0, {TOPICS[0]: {0: self.committed(-7)}})
            in_transaction = TxnCommitRequest(member_id, instance, generation, pending)
            answer = self.coordinator.commit_in_transaction(GROUP, in_transaction)
            assert answer.is_done, "I4: a zombie's commit in a transaction is taken"
            code = answer.result
        else:
            if kind == 0:
                return  # LeaveGroup carries no generation
            leave = LeaveRequest((LeavingMember(member_id, instance),))
            leaving = self.coordinator.ask(GROUP, leave)
            assert leaving.is_done, "I4: a zombie leaves"
            (code,) = leaving.result
        assert ErrorCode.NONE is not code, "I4: a zombie is taken for a member"
        assert before == self.picture(), "I4: a zombie changes the group"

    async def commit(self) -> None:
        """Members commit; several commits of one may overlap, and count in their order."""
        client = self.random.choice(self.clients)
        for _ in range(self.random.randint(1, 3)):
            group = self.coordinator.describe(GROUP)
            answer = self.start_commit(client, client.member_id, client.instance, client.generation)
            if group is not None and group.state == GroupState.COMPLETING_REBALANCE.value:
                assert answer.is_done, "I4: taken before the assignment"

    async def commit_from_outside(self) -> None:
        """Anybody commits while the group has no members, whomever the request names."""
        machine = self.machine
        is_open = machine is None or machine.state is GroupState.EMPTY
        client = self.random.choice(self.clients)
        member_id = self.random.choice((NO_MEMBER_ID, client.member_id, "nobody"))
        instance = self.random.choice((None, client.instance))
        answer = self.start_commit(client, member_id, instance, -1)
        if not is_open:
            assert answer.is_done, "I4: taken beside the members"

    def committed(self, number: int) -> CommittedOffset:
        now_s = self.clock.monotonic_s()
        return CommittedOffset(number, -1, "", self.life.wall_ms(), NO_EXPIRY_MS, now_s)

    def start_commit(
        self, client: Client, member_id: str, instance: str | None, generation: int
    ) -> Reply[ErrorCode]:
        self.commit_number += 1
        number = self.commit_number
        topic_id = self.random.choice(TOPICS)
        partitions = self.random.choice(((0,), (1,), (17,), (0, 1), (0, 17), (17, 1, 0)))
        places = [(topic_id, partition) for partition in partitions]
        entries = dict.fromkeys(partitions, self.committed(number))
        offsets: OffsetChanges = {topic_id: entries if len(places) == 1 else block_of(entries)}
        request = CommitRequest(member_id, instance, generation, offsets)
        answer = self.coordinator.commit(GROUP, request)
        if answer.is_done and answer.result is not ErrorCode.NONE:
            self.tell("commit", client.number, answer.result.name)
            return answer
        self.own_clock.heard(member_id, self.clock.monotonic_s())
        for place in places:
            self.accepted.setdefault(place, set()).add(number)
        acknowledged, committed_at = self.acknowledged, self.now

        def done(_: object) -> None:
            is_stored = answer.result is ErrorCode.NONE
            self.tell("commit", number, answer.result.name)
            if is_stored and number > self.dropped.get(topic_id, 0):
                for place in places:
                    if number > acknowledged.get(place, 0):
                        acknowledged[place] = number
                        self.own_clock.committed([place], committed_at)
                self.counts["commits"] += 1

        if answer.is_done:
            done(answer)
        else:
            answer.when_done(done)
        return answer

    async def leave(self) -> None:
        """Some members leave in one request, with somebody unknown among them."""
        leavers = self.random.sample(self.clients, self.random.choice((1, 2, len(self.clients))))
        leaving = [LeavingMember(one.member_id, one.instance) for one in leavers]
        leaving.insert(0, LeavingMember("nobody"))
        known = self.machine is not None
        answer = self.coordinator.ask(GROUP, LeaveRequest(tuple(leaving)))
        group = self.coordinator.describe(GROUP)
        ids = {one.member_id for one in leaving}
        if group is not None and group.state == GroupState.EMPTY.value:
            # While others have yet to join, who leaves may be a member again after a crash.
            if answer.is_done:
                self.left(ids, answer.result)
            else:
                answer.when_done(lambda _: self.left(ids, answer.result))
        if answer.is_done:
            assert ErrorCode.UNKNOWN_MEMBER_ID is answer.result[0]
            assert known or set(answer.result) == {ErrorCode.UNKNOWN_MEMBER_ID}
        for client in leavers:
            client.member_id, client.generation = NO_MEMBER_ID, -1

    def left(self, member_ids: set[str], codes: list[ErrorCode]) -> None:
        """Everybody was told what became of it, and nobody is in the group any more."""
        if ErrorCode.NONE in codes:
            self.gone |= member_ids
            self.counts["groups left empty"] += 1

    async def static_returns(self) -> None:
        """A static member of a stable group comes back, wanting the same (I5)."""
        machine = self.machine
        if machine is None or machine.state is not GroupState.STABLE:
            return
        for client in self.clients:
            member = machine.members.static(client.instance)
            if member is None:
                continue
            old_id, generation, assignment = member.member_id, machine.generation, member.assignment
            topics = subscribed_topics(member.said.protocols[0].metadata)
            assert topics is not None
            (topic,) = topics
            # A process that has just started owns nothing, and wants what the one before wanted.
            client.variant, client.owned = int(topic[-1]), []
            self.ask_to_join(client, self.request_of(client, NO_MEMBER_ID))
            assert GroupState.STABLE is machine.state, "I5: a return is no reason to rebalance"
            assert generation == machine.generation, "I5: another generation"
            assert assignment == member.assignment, "I5: another assignment"
            code = self.heartbeat_of(old_id, client.instance, generation)
            assert ErrorCode.FENCED_INSTANCE_ID is code, "I5: the old process is not fenced"
            self.counts["static members back"] += 1
            return

    async def advance(self) -> None:
        self.clock.advance(self.random.choice((0.1, 1.0, 3.0)))

    async def wait_alive(self) -> None:
        """Time passes while every member sends heartbeats and nothing else."""
        group = self.coordinator.describe(GROUP)
        alive = [
            one
            for one in self.clients
            if group is not None
            and group.state == GroupState.STABLE.value
            and group.generation == one.generation == one.synced_generation
        ]
        is_whole = (
            group is not None
            and {one.member_id for one in alive} == {one.member_id for one in group.members}
            and not self.requests
            and self.store.gate is None
        )
        await self.heartbeat()
        ids = {one.member_id for one in alive if one.member_id}
        is_whole = is_whole and len(ids) == len(alive) > 0
        for _ in range(9):
            self.clock.advance(4.0)
            await self.heartbeat()
            await self.settle()
            self.check()
        if is_whole:
            self.counts["whole groups kept alive"] += 1
            group = self.coordinator.describe(GROUP)
            found = set() if group is None else {one.member_id for one in group.members}
            assert ids == found, "I2: put out although it was heard of"

    async def advance_far(self) -> None:
        self.clock.advance(self.random.choice((7.0, 25.0, 700.0, 4000.0)))

    async def jump(self) -> None:
        """Somebody sets the wall clock (I9)."""
        by_ms = self.random.choice((-1, 1)) * self.random.choice((1000, 10**10))
        if self.jumps:
            self.jump_ms += by_ms
            self.life.jump_ms = self.jump_ms

    async def break_store(self) -> None:
        self.store.outcome = self.random.choice(("refused", "unknown"))

    async def hold_store(self) -> None:
        if self.store.gate is None:
            self.store.hold()

    def release_store(self) -> None:
        if self.store.gate is not None:
            self.own_clock.released(self.clock.monotonic_s())
            self.store.release()

    async def crash(self) -> None:
        """The process dies: what was on its way to the disk has arrived, or it has not."""
        held = self.store.held
        self.life.end()
        await asyncio.sleep(0)
        if held and self.random.random() < 0.5:
            await MemoryStateStore.apply(self.store, held)
        self.store.gate, self.store.held = None, ()
        self.store.outcome = "stored"
        self.requests = []
        self.transactions.crash()
        was_going = self.seen.deletions > 0
        await self.start()
        machine = self.machine
        group = self.coordinator.describe(GROUP)
        self.own_clock.restarted(group, self.now)
        # A deletion that failed may have been stored all the same.
        if was_going and (machine is None or machine.generation == 0):
            self.forget_history()
        self.transactions.check_halves()
        # I3: nothing that anybody was told is given out again.
        generation = 0 if machine is None else machine.generation
        assert generation >= self.top_generation, "I3: a generation goes back"

    async def delete(self) -> None:
        before = self.coordinator.describe(GROUP)
        answer = self.coordinator.ask(GROUP, DeleteRequest())
        if answer.is_done:
            assert ErrorCode.NONE is not answer.result
            return
        assert before is not None
        assert GroupState.EMPTY.value == before.state
        self.forget_history()

    async def forget_topic(self) -> None:
        topic_id = self.random.choice(TOPICS)
        self.coordinator.forget_topic(topic_id)
        self.dropped[topic_id] = self.commit_number
        self.transactions.forget_topic(topic_id)
        for place in [one for one in self.acknowledged if one[0] == topic_id]:
            del self.acknowledged[place]

    # --- what clients learn ----------------------------------------------------------------------

    def learn(self, request: Pending) -> None:
        result = request.future.result
        client = request.client
        self.tell(request.kind, client.number, result)
        self.own_clock.heard(request.waiting.member_id, self.clock.monotonic_s())
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
        if result.generation not in self.formed:
            self.count_round(result.generation)
        told = self.formed.setdefault(result.generation, (result.protocol_name, listed))
        assert told[0] == result.protocol_name, "I3: two protocols in a generation"
        for one in result.members:
            assert one.metadata in self.said[one.member_id], "metadata that nobody sent"
        if listed:
            assert not told[1] or told[1] == listed, "I3: a generation formed twice"
            self.formed[result.generation] = (result.protocol_name, listed)

    def count_round(self, generation: int) -> None:
        """Count generations, and those that follow another one without time in between."""
        now_s = self.clock.monotonic_s()
        self.counts["generations"] += 1
        if (generation - 1, now_s) == self.last_round:
            self.counts["generations at once after another"] += 1
        self.last_round = (generation, now_s)

    def learn_sync(self, request: Pending, result: SyncResult) -> None:
        """I1: within a generation everybody has its part of one and the same assignment."""
        generation = request.generation
        client = request.client
        if generation == client.generation:
            is_other = result.assignment != client.part
            client.synced_generation, client.part = generation, result.assignment
            if self.is_cooperative and is_other:
                self.revoke(client)
        if result.assignment:
            told_generation, nonce, _ = map(int, result.assignment.split(b"/"))
            assert generation == told_generation, "I1: an assignment of another generation"
        else:
            nonce = 0
        if nonce:
            known = self.nonces.setdefault(generation, nonce)
            assert nonce == known, "I1: two assignments in a generation"

    def revoke(self, client: Client) -> None:
        """Join again at once, without what has to be given away: a cooperative round is two."""
        before, client.owned = client.owned, [len(client.part) % 7, client.number]
        if before and self.random.random() < 0.7:
            self.ask_to_join(client, self.request_of(client, client.member_id))
            self.counts["joined again to revoke"] += 1

    # --- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        assert [] == self.bugs
        self.check_bystander()
        self.transactions.check()
        self.check_offsets()
        described = self.coordinator.describe(GROUP)
        members_now = () if described is None else described.members
        back = self.gone & {one.member_id for one in members_now}
        assert not back, "a member that was told that it has left is back"
        now_s = self.clock.monotonic_s()
        if self.store.gate is None:
            waiting = [one.waiting for one in self.requests]
            self.own_clock.judge_answers(waiting, now_s)
        machine = self.machine
        self.check_counts(machine)
        if machine is None:
            if not self.requests:
                self.forget_history()
            return
        members = list(machine.members.all)
        # I1: no two members have the same part.
        parts = [one.assignment for one in members if one.assignment]
        assert len(parts) == len(set(parts)), "I1: two owners"
        # I2: the leader knew of everybody.
        if machine.state is GroupState.STABLE and machine.generation in self.formed:
            listed = self.formed[machine.generation][1]
            for one in members:
                is_known = (one.group_instance_id or one.member_id) in listed
                assert not listed or is_known, "I2: the leader does not know of a member"
        assert machine.generation >= self.top_generation or self.is_writing, "I3"
        pending = machine.members.pending
        assert len(members) + len(pending) <= MAX_SIZE, "I7: ids take no place"
        assert all(one.expires_s > now_s for one in pending.values()), "I7: an id lives on"
        # Whoever is not told yet will be: there is a row on its way.
        assert not any(one.is_untold for one in members) or self.is_writing
        if self.store.gate is None:
            self.own_clock.judge_round(described, waiting, now_s)
        assert (0 == len(members)) == (machine.state in {GroupState.EMPTY, GroupState.DEAD})
        if members:
            assert machine.members.get(machine.members.leader_id)

    def check_counts(self, machine: ClassicGroup | None) -> None:
        """The gauges are those of both groups."""
        metrics = self.metrics
        states = Counter([GroupState.STABLE.value])
        member_count = 1
        if machine is not None:
            states[machine.state.value] += 1
            member_count += len(machine.members.all)
        assert states == Counter({name: count for name, count in metrics.groups.items() if count})
        assert member_count == metrics.group_members

    def check_bystander(self) -> None:
        """I10: whatever is being stored for a group, another one does not wait for it."""
        code = self.beside.heartbeat(self.bystander)
        assert ErrorCode.NONE is code, "I10: put out by what happens to another group"
        synced = self.beside.ask_to_sync(self.bystander)
        assert synced.is_done, "I10: waits for what another group stores"
        assert b"all" == synced.result.assignment
        found = self.beside.committed(topic_id=BYSTANDER_TOPIC)
        assert found is not None, "an acknowledged commit of a group with members is lost"
        self.counts["looks at the other group"] += 1
        if self.store.gate is not None:
            self.counts["looks at the other group while the store is held"] += 1

    def check_offsets(self) -> None:
        """Every acknowledged commit is there, unless one that came later is, or it is too old."""
        table = self.coordinator.offsets(GROUP)
        now_s = self.clock.monotonic_s()
        for place, number in list(self.acknowledged.items()):
            found = None if table is None else table.get(*place)
            if found is None and self.own_clock.may_expire(place, now_s):
                assert not self.transactions.holds(place), "I12: expired while open"
                del self.acknowledged[place]
                self.counts["commits expired"] += 1
                continue
            assert found is not None, "an acknowledged commit is lost"
            assert found.offset >= number, "a commit was rewound"
        if table is not None:
            for place, found in held(table).items():
                assert found.offset > 0, "I4: a zombie's commit was taken"
                is_accepted = found.offset in self.accepted.get(place, ())
                assert is_accepted, "I11: an offset that was not committed is told"
