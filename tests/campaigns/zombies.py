"""G4: whoever is no member of a generation any more tries to act as one; nothing comes of it.

Run as `python -m tests.campaigns.zombies --full --seed N`. Most attempts are made in-process, where
all that a group tells of itself can be compared; some over sockets, against a gateway that is
killed in between. Every request goes through the codec, in any of its versions. That a zombie keeps
no member alive, which no group tells, is the model's to see (tests/groups/test_model.py).
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kgw.client import AdminClient, AsyncClient
from kgw.config.load import load_config
from kgw.errors import NO_ERROR, ErrorCode
from kgw.groups.classic import ClassicGroup
from kgw.groups.members import Member, MemberTable
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kgw.protocol.messages.heartbeat import HeartbeatRequest
from kgw.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kgw.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kgw.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kgw.testing.gateway import InProcessGateway
from kgw.testing.process import GatewayProcess
from kgw.transactions import machine
from tests import patience
from tests.campaigns.support import Report, checked_directory, main, replaced
from tests.campaigns.zombie_places import NO_GROUP, InProcess, OverSockets
from tests.groups.wire import PROTOCOL_TYPE, WireMember, commit_request, errors_of, settle
from tests.handlers.support import request_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kgw.protocol.schema import Request
    from tests.campaigns.zombie_places import Place
    from tests.groups.wire import Ask

TOPIC = "orders"
PARTITIONS = 3
INSTANCE = "instance"
SESSION_MS = 3_000
"""Of who is evicted."""
PATIENCE_MS = 120_000
"""The session and the rebalance timeout of all others: a slow machine must evict nobody."""
STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty")
REQUESTS = ("heartbeat", "sync", "commit", "leave", "join", "txn commit")
OLD_EPOCH = "old producer epoch"
NO_TRANSACTION = "producer without a transaction"
ATTEMPTS_A_GROUP = 40
ANSWER_S = 4.0
BAD_OFFSET = 1_000_000


class TransactionalProducer(NamedTuple):
    """Whom a TxnOffsetCommit comes from."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Zombie(NamedTuple):
    """Whom a request claims to come from."""

    kind: str
    member_id: str
    instance: str | None
    generation: int
    ask: Ask | None = None
    """The connection that the member had; without one it may use another member's."""
    group_id: str | None = None
    """Another group than the one that it was in."""
    producer: TransactionalProducer | None = None
    """Another producer than the one whose transaction goes on; it speaks for no member."""


