"""G6: a gateway is killed while a group is in each of its states; nothing of the group is lost.

Run as `python -m tests.campaigns.group_kills --full --seed N`. The members speak the protocol
themselves: no client library would hold a group in a state for as long as the kill takes to come.
Beside the group that is killed in its state, others commit and rebalance all the time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from kgw.client import AdminClient, AsyncClient, ClientError, Connection, GroupClient
from kgw.client.errors import ServerRefusedError
from kgw.errors import ErrorCode
from kgw.protocol.schema import Response
from kgw.testing.process import SERVE, GatewayProcess
from tests import patience
from tests.campaigns import broken_groups_serve
from tests.campaigns.support import Report, checked_directory, main
from tests.groups.wire import WireMember, settle

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from kgw.protocol.schema import Request

TOPIC = "orders"
PARTITIONS = 4
BYSTANDERS = 6
STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
DELETING = "Dead, not yet answered"
RECOVERED_S = 5.0
"""Less than a session: nobody recovers by waiting for others to be given up."""
LONGEST_WAIT_S = 0.08
DELETION_S = 0.003
LATE_SYNCS = 0.3
"""In so many of the kills in CompletingRebalance the leader's assignment is on its way."""


class Link:
    """A connection that is opened anew after each start of the gateway."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    async def ask(self, request: Request, version: int) -> Response:
        """Send a request. Raises ClientError when the gateway ends before it answers."""
        # Of two connections one would be forgotten, and never closed.
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                self._connection = await Connection.open(self._gateway.host, self._gateway.port)
            connection = self._connection
        return await connection.ask(
            request, Response, version=version, timeout_s=patience.seconds(20)
        )

    async def aclose(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.aclose()


class Worker(WireMember):
    """A member that commits to a partition of its own, one offset after the other."""

    def __init__(
        self, gateway: GatewayProcess, group_id: str, partition: int, instance: str | None = None
    ) -> None:
        self.link = Link(gateway)
        super().__init__(group_id, self.link.ask, instance=instance)
        self.partition = partition
        self.sent = 0
        self.acknowledged = 0
        self.refusals: Counter[str] = Counter()

    async def commit_next(self) -> ErrorCode:
        """Commit the next offset."""
        self.sent += 1
        number = self.sent
        code = await self.commit(TOPIC, {self.partition: number})
        if code is ErrorCode.NONE:
            self.acknowledged = number
        else:
            self.refusals[code.name] += 1
        return code

    async def commit_on(self, *, rejoins: bool = False) -> None:
        """Commit, and now and then rebalance, until the connection is lost."""
        while True:
            code = await self.commit_next()
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                await asyncio.sleep(0.002)
            if rejoins and self.sent % 5 == 0:
                await self.join()
                await self.sync()


class Target:
    """The group in whose state the gateway is killed."""

    def __init__(self, gateway: GatewayProcess, number: int) -> None:
        self.group_id = f"target-{number}"
        self._gateway = gateway
        self.workers = [
            Worker(gateway, self.group_id, 0, "static"),
            Worker(gateway, self.group_id, 1),
            Worker(gateway, self.group_id, 2),
        ]
        self.highest_generation = 0
        self.may_be_gone = False
        self.is_deleted = False
        self.running: list[asyncio.Task[object]] = []

    @property
    def static(self) -> Worker:
        """The static member."""
        return self.workers[0]

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Let something go on until the gateway is killed."""
        self.running.append(asyncio.create_task(work))

    async def enter(self, state: str, groups: GroupClient, random: Random) -> None:
        """Bring the group into a state, with something going on in it."""
        await settle(self.workers)
        for worker in self.workers:
            for _ in range(random.randint(1, 3)):
                assert await worker.commit_next() is ErrorCode.NONE
        if state == "Stable":
            for worker in self.workers:
                self.start(worker.commit_on())
        elif state == "PreparingRebalance":
            newcomer = Worker(self._gateway, self.group_id, 3)
            self.workers.append(newcomer)
            self.start(newcomer.join())
            for worker in self.workers[:3]:
                self.start(worker.commit_on())
        elif state == "CompletingRebalance":
            await self._join_all(groups)
            leader = next(one for one in self.workers if one.others)
            for worker in self.workers:
                if worker is not leader:
                    self.start(worker.sync())
        else:
            for worker in self.workers:
                assert await worker.leave() is ErrorCode.NONE
            if state == "Empty":
                self.start(self._commit_from_outside())
            elif state == "Dead":
                await groups.delete(self.group_id)
                self.is_deleted = True
            else:
                self.may_be_gone = True
                self.start(groups.delete(self.group_id))
        self.highest_generation = max(one.generation for one in self.workers)

    async def _join_all(self, groups: GroupClient) -> None:
        """Bring the group from Stable to CompletingRebalance: its leader joins, then the others."""
        joins = [asyncio.ensure_future(one.join()) for one in self.workers if one.others]
        while (await groups.describe(self.group_id)).state != "PreparingRebalance":  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        others = [one for one in self.workers if one.assignment]
        joins += [asyncio.ensure_future(one.join()) for one in others]
        assert {ErrorCode.NONE} == set(await asyncio.gather(*joins))

    async def sync_late(self, wait_s: float) -> None:
        """Let the leader bring its assignment after a while."""
        await asyncio.sleep(wait_s)
        await next(one for one in self.workers if one.others).sync()

    async def _commit_from_outside(self) -> None:
        worker = self.workers[0]
        worker.member_id, worker.generation, worker.instance = "", -1, None
        await worker.commit_on()


