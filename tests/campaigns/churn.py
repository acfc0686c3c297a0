"""G5: members of every client library come, go, are killed and paused; so is the gateway.

Run as `python -m tests.campaigns.churn --full --seed N`. Each member is a process of its own, in
the environment of its library, and says what it was given, what it read, what it committed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.client import AsyncClient, ClientError, GroupClient
from kgw.testing.process import SERVE, GatewayProcess
from tests import patience
from tests.campaigns import broken_groups_serve
from tests.campaigns.churn_book import GroupBook, WrittenRecords, what_lacks
from tests.campaigns.client_process import ClientProcess
from tests.campaigns.support import Report, checked_directory, main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from confluent_kafka import KafkaError, Message

MEMBER = "tests.campaigns.churn_member"
TOPIC = "churn"
PARTITIONS = 6
RECORDS_PER_S = 80
SETTLE_S = 40.0
EVENTS_BETWEEN_SETTLING = 20
SAMPLE_S = 1.0
MIN_SESSION_MS = 1_000
SETTING = f"group.min.session.timeout.ms={MIN_SESSION_MS}"

_SILENT = logging.getLogger("churn")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Kind(NamedTuple):
    """A group: how it shares partitions, and of what libraries its members are."""

    name: str
    strategy: str
    libraries: tuple[str, ...]
    is_static: bool = False
    members_max: int = 3


EAGER = ("kafka-python-2", "kafka-python-3", "aiokafka", "confluent-kafka")
KINDS = (
    Kind("mixed-range", "range", EAGER, members_max=4),
    Kind("mixed-static", "range", EAGER, is_static=True),
    Kind("roundrobin", "roundrobin", ("kafka-python-2", "aiokafka")),
    Kind("kafka-python-cooperative", "cooperative-sticky", ("kafka-python-3",)),
    Kind("confluent-cooperative", "cooperative-sticky", ("confluent-kafka",)),
)
FENCING_UNKNOWN = frozenset({"aiokafka"})
"""aiokafka 0.14 knows no FENCED_INSTANCE_ID: it asks again for ever."""
SHORT_KINDS = (KINDS[4], Kind("confluent-static", "range", ("confluent-kafka",), is_static=True))
EVENTS = {
    "join": 28,
    "leave": 14,
    "kill": 14,
    "pause": 24,
    "replace": 5,
    "gateway_restart": 7,
    "gateway_kill": 8,
}


class Child(ClientProcess):
    """One member's process."""

    def __init__(
        self, library: str, book: GroupBook, options: dict[str, str | None], log: Path
    ) -> None:
        self.instance = options["instance"]
        self.resume_at_s: float | None = None
        self.ended_because: str | None = None
        self._book = book
        super().__init__(library, MEMBER, options, self._take, log)

    def _take(self, line: dict[str, Any]) -> None:
        if line["at"] == "ended":
            self.ended_because = line["why"]
        self._book.hear(line, self.instance)

    def pause(self, until_s: float) -> None:
        """Stop its clock until then."""
        self.resume_at_s = until_s
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.resume_at_s = None
        self.send(signal.SIGCONT)