class Story:
    """One group with a past: members that were evicted, have left, were replaced."""

    def __init__(self, report: Report, random: Random, place: Place, number: int) -> None:
        self._report = report
        self._random = random
        self._place = place
        self._waiting: asyncio.Task[ErrorCode] | None = None
        self._producer: TransactionalProducer
        self._has_pending = bool(number % 2)
        """Whether offsets wait for the end of a transaction while the zombies are there."""
        self.group_id = f"group-{number}"
        self.members: list[WireMember] = []
        self.zombies: list[Zombie] = []
        self.committed = 0

    async def live(self, state: str) -> None:
        """Let the past happen, and end it in a state."""
        await self._make_producers()
        for instance in (None, None, INSTANCE):
            self.members.append(await self._member(instance))
        await settle(self.members)
        await self._commit()
        for member in self.members:
            self._remember("old generation", member)
        leaver = await self._guest()
        self._remember("left", leaver)
        await leaver.leave()
        await self._settle()
        evicted = await self._guest(SESSION_MS)
        self._remember("evicted", evicted)
        await self._evict()
        await self._settle()
        await self._replace_static()
        if await self._place.restart():
            for member in self.members:
                self._remember("from before the restart", member)
                member.ask = await self._place.connect()
            self._forget_connections()
            guest = await self._guest()
            await guest.leave()
            await self._settle()
        await self._commit()
        await self._enter(state)
        await self._begin_transaction()
        self._invent()

    async def end(self) -> None:
        """See that the group goes on as if nothing had been tried."""
        await self._end_transaction()
        await self._settle()
        if self._waiting is not None:
            await self._waiting  # answered when its member joined anew
        await self._commit()
        self._report.count("groups_that_go_on")

    async def _member(
        self, instance: str | None = None, session_ms: int = PATIENCE_MS
    ) -> WireMember:
        ask = await self._place.connect()
        return WireMember(
            self.group_id,
            ask,
            instance=instance,
            session_ms=session_ms,
            rebalance_ms=PATIENCE_MS,
        )

    async def _guest(self, session_ms: int = PATIENCE_MS) -> WireMember:
        guest = await self._member(session_ms=session_ms)
        await settle([*self.members, guest])
        return guest

    # --- its producers ---------------------------------------------------------------------------

    async def _make_producers(self) -> None:
        """Have one that is fenced, one in its place, and one that has no transaction."""
        fenced = await self._make_producer("copier")
        self._producer = await self._make_producer("copier")
        idle = await self._make_producer("idle")
        for kind, producer in ((OLD_EPOCH, fenced), (NO_TRANSACTION, idle)):
            self.zombies.append(Zombie(kind, "", None, -1, producer=producer))

    async def _make_producer(self, name: str) -> TransactionalProducer:
        transactional_id = f"{self.group_id}-{name}"
        answer = await self._call(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id=transactional_id,
            transaction_timeout_ms=PATIENCE_MS,
        )
        return TransactionalProducer(transactional_id, answer.producer_id, answer.producer_epoch)

    async def _begin_transaction(self) -> None:
        """Have the group in a transaction, so that the producer's part is right."""
        who = self._producer._asdict()
        await self._call(ApiKey.ADD_OFFSETS_TO_TXN, 3, **who, group_id=self.group_id)
        if self._has_pending:
            ask = await self._place.connect()
            self.committed += 1
            request = self._txn_commit(Zombie("", "", None, -1), {0: self.committed})
            assert {ErrorCode.NONE} == set(errors_of(await ask(request, 2)))

    async def _end_transaction(self) -> None:
        """Commit it: of the zombies' offsets there is none."""
        await self._call(ApiKey.END_TXN, 3, **self._producer._asdict(), committed=True)
        found = -1
        for _ in range(1_000):
            topics = [{"name": TOPIC, "partition_indexes": [0]}]
            answer = await self._call(
                ApiKey.OFFSET_FETCH, 7, group_id=self.group_id, topics=topics, require_stable=True
            )
            (one,) = answer.topics[0].partitions
            if not one.error_code:
                found = one.committed_offset
                break
            await asyncio.sleep(0.001)  # the group is about to be told
        if found != self.committed:
            self._report.fail(f"{self.group_id}: {found} is committed, not {self.committed}")

    def _txn_commit(self, zombie: Zombie, offsets: dict[int, int]) -> Request:
        partitions = [
            {"partition_index": number, "committed_offset": offset}
            for number, offset in offsets.items()
        ]
        request: Request = request_of(
            ApiKey.TXN_OFFSET_COMMIT,
            **(zombie.producer or self._producer)._asdict(),
            group_id=zombie.group_id or self.group_id,
            generation_id_or_member_epoch=zombie.generation,
            member_id=zombie.member_id,
            group_instance_id=zombie.instance,
            topics=[{"name": TOPIC, "partitions": partitions}],
        )
        return request

    async def _call(self, api: ApiKey, version: int, **fields: Any) -> Any:
        ask = await self._place.connect()
        answer: Any = await ask(request_of(api, **fields), version)
        code = ErrorCode(answer.error_code)
        assert code is ErrorCode.NONE, f"{api.name}: {code.name}"
        return answer

    # --- its members -----------------------------------------------------------------------------

    async def _settle(self) -> None:
        for member in self.members:
            if member.member_id:
                await member.heartbeat()
        await settle(self.members)

    async def _evict(self) -> None:
        """Let a session pass in which only those who stay are heard of."""
        for _ in range(4):
            await self._place.pass_time(SESSION_MS / 1_000 * 0.3)
            for member in self.members:
                await member.heartbeat()
                if not member.assignment:  # the round waits for everybody
                    await settle(self.members)

    async def _replace_static(self) -> None:
        old = self.members[2]
        self._remember("replaced", old)
        self.zombies.append(self.zombies[-1]._replace(kind="replaced, no instance", instance=None))
        self.members[2] = await self._member(INSTANCE)
        await self._settle()

    async def _commit(self) -> None:
        self.committed += 1
        offsets = dict.fromkeys(range(PARTITIONS), self.committed)
        for member in self.members:
            code = await member.commit(TOPIC, offsets)
            if code is not ErrorCode.NONE:
                self._report.fail(f"{self.group_id}: a member cannot commit: {code.name}")

    async def _enter(self, state: str) -> None:
        """Bring the group from Stable into a state."""
        for member in self.members:
            self._remember("old generation", member)
        if state == "PreparingRebalance":
            newcomer = await self._member(f"{INSTANCE}-2")
            self._waiting = asyncio.create_task(newcomer.join())
            while (await self.members[0].heartbeat()) is not ErrorCode.REBALANCE_IN_PROGRESS:  # noqa: ASYNC110
                await asyncio.sleep(0)
            self.members.append(newcomer)
        elif state == "CompletingRebalance":
            # A leader that was replaced does not hear that it leads.
            leader = next((one for one in self.members if one.others), self.members[2])
            joins = [asyncio.create_task(leader.join())]
            others = [one for one in self.members if one is not leader]
            while (await others[0].heartbeat()) is not ErrorCode.REBALANCE_IN_PROGRESS:  # noqa: ASYNC110
                await asyncio.sleep(0)
            joins += [asyncio.create_task(one.join()) for one in others]
            assert {ErrorCode.NONE} == set(await asyncio.gather(*joins))
        elif state == "Empty":
            for member in self.members:
                self._remember("left", member)
                await member.leave()

    def _remember(self, kind: str, member: WireMember) -> None:
        self.zombies.append(
            Zombie(kind, member.member_id, member.instance, member.generation, member.ask)
        )

    def _forget_connections(self) -> None:
        self.zombies = [one._replace(ask=None) for one in self.zombies]

    def _invent(self) -> None:
        """Add who never was: strangers, mismatched ids, generations to come."""
        generation = max(one.generation for one in self.members)
        live = [one.member_id for one in self.members if one.member_id]
        self.zombies += [
            Zombie("unknown member", "nobody-1", None, generation),
            Zombie("unknown instance", "nobody-2", "nobody", generation),
            Zombie("instance of another", "nobody-3", INSTANCE, generation),
            Zombie("no member id", "", None, generation),
            Zombie("no group", "nobody-4", None, generation, None, NO_GROUP),
        ]
        for member_id in live:
            self.zombies += [
                Zombie("generation to come", member_id, None, generation + 1),
                Zombie("generation long ago", member_id, None, max(0, generation - 3)),
                Zombie("no generation", member_id, None, -1),
                Zombie("no group", member_id, None, generation, None, NO_GROUP),
            ]
            if member_id != self.members[2].member_id:
                self.zombies.append(Zombie("another's instance", member_id, INSTANCE, generation))
        if live:
            self.zombies.append(Zombie("from outside", "", None, -1))

    # --- attempts --------------------------------------------------------------------------------

    async def attempt(self) -> bool:
        """Let a zombie try something; False when that would be nobody's harm."""
        who = self._random.choice(sorted({one.kind for one in self.zombies}))
        zombie = self._random.choice([one for one in self.zombies if one.kind == who])
        kind = "txn commit" if zombie.producer else self._random.choice(REQUESTS)
        request, version, expected = self._request(zombie, kind)
        if request is None:
            return False
        is_old = self._random.random() < 0.5
        ask = zombie.ask or self.members[0].ask
        if not is_old:
            ask = await self._place.connect()
        group_id = zombie.group_id or self.group_id
        before = await self._place.picture(group_id)
        try:
            async with asyncio.timeout(patience.seconds(ANSWER_S)):
                codes = errors_of(await ask(request, version))
        except TimeoutError:
            codes = []
        after = await self._place.picture(group_id)
        what = f"{self._place.name}: {self.group_id}: {kind} v{version} of {zombie}"
        for wrong in judge(zombie, kind, codes, expected):
            self._report.fail(f"{what}: {wrong}")
        if before != after:
            self._report.fail(f"{what}: changed the group: {before} became {after}")
        self._report.count("attempts")
        self._report.count(f"attempts_{self._place.name}")
        self._report.count(f"on_{'an old' if is_old else 'a new'}_connection")
        self._report.count(f"by: {zombie.kind}")
        self._report.count(f"with: {kind}")
        self._report.count(f"refused with {expected.name}")
        return True

    def _request(self, zombie: Zombie, kind: str) -> tuple[Request | None, int, ErrorCode]:
        """Return what a zombie sends, in a version, and what it must hear; None: it may do that."""
        first, with_instance, last = {
            "heartbeat": (0, 3, 4),
            "sync": (0, 3, 5),
            "commit": (1, 7, 9),
            "leave": (0, 3, 5),
            "join": (0, 5, 9),
            # Before v3 nobody says for whom it is.
            "txn commit": (0 if zombie.producer else 3, 3, 5),
        }[kind]
        if zombie.kind == NO_TRANSACTION:
            last = 4  # from v5 on that begins one
        if kind == "txn commit" and zombie.group_id is not None:
            first = 5  # which takes the group into the transaction, as in Kafka
        version = self._random.randint(first, last)
        if version < with_instance:
            zombie = zombie._replace(instance=None)
        expected = self._expected(zombie, kind, version)
        if expected is ErrorCode.NONE:
            return None, version, expected
        group_id = zombie.group_id or self.group_id
        generation, member_id, instance = zombie.generation, zombie.member_id, zombie.instance
        request: Request
        if kind == "heartbeat":
            request = HeartbeatRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
            )
        elif kind == "sync":
            parts = [
                SyncGroupRequestAssignment(member_id=one, assignment=b"a zombie's")
                for one in (member_id, *(each.member_id for each in self.members))
            ]
            request = SyncGroupRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type=PROTOCOL_TYPE,
                protocol_name="any",
                assignments=parts,
            )
        elif kind in {"commit", "txn commit"}:
            offset = self._random.choice((0, BAD_OFFSET))
            places = self._random.sample(range(PARTITIONS), self._random.randint(1, PARTITIONS))
            offsets = dict.fromkeys(places, offset)
            request = (
                self._txn_commit(zombie, offsets)
                if kind == "txn commit"
                else commit_request(group_id, member_id, instance, generation, TOPIC, offsets)
            )
        elif kind == "leave":
            identity = MemberIdentity(member_id=member_id, group_instance_id=instance)
            request = (
                LeaveGroupRequest(group_id=group_id, member_id=member_id)
                if version < with_instance
                else LeaveGroupRequest(
                    group_id=group_id, members=[identity] * self._random.randint(1, 2)
                )
            )
        else:
            request = JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name="any", metadata=b"")],
            )
        return request, version, expected

    def _expected(self, zombie: Zombie, kind: str, version: int) -> ErrorCode:
        """Return what Kafka answers; NONE where the request is not a zombie's."""
        if kind == "txn commit":
            return self._expected_of_producer(zombie, version)
        return self._expected_of_member(zombie, kind, version)

    def _expected_of_member(self, zombie: Zombie, kind: str, version: int) -> ErrorCode:
        live = {one.member_id: one for one in self.members if one.member_id}
        if zombie.group_id is not None:
            if kind == "commit":
                return ErrorCode.ILLEGAL_GENERATION if version < 9 else ErrorCode.GROUP_ID_NOT_FOUND
            return ErrorCode.UNKNOWN_MEMBER_ID
        if kind == "join" and (not zombie.member_id or zombie.instance not in {None, INSTANCE}):
            return ErrorCode.NONE if not zombie.member_id else ErrorCode.UNKNOWN_MEMBER_ID
        if kind == "commit" and zombie.generation < 0 and not live:
            return ErrorCode.NONE
        if zombie.instance is not None:
            static = [one for one in live.values() if one.instance == zombie.instance]
            if static and kind == "leave" and not zombie.member_id:
                return ErrorCode.NONE  # an administrator removes it
            if static and static[0].member_id != zombie.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if not static:
                return ErrorCode.UNKNOWN_MEMBER_ID
        if zombie.member_id not in live:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if kind in {"leave", "join"}:
            return ErrorCode.NONE  # these carry no generation
        if zombie.generation != live[zombie.member_id].generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def _expected_of_producer(self, zombie: Zombie, version: int) -> ErrorCode:
        if zombie.kind == OLD_EPOCH:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if zombie.kind == NO_TRANSACTION:
            return ErrorCode.INVALID_TXN_STATE if version < 4 else ErrorCode.TRANSACTION_ABORTABLE
        if zombie.group_id is not None:
            return ErrorCode.ILLEGAL_GENERATION
        if zombie.generation < 0 and not (zombie.member_id or zombie.instance):
            return ErrorCode.NONE  # a producer from before KIP-447
        return self._expected_of_member(zombie, "commit", version)