async def ended(running: Sequence[asyncio.Task[object]]) -> None:
    """Wait for what went on to fail with the gateway; any other failure is raised."""
    for result in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, ClientError):
            raise result


class Killer:
    """Kills the gateway in states, and looks at what it knows afterwards."""

    def __init__(self, report: Report, random: Random, gateway: GatewayProcess) -> None:
        self._report = report
        self._random = random
        self._gateway = gateway
        self._bystanders = [
            Worker(gateway, f"bystander-{number}", 0, f"instance-{number}")
            for number in range(BYSTANDERS)
        ]
        self._targets: list[Target] = []
        self._slowest_s = 0.0

    async def run(self, states: Sequence[str]) -> None:
        """Kill the gateway once in each of these states, one after the other."""
        for one in self._bystanders:
            await settle([one])
        for number, state in enumerate(states):
            target = Target(self._gateway, number)
            self._targets.append(target)
            beside: list[asyncio.Task[object]] = [
                asyncio.ensure_future(one.commit_on(rejoins=place % 2 == 1))
                for place, one in enumerate(self._bystanders)
            ]
            async with self._client() as client:
                groups = GroupClient(client)
                await target.enter(state, groups, self._random)
                while state != DELETING and await self._state(groups, target) != state:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
                if state == "CompletingRebalance" and self._random.random() < LATE_SYNCS:
                    # May be stored or not when the kill comes.
                    target.start(target.sync_late(self._random.uniform(0, LONGEST_WAIT_S)))
                    self._report.count("killed while the assignment came")
                longest_s = DELETION_S if state == DELETING else LONGEST_WAIT_S
                await asyncio.sleep(self._random.uniform(0, longest_s))
                await asyncio.to_thread(self._gateway.kill)
                self._report.count(f"killed in {state}")
            self._report.count("kills")
            await ended([*target.running, *beside])
            await asyncio.to_thread(self._gateway.start)
            where = f"kill {number} in {state}"
            async with self._client() as client:
                await self._check(where, state, target, GroupClient(client))
        async with self._client() as client:
            for target in self._targets:
                await self._check_commits("at the end", target, GroupClient(client))
        for worker in [*self._bystanders, *(one for each in self._targets for one in each.workers)]:
            self._report.count("commits_acknowledged", worker.acknowledged)
            await worker.link.aclose()

    def _client(self) -> AsyncClient:
        return AsyncClient([(self._gateway.host, self._gateway.port)])

    async def _state(self, groups: GroupClient, target: Target) -> str:
        try:
            return (await groups.describe(target.group_id)).state
        except ServerRefusedError as error:
            return "Dead" if error.code is ErrorCode.GROUP_ID_NOT_FOUND else error.code.name

    async def _check(self, where: str, state: str, target: Target, groups: GroupClient) -> None:
        found = await self._state(groups, target)
        if target.is_deleted and found != "Dead":
            self._report.fail(f"{where}: the deleted group is {found}")
        if target.may_be_gone and found == "Dead":
            target.is_deleted = True
            self._report.count("deletions that came before the kill")
        await self._check_commits(where, target, groups)
        for one in self._bystanders:
            await self._check_bystander(where, one, groups)
        if state in {"PreparingRebalance", "CompletingRebalance", "Stable"}:
            await self._check_undisturbed(where, state, target)
        await self._recover(where, target, groups)

    async def _check_commits(self, where: str, target: Target, groups: GroupClient) -> None:
        stored = {
            place: one.offset for place, one in (await groups.offsets(target.group_id)).items()
        }
        if target.is_deleted:
            if stored:
                self._report.fail(f"{where}: offsets of a deleted group: {stored}")
            return
        for worker in target.workers:
            self._compare(where, worker, stored.get((TOPIC, worker.partition), 0))

    def _compare(self, where: str, worker: Worker, stored: int) -> None:
        self._report.count("commits_compared")
        for wrong in wrong_commit(worker.acknowledged, worker.sent, stored):
            self._report.fail(f"{where}: {worker.group_id}: {wrong}")

    async def _check_bystander(self, where: str, worker: Worker, groups: GroupClient) -> None:
        offsets = await groups.offsets(worker.group_id)
        found = offsets.get((TOPIC, worker.partition))
        self._compare(where, worker, 0 if found is None else found.offset)
        generation = int((await groups.explain(worker.group_id))["generation"])
        self._check_generation(where, worker.group_id, generation, worker.generation)
        await self._expect_member(where, worker, may_rejoin=generation != worker.generation)
        try:
            await settle([worker], RECOVERED_S)
        except TimeoutError:
            self._report.fail(f"{where}: {worker.group_id} does not recover")

    async def _check_undisturbed(self, where: str, state: str, target: Target) -> None:
        """Members are still members, of the same generation, with the same parts."""
        for worker in target.workers[:3]:
            await self._expect_member(where, worker)
            if state == "Stable":
                had = worker.assignment
                code = await worker.sync()
                if (code, had) != (ErrorCode.NONE, worker.assignment):
                    self._report.fail(f"{where}: {worker.member_id} has another part: {code.name}")

    async def _expect_member(self, where: str, worker: Worker, *, may_rejoin: bool = False) -> None:
        kind = "dynamic" if worker.instance is None else "static"
        code = await worker.heartbeat()
        self._report.count(f"{kind}_members_asked")
        if code is not ErrorCode.NONE and not (may_rejoin and code is ErrorCode.ILLEGAL_GENERATION):
            self._report.fail(f"{where}: {kind} member disturbed: {worker.group_id}, {code.name}")

    def _check_generation(self, where: str, group_id: str, found: int, told: int) -> None:
        self._report.count("generations_compared")
        for wrong in wrong_generation(told, found):
            self._report.fail(f"{where}: {group_id}: {wrong}")

    async def _recover(self, where: str, target: Target, groups: GroupClient) -> None:
        """Everybody comes back; the group must be stable within the time, and take commits."""
        began_s = asyncio.get_running_loop().time()
        static_id = target.static.member_id
        target.static.instance = "static"
        try:
            await settle(target.workers, RECOVERED_S)
        except TimeoutError:
            self._report.fail(f"{where}: the group does not recover")
            return
        self._slowest_s = max(self._slowest_s, asyncio.get_running_loop().time() - began_s)
        self._report.counts["slowest_recovery_ms"] = int(1_000 * self._slowest_s)
        self._report.count("recovered")
        is_kept = (await self._state(groups, target)) == "Stable"
        if not is_kept:
            self._report.fail(f"{where}: not stable after everybody has come back")
        generation = max(one.generation for one in target.workers)
        if target.is_deleted:
            target.is_deleted = False
            for worker in target.workers:
                worker.acknowledged = 0
        else:
            self._check_generation(where, target.group_id, generation, target.highest_generation)
        target.highest_generation = generation
        if static_id and static_id != target.static.member_id:
            self._report.fail(f"{where}: the static member has another id")
        for worker in target.workers:
            if (code := await worker.commit_next()) is not ErrorCode.NONE:
                self._report.fail(f"{where}: no commit after the recovery: {code.name}")