class Writer:
    """Writes records all the time."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 600_000,
                "retry.backoff.ms": 30,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            },
            logger=_SILENT,
        )
        self._lock = threading.Lock()
        self._written = WrittenRecords(range(PARTITIONS))
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.05):
            for _ in range(max(1, RECORDS_PER_S // 20)):
                number += 1
                self._producer.produce(
                    TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._took
                )
            self._producer.poll(0)

    def _took(self, error: KafkaError | None, message: Message) -> None:
        offset, partition = message.offset(), message.partition()
        if error is not None or offset is None or partition is None:
            self.errors.append(f"a record was not written: {error}")
            return
        with self._lock:
            self.errors += self._written.take(partition, offset)

    def written(self) -> dict[int, set[int]]:
        """Return the offsets that were acknowledged so far."""
        with self._lock:
            return {partition: set(offsets) for partition, offsets in self._written.offsets.items()}

    def stop(self) -> None:
        """Write no more, and wait for what is on its way."""
        self._stopping.set()
        self._thread.join()
        self._producer.flush(60)


class Churn:
    """One run over some groups."""

    def __init__(
        self,
        report: Report,
        random: Random,
        gateway: GatewayProcess,
        kinds: Sequence[Kind],
        settle_s: float,
    ) -> None:
        self._report = report
        self._random = random
        self._gateway = gateway
        self._settle_s = settle_s
        self._kinds = kinds
        self._books = {kind.name: GroupBook(kind.name, report) for kind in kinds}
        self._children: dict[str, list[Child]] = {kind.name: [] for kind in kinds}
        self._gone: list[Child] = []
        self._writer = Writer(gateway.bootstrap)
        self._sampled_s = 0.0
        self._longest_settling_s = 0.0

    # --- events ----------------------------------------------------------------------------------

    def kill_all(self) -> None:
        """Kill every member that there is or was."""
        for children in [*self._children.values(), self._gone]:
            for child in children:
                child.send(signal.SIGKILL)

    def run(self, events: Sequence[str] | int) -> None:
        """Let so many events happen, or these; then let everything be read, and judge."""
        for kind in self._kinds:
            self._open(kind)
        self.settle("at the start")
        script = None if isinstance(events, int) else list(events)
        count = events if isinstance(events, int) else len(events)
        for number in range(1, count + 1):
            while not self._happen(script[number - 1] if script else self._choose()):
                if script:
                    break
            self._report.count("events")
            self._wait(self._random.uniform(0.1, 0.7))
            is_due = number % EVENTS_BETWEEN_SETTLING == 0 or number == count
            if is_due and not self.settle(f"after event {number}"):
                self._revive()
        self._writer.stop()
        self.settle("at the end")
        self._end()

    def _choose(self) -> str:
        return self._random.choices(list(EVENTS), list(EVENTS.values()))[0]

    def _happen(self, event: str) -> bool:
        """Let an event happen; False when there is nobody whom it could happen to."""
        if event == "settle":  # of controls alone
            self.settle("in between")
            return True
        kinds = [one for one in self._kinds if one.is_static or event != "replace"]
        if not kinds:
            return False
        kind = self._random.choice(kinds)
        running = [one for one in self._members(kind) if one.resume_at_s is None]
        detail = ""
        if event == "join":
            if len(self._members(kind)) >= kind.members_max or not self._open(kind):
                return False
        elif event == "replace":
            if not running:
                return False
            self._open(kind, self._random.choice(running).instance)
        elif event in {"gateway_restart", "gateway_kill"}:
            self._restart(is_kill=event == "gateway_kill")
        elif not running:
            return False
        else:
            child = self._random.choice(running)
            detail = f"_{child.library}"
            if event == "pause":
                is_long = self._random.random() < 0.2
                for_s = self._random.uniform(3.5, 6.0) if is_long else self._random.uniform(0.2, 2)
                child.pause(time.monotonic() + for_s)
                self._report.count("pauses_beyond_session", is_long)
            else:
                self._drop(kind, child, signal.SIGKILL if event == "kill" else signal.SIGTERM)
        self._report.count(f"event_{event}")
        if detail:
            self._report.count(f"event_{event}{detail}")
        return True

    def _open(self, kind: Kind, instance: str | None = None) -> bool:
        if kind.is_static and instance is None:
            taken = {one.instance for one in self._members(kind)}
            free = [
                f"instance-{n}" for n in range(kind.members_max) if f"instance-{n}" not in taken
            ]
            if not free:
                return False
            instance = self._random.choice(free)
        library = self._random.choice(kind.libraries)
        options = {
            "bootstrap": self._gateway.bootstrap,
            "group": kind.name,
            "topic": TOPIC,
            "strategy": kind.strategy,
            "instance": instance,
        }
        log = self._gateway.data_dir.with_name(f"{library}.log")
        self._children[kind.name].append(Child(library, self._books[kind.name], options, log))
        self._report.count(f"members_of_{library}")
        return True

    def _members(self, kind: Kind) -> list[Child]:
        """Return the members that live; those that have ended by themselves are put aside."""
        for child in [one for one in self._children[kind.name] if not one.alive]:
            self._children[kind.name].remove(child)
            self._gone.append(child)
            child.wait(patience.seconds(10))
            if child.ended_because == "fenced":
                self._report.count("fenced")
            else:
                self._report.fail(f"{kind.name}: a {child.library} ended: {child.ended_because}")
        return self._children[kind.name]

    def _restart(self, *, is_kill: bool) -> None:
        if is_kill:
            self._gateway.kill()
        elif (status := self._gateway.stop()) != 0:
            self._report.fail(f"exit status {status} after SIGTERM")
        time.sleep(self._random.choice((0.0, 0.0, 0.5)))
        self._gateway.start()

    def _wait(self, for_s: float) -> None:
        until_s = time.monotonic() + for_s
        while (now_s := time.monotonic()) < until_s:
            for children in self._children.values():
                for child in children:
                    if child.resume_at_s is not None and child.resume_at_s <= now_s:
                        child.resume()
            if now_s - self._sampled_s >= SAMPLE_S:
                self._sampled_s = now_s
                asyncio.run(self._sample())
            time.sleep(0.02)

    # --- looking ---------------------------------------------------------------------------------

    async def _sample(self) -> None:
        """Look at every group once."""
        try:
            async with AsyncClient([(self._gateway.host, self._gateway.port)]) as client:
                for kind in self._kinds:
                    await self._look(GroupClient(client), kind)
        except ClientError as error:
            self._report.fail(f"the gateway does not answer: {error}")

    async def _look(self, groups: GroupClient, kind: Kind) -> str:
        """Look at a group, and say what it lacks to be settled; "" when it is."""
        book = self._books[kind.name]
        acknowledged = book.acknowledged()
        stored = await _stored(groups, kind)
        book.see_offsets(acknowledged, stored)
        try:
            generation = int((await groups.explain(kind.name))["generation"])
            details = await groups.describe(kind.name)
            again = int((await groups.explain(kind.name))["generation"])
        except ClientError as error:
            return f"cannot be described: {error}"
        book.see_generation(generation)
        book.see_generation(again)
        if details.state == "Stable" and generation == again:
            book.see_members(generation, details)
        alive = [one.instance for one in self._children[kind.name] if one.alive]
        return what_lacks(
            details,
            (generation, again),
            range(PARTITIONS),
            alive if kind.is_static else [None] * len(alive),
            {number: max(offsets) + 1 for number, offsets in self._target.items() if offsets},
            stored,
        )

    def settle(self, when: str) -> bool:
        """Heal everything; each group must be stable, shared and read to the end in time."""
        for kind in self._kinds:
            for child in self._members(kind):
                child.resume()
            self._end_replaced(kind)
            if not self._members(kind):
                self._open(kind)
        self._target = self._writer.written()
        began_s = time.monotonic()
        lacking = asyncio.run(self._settle(began_s + patience.seconds(self._settle_s)))
        self._longest_settling_s = max(self._longest_settling_s, time.monotonic() - began_s)
        self._report.counts["longest_settling_ms"] = int(1_000 * self._longest_settling_s)
        for name, what in lacking.items():
            who = [f"{one.library}/{one.instance}" for one in self._children[name]]
            account = self._books[name].account(range(PARTITIONS))
            self._report.fail(f"{name}: stuck {when}: {what}; members {who}; {account}")
        self._report.count("settled", len(self._kinds) - len(lacking))
        return not lacking

    def _end_replaced(self, kind: Kind) -> None:
        """End processes whose instance another one has by now, of libraries that do not notice."""
        newest = {one.instance: one for one in self._members(kind)}
        for child in list(self._members(kind)) if kind.is_static else ():
            if child.library in FENCING_UNKNOWN and newest[child.instance] is not child:
                self._drop(kind, child, signal.SIGKILL)
                self._report.count("replaced_without_noticing")

    def _drop(self, kind: Kind, child: Child, number: signal.Signals) -> None:
        child.send(number)
        self._children[kind.name].remove(child)
        self._gone.append(child)

    async def _settle(self, deadline_s: float) -> dict[str, str]:
        lacking = dict.fromkeys((kind.name for kind in self._kinds), "not looked at")
        async with AsyncClient([(self._gateway.host, self._gateway.port)]) as client:
            groups = GroupClient(client)
            while lacking and time.monotonic() < deadline_s:
                await asyncio.sleep(0.25)
                for kind in self._kinds:
                    self._members(kind)
                    if kind.name in lacking:
                        lacking[kind.name] = await self._look(groups, kind)
                        if not lacking[kind.name]:
                            del lacking[kind.name]
        return lacking

    def _revive(self) -> None:
        """Put new members into groups that did not settle, so that the rest tells something."""
        for kind in self._kinds:
            for child in list(self._members(kind)):
                self._drop(kind, child, signal.SIGKILL)
            self._open(kind)

    def _end(self) -> None:
        """Let everybody leave, and judge."""
        left = [one for children in self._children.values() for one in children]
        for child in left:
            child.send(signal.SIGTERM)
        for child in [*left, *self._gone]:
            child.wait(patience.seconds(20))
        stored = asyncio.run(self._stored())
        written = self._writer.written()
        self._report.count("records_written", sum(map(len, written.values())))
        for error in self._writer.errors:
            self._report.fail(error)
        for name, book in self._books.items():
            book.see_offsets(book.acknowledged(), stored[name])
            book.judge(stored[name], written)

    async def _stored(self) -> dict[str, dict[int, int]]:
        async with AsyncClient([(self._gateway.host, self._gateway.port)]) as client:
            groups = GroupClient(client)
            return {kind.name: await _stored(groups, kind) for kind in self._kinds}


async def _stored(groups: GroupClient, kind: Kind) -> dict[int, int]:
    """Return what a group has committed, by partition."""
    offsets = await groups.offsets(kind.name)
    return {partition: found.offset for (_, partition), found in offsets.items()}


def run_churn(
    seed: int,
    events: Sequence[str] | int,
    kinds: Sequence[Kind],
    command: Sequence[str] = SERVE,
    settle_s: float = SETTLE_S,
) -> Report:
    """Let events happen to groups of these kinds."""
    report = Report("churn", seed)
    count = events if isinstance(events, int) else len(events)
    with checked_directory() as directory:
        gateway = GatewayProcess(directory / "data", SETTING, command=command)
        gateway.start()
        admin = AdminClient({"bootstrap.servers": gateway.bootstrap}, logger=_SILENT)
        for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            future.result(patience.seconds(20))
        churn = Churn(report, Random(seed), gateway, kinds, settle_s)
        try:
            churn.run(events)
        finally:
            churn.kill_all()
            if gateway.running:
                gateway.kill()
    report.require("events", count)
    report.require("members_committed", count)
    report.require("claims", count)
    return report


CONTROLS = {
    "everybody-gets-everything": ("two owners", ("join", "join")),
    "commits-too-far": ("skipped", ("kill", "join", "settle", "kill", "join", "settle")),
    "answers-first": ("commit lost", ("join", *(["gateway_kill"] * 4))),
    "nobody-expires": ("stuck", ("join", "join", "kill")),
}


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = run_churn(seed, 500, KINDS) if full else run_churn(seed, 12, SHORT_KINDS)
    if full:
        for event, share in EVENTS.items():
            report.require(f"event_{event}", share * 3)
        for library in EAGER:
            report.require(f"members_of_{library}", 20)
        report.require("fenced", 5)
    for bug, (what, events) in CONTROLS.items() if full else ():
        command = broken_groups_serve.command(bug)
        report.expect_alarm(run_churn(seed, events, SHORT_KINDS[:1], command, 8.0), what)
    return report


if __name__ == "__main__":
    main(run)