def judge(
    zombie: Zombie, kind: str, codes: Sequence[ErrorCode], expected: ErrorCode
) -> Iterator[str]:
    """Yield what is wrong with the codes that a zombie is answered with: all must be one."""
    if not codes:
        yield "not answered"
    if ErrorCode.NONE in codes and kind == "txn commit":
        yield f"{zombie.kind}: a transactional commit was accepted"
    elif ErrorCode.NONE in codes:
        yield "accepted"
    elif set(codes) - {expected}:
        yield f"{[code.name for code in codes]}, not {expected.name}"


async def haunt(report: Report, random: Random, place: Place, attempts: int) -> None:
    """Make groups and let zombies at them until there were so many attempts."""
    number = 0
    wanted = report.counts["attempts"] + attempts
    while report.counts["attempts"] < wanted:
        state = STATES[number % len(STATES)]
        story = Story(report, random, place, number)
        number += 1
        await story.live(state)
        report.count(f"groups in {state}")
        tried = 0
        while tried < ATTEMPTS_A_GROUP:
            tried += await story.attempt()
        await story.end()


async def in_process(report: Report, random: Random, attempts: int) -> None:
    """Let zombies at a gateway in this process."""
    setting = ("group.min.session.timeout.ms", str(SESSION_MS), "the campaign")
    config = load_config(overrides=[setting])
    async with InProcessGateway(config) as gateway:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        await gateway.request(CreateTopicsRequest(topics=[topic]), 5)
        await haunt(report, random, InProcess(gateway), attempts)