def wrong_commit(acknowledged: int, sent: int, stored: int) -> Iterator[str]:
    """Yield what is wrong with a stored offset; 0 is none. Commits are sent in rising order."""
    if stored < acknowledged:
        yield f"commit lost: {stored} is stored, {acknowledged} was acknowledged"
    if stored > sent:
        yield f"commit invented: {stored} is stored, {sent} was sent"


def wrong_generation(told: int, found: int) -> Iterator[str]:
    """Yield what is wrong with a generation: members have been told of one already."""
    if found < told:
        yield f"went back from generation {told} to {found}"


def run_kills(
    seed: int, kills_a_state: int, command: Sequence[str] = SERVE, states: Sequence[str] = STATES
) -> Report:
    """Kill a gateway so often in each state."""
    report = Report("group-kills", seed)
    random = Random(seed)
    planned = [state for state in states for _ in range(kills_a_state)]
    planned += [DELETING] * ((kills_a_state + 1) // 2 if "Dead" in states else 0)
    random.shuffle(planned)

    async def kills() -> None:
        with checked_directory() as directory:
            gateway = GatewayProcess(directory / "data", command=command)
            await asyncio.to_thread(gateway.start)
            try:
                async with AsyncClient([(gateway.host, gateway.port)]) as client:
                    await AdminClient(client).create_topic(TOPIC, partitions=PARTITIONS)
                await Killer(report, random, gateway).run(planned)
            finally:
                if gateway.running:
                    await asyncio.to_thread(gateway.stop)

    asyncio.run(kills())
    for state in states:
        report.require(f"killed in {state}", kills_a_state)
    report.require("recovered", len(planned))
    report.require("commits_acknowledged", 20 * len(planned))
    return report


CONTROLS = {"answers-first": "commit lost", "forgets-members": "static member disturbed"}


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = run_kills(seed, 20 if full else 1)
    for bug, what in CONTROLS.items():
        command = broken_groups_serve.command(bug)
        control = run_kills(seed, 3 if full else 1, command, ("Stable",))
        report.expect_alarm(control, what)
    return report


if __name__ == "__main__":
    main(run)