async def over_sockets(report: Report, random: Random, attempts: int) -> None:
    """Let zombies at a gateway process."""
    with checked_directory() as directory:
        setting = f"group.min.session.timeout.ms={SESSION_MS}"
        gateway = GatewayProcess(directory / "data", setting)
        await asyncio.to_thread(gateway.start)
        place = OverSockets(gateway)
        try:
            async with AsyncClient([(gateway.host, gateway.port)]) as client:
                await AdminClient(client).create_topic(TOPIC, partitions=PARTITIONS)
            await haunt(report, random, place, attempts)
        finally:
            await place.aclose()
            if gateway.running:
                await asyncio.to_thread(gateway.stop)


def believes_any_generation(self: ClassicGroup, request: Any) -> Member | ErrorCode:
    """Stand in for the look-up of members, without a word about generations."""
    return self.members.find(request.member_id, request.group_instance_id)


def believes_any_process(
    self: MemberTable, member_id: str, group_instance_id: str | None
) -> Member | ErrorCode:
    """Stand in for the look-up of members: an instance id is enough."""
    return self.static(group_instance_id) or self.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID


def believes_anybody(*_: object) -> ErrorCode:
    """Stand in for a comparison."""
    return NO_ERROR


CONTROLS: Sequence[tuple[object, str, Callable[..., Any], str]] = (
    (ClassicGroup, "_find_current", believes_any_generation, "accepted"),
    (MemberTable, "find", believes_any_process, "accepted"),
    # Of transactional commits: whose member it is, and which epoch the producer has.
    (ClassicGroup, "_txn_commit_problem", believes_anybody, "a transactional commit was accepted"),
    (machine, "_check", believes_anybody, f"{OLD_EPOCH}: a transactional commit was accepted"),
)


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = Report("zombies", seed)
    random = Random(seed)
    bulk, sockets = (1_000, 200) if full else (160, 40)
    asyncio.run(in_process(report, random, bulk))
    asyncio.run(over_sockets(report, random, sockets))
    report.require("attempts_in-process", bulk)
    report.require("attempts_sockets", sockets)
    for kind in REQUESTS:
        report.require(f"with: {kind}", (bulk + sockets) // 20)
    report.require("on_an old_connection", (bulk + sockets) // 10)
    for who in (OLD_EPOCH, NO_TRANSACTION):
        report.require(f"by: {who}", (bulk + sockets) // 50)
    for owner, name, unsafe, found in CONTROLS:
        control = Report(f"zombies without {name}", seed)
        with replaced(owner, name, unsafe):
            asyncio.run(in_process(control, Random(seed), 160 if full else 80))
        report.expect_alarm(control, found)
    return report


if __name__ == "__main__":
    main(run)
