"""J1: ten clients of four libraries, transactions among them, under all kinds of faults at once.

Run as `python -m tests.campaigns.mixed --full --seed N`. Every five seconds another set of faults
begins; in between everything is healed, and each client must go on. In the end every partition is
read with both isolations, and the history of all operations is judged.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import threading
import time
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kgw.client import AdminClient, AsyncClient, ClientError
from kgw.client.values import LATEST
from tests import patience
from tests.campaigns.client_process import ClientProcess
from tests.campaigns.history import (
    AnomalyKind,
    Bounds,
    Commit,
    FetchedOffset,
    FinalLog,
    Outcome,
    Poll,
    Seek,
    Send,
    TransactionEnd,
    check_history,
    check_progress,
)
from tests.campaigns.machine import RunQueueWaits
from tests.campaigns.mixed_faults import FAULTS, KGW_SERVE, Faults, faults_around
from tests.campaigns.support import Report, checked_directory, main

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.campaigns.history import Event

TOPIC = "mixed"
PARTITIONS = 6
MEMBER = "tests.campaigns.mixed_member"
PHASE_S = 5.0
"""How long a set of faults lasts, and a quiet phase at the least."""
SHORT_PHASE_S = 1.5
PROGRESS_S = 10.0
EXCUSED_MAX_S = 20.0
"""So much longer a client may take on a busy machine, at the most."""
OK_RATE = 0.999
"""Of all operations in quiet phases, and of each kind but for one of them."""
FULL_S = 300.0
STOP_S = 60.0
DRAIN_S = 60.0
SAMPLE_S = 1.0
LOOK_S = 0.1
FULL_OPERATIONS = 100_000
FULL_FAULTS = 40
FLOORS = {
    "quiet_operations": 50_000,
    "transactions_commit_ok": 300,
    "transactions_abort_fail": 80,
    "transactions_left_fail": 20,
    "operation_commit-offsets": 250,
    "operation_fetch-offsets": 30,
    "polled": 100_000,
    "bounds": 600,
}
"""What there must be to judge: about a quarter of what a very busy machine does."""

_SILENT = logging.getLogger("mixed")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Client(NamedTuple):
    """One of the clients: its library, and what it does."""

    library: str
    role: str
    isolation: str = "read_uncommitted"

    @property
    def name(self) -> str:
        """Its name, also as the id of its transactions or its group."""
        committed = "-committed" if self.isolation == "read_committed" else ""
        return f"{self.role}{committed}-{self.library}"


CLIENTS = (
    Client("confluent-kafka", "idempotent"),
    Client("kafka-python-2", "idempotent"),
    Client("aiokafka", "idempotent"),
    Client("confluent-kafka", "transactional"),
    Client("kafka-python-3", "transactional"),
    Client("aiokafka", "transactional"),
    Client("kafka-python-3", "assigned"),
    Client("confluent-kafka", "assigned", "read_committed"),
    Client("kafka-python-2", "subscribed"),
    Client("aiokafka", "subscribed", "read_committed"),
)
LIBRARIES = sorted({client.library for client in CLIENTS})
REASONS = {
    "left on purpose": "left",
    "HungError": "hung",
    "fenc": "fenced",
    "out.?of.?order": "sequence",
    "producer.?epoch": "epoch",
    "unknown.?producer|producer.?id.?mapping": "unknown-id",
    "txn.?state": "state",
    "storage": "storage",
    "time|expired": "time-out",
    "coordinator|concurrent": "coordinator",
    "connect|transport|broker|disconnected": "connection",
}
"""What a library's words are counted as: the first that fits."""
NOT_TO_HAPPEN = {"fenced", "sequence", "epoch", "unknown-id", "state"}
"""Why no producer has to be made anew: each has its id for itself, and no fault outlasts what the
gateway remembers."""
LOST_POSITION = re.compile("(?i)out.?of.?range|no.?offset|auto.offset.reset")
PUT_OUT = re.compile("(?i)unknown.?member|commit.?failed|illegal.?generation")
"""How a member hears that its group has gone on without it."""


def reason_of(why: str) -> str:
    """Return what a library's words are counted as."""
    for words, name in REASONS.items():
        if re.search(words, why, re.IGNORECASE):
            return name
    return "other"


class Operation(NamedTuple):
    """Something that a client did."""

    client: str
    what: str
    began_s: float
    ended_s: float
    outcome: Outcome
    why: str = ""


class Book:
    """What one client has said. It is heard in a thread of its own."""

    def __init__(self, client: Client, report: Report) -> None:
        self.client = client
        self._name = client.name
        self._report = report
        self.events: list[tuple[float, Event]] = []
        self.operations: list[Operation] = []
        self.polled: dict[int, set[int]] = {number: set() for number in range(PARTITIONS)}
        self.has_ended = False
        self.last_ok_s = 0.0
        """When the last operation began by which it has gone on."""

    def hear(self, line: dict[str, Any]) -> None:
        """Take one line; see mixed_member.py."""
        match line.pop("at"):
            case "sent":
                self._take_sends(line["sends"])
            case "end":
                self._take_end(line)
            case "polled":
                self._take_records(line)
            case "sought":
                self._report.count("assignments")
                for partition in line["partitions"]:
                    self._add(line, Seek(self._name, partition))
            case "commit":
                outcome = Outcome(line["outcome"])
                for partition, offset in line["offsets"]:
                    self._add(line, Commit(self._name, self._name, partition, offset, outcome))
                self._note("commit-offsets", line["began"], line["ended"], outcome, line["why"])
            case "fetched":
                for partition, offset in line["offsets"]:
                    self._add(line, FetchedOffset(self._name, partition, offset))
                self._note("fetch-offsets", line["began"], line["ended"], Outcome.OK)
            case "trouble":
                if LOST_POSITION.search(line["why"]):
                    self._report.fail(f"POSITION lost by {self._name}: {line['why']}")
                self._note(line["what"], line["began"], line["ended"], Outcome.INFO, line["why"])
            case "anew":
                self._take_anew(line["why"])
            case "ended":
                self.has_ended = True

    def unread(self, partition: int, log: FinalLog) -> set[int]:
        """Return the offsets of what a reader has still to get of a log, by its isolation."""
        is_committed = self.client.isolation == "read_committed"
        wanted = {offset for offset, _ in (log.committed if is_committed else log.records) or ()}
        return wanted - self.polled[partition]

    def _take_sends(self, sends: list[Any]) -> None:
        for process, partition, value, said, offset, transaction, began_s, ended_s in sends:
            outcome = Outcome(said)
            send = Send(process, partition, value.encode(), outcome, offset, transaction)
            # In the order of sending, whatever was answered first.
            self.events.append((began_s, send))
            self._note("send", began_s, ended_s, outcome)

    def _take_end(self, line: dict[str, Any]) -> None:
        outcome, how = Outcome(line["outcome"]), line["how"]
        self._add(line, TransactionEnd(self._name, line["transaction"], outcome))
        self._report.count(f"transactions_{how}_{outcome.value}")
        if how != "left":
            done = Outcome.INFO if line["why"] else Outcome.OK
            self._note(how, line["began"], line["ended"], done, line["why"])

    def _take_anew(self, why: str) -> None:
        reason = reason_of(why)
        self._report.count(f"anew_{self.client.library}_{reason}")
        if reason != "left":
            self._say(f"anew, {reason}: {why}")
        if reason in NOT_TO_HAPPEN:
            self._report.fail(f"REFUSED: {self._name}: {why}")

    def _take_records(self, line: dict[str, Any]) -> None:
        is_committed = self.client.isolation == "read_committed"
        for partition, found in line["records"]:
            records = tuple((offset, value.encode()) for offset, value in found)
            self._add(line, Poll(self._name, partition, records, read_committed=is_committed))
            self.polled[partition].update(offset for offset, _ in records)
            self._report.count("polled", len(records))
        self._note("poll", line["began"], line["ended"], Outcome.OK)

    def _add(self, line: dict[str, Any], event: Event) -> None:
        self.events.append((line["ended"], event))

    def _say(self, what: str) -> None:
        print(f"{time.monotonic():.1f} {self._name}: {what}", flush=True)

    def _note(
        self, what: str, began_s: float, ended_s: float, outcome: Outcome, why: str = ""
    ) -> None:
        operation = Operation(self._name, what, began_s, ended_s, outcome, why)
        self.operations.append(operation)
        self._report.count("operations")
        self._report.count(f"operations_{outcome.value}")
        self._report.count(f"operation_{what}")
        if self.has_gone_on(operation):
            self.last_ok_s = max(self.last_ok_s, began_s)

    def has_gone_on(self, operation: Operation) -> bool:
        """Whether an operation shows that the client is not stuck.

        A producer with transactions must end one: what it sends is worth nothing before.
        """
        is_enough = self.client.role != "transactional" or operation.what in {"commit", "abort"}
        return operation.outcome is Outcome.OK and is_enough


class Quiet(NamedTuple):
    """A time without faults."""

    healed_s: float
    until_s: float


class Mixed:
    """One run."""

    def __init__(
        self, report: Report, random: Random, faults: Faults, clients: Iterable[Client]
    ) -> None:
        self._report = report
        self._random = random
        self._faults = faults
        self._gateway = faults.gateway
        self._books = [Book(client, report) for client in clients]
        self._processes: list[ClientProcess] = []
        self._bounds: list[tuple[float, Event]] = []
        self._quiet: list[Quiet] = []
        self._is_over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def run(self, sets: Iterable[Sequence[str] | None], phase_s: float) -> None:
        """Alternate sets of faults, None for a random one, with quiet phases; then judge."""
        asyncio.run(self._create_topic())
        for number, book in enumerate(self._books):
            options = {
                **book.client._asdict(),
                "name": book.client.name,
                "bootstrap": self._faults.bootstrap,
                "topic": TOPIC,
                "partitions": PARTITIONS,
                "seed": self._random.randrange(1 << 30) + number,
            }
            log = self._gateway.data_dir.with_name(f"{book.client.name}.log")
            self._processes.append(
                ClientProcess(book.client.library, MEMBER, options, book.hear, log)
            )
        try:
            self._sampler.start()
            self._be_quiet(time.monotonic(), 2 * patience.seconds(PROGRESS_S), phase_s)
            for kinds in sets:
                begun = self._faults.begin(kinds)
                print(f"{time.monotonic():.1f} {', '.join(begun)}", flush=True)
                time.sleep(phase_s)
                healed_s = self._faults.heal()
                print(f"{healed_s:.1f} healed", flush=True)
                self._be_quiet(healed_s, patience.seconds(PROGRESS_S), phase_s)
                self._report.count("healings")
            self._end()
        finally:
            self._is_over.set()
            for process in self._processes:
                process.send(signal.SIGKILL)
                process.wait(patience.seconds(STOP_S))
            self._sampler.join()

    async def _create_topic(self) -> None:
        async with AsyncClient([(self._gateway.host, self._gateway.port)]) as client:
            await AdminClient(client).create_topic(TOPIC, partitions=PARTITIONS)

    def _be_quiet(self, healed_s: float, within_s: float, phase_s: float) -> None:
        """Let everybody go on; whoever does not is stuck.

        A client gets the time in addition for which it, the gateway or this process, which has the
        proxy, could have run and had no processor.
        """
        shared = [RunQueueWaits(), RunQueueWaits(tasks_of(self._gateway.pid))]
        waits = [RunQueueWaits(tasks_of(process.pid)) for process in self._processes]
        lacking = dict(zip(self._books, waits, strict=True))
        excused_s = dict.fromkeys(self._books, 0.0)
        while lacking or time.monotonic() < healed_s + phase_s:
            time.sleep(LOOK_S)
            shared_s = sum(one.take_s() for one in shared)
            for book, wait in list(lacking.items()):
                waited_s = excused_s[book] + wait.take_s() + shared_s
                excused_s[book] = min(waited_s, EXCUSED_MAX_S)
                is_over = time.monotonic() > healed_s + within_s + excused_s[book]
                if book.last_ok_s >= healed_s or is_over:
                    del lacking[book]
        self._quiet.append(Quiet(healed_s, time.monotonic()))
        for book in self._books:
            times = [
                one.ended_s
                for one in book.operations[:]
                if book.has_gone_on(one) and one.began_s >= healed_s
            ]
            allowed_s = within_s + excused_s[book]
            for anomaly in check_progress([healed_s], {book.client.name: sorted(times)}, allowed_s):
                self._report.fail(f"{anomaly.kind.value}: {anomaly.detail}")
            if times:
                took_ms = int(1_000 * (min(times) - healed_s))
                name = f"progress_ms_{book.client.name}"
                self._report.counts[name] = max(self._report.counts[name], took_ms)

    # --- looking ----------------------------------------------------------------------------------

    def _sample(self) -> None:
        """Ask for the bounds again and again, past the proxy."""
        while not self._is_over.wait(SAMPLE_S):
            with suppress(ClientError, OSError, TimeoutError):
                asyncio.run(self._ask_bounds())

    async def _ask_bounds(self) -> None:
        places = range(PARTITIONS)
        async with (
            asyncio.timeout(2 * SAMPLE_S),
            AsyncClient([(self._gateway.host, self._gateway.port)], retry_s=0) as client,
        ):
            stable = await client.list_offsets(
                TOPIC, dict.fromkeys(places, LATEST), read_committed=True
            )
            bounds = await client.bounds(TOPIC, places)
        now_s = time.monotonic()
        for number, (start, end) in bounds.items():
            seen = Bounds(number, start, end, -1, stable[number].offset)
            self._bounds.append((now_s, seen))
            self._report.count("bounds")

    # --- the end ----------------------------------------------------------------------------------

    def _end(self) -> None:
        writers = [
            (book, process)
            for book, process in zip(self._books, self._processes, strict=True)
            if book.client.role in {"idempotent", "transactional"}
        ]
        for _, process in writers:
            process.send(signal.SIGTERM)
        for book, process in writers:
            process.wait(patience.seconds(STOP_S))
            if not book.has_ended:
                self._report.fail(f"{book.client.name} does not end")
        final = self._read_final()
        self._drain(final)
        for process in self._processes:
            process.send(signal.SIGTERM)
        for process in self._processes:
            process.wait(patience.seconds(STOP_S))
        self._judge(final)

    def _read_final(self) -> dict[int, FinalLog]:
        """Read every partition from its start to its end, with each isolation."""
        uncommitted, committed = (
            read_all(self._gateway.bootstrap, isolation)
            for isolation in ("read_uncommitted", "read_committed")
        )
        asyncio.run(self._ask_bounds())
        last = {event.partition: event for _, event in self._bounds if isinstance(event, Bounds)}
        return {
            number: FinalLog(
                last[number].log_start_offset,
                last[number].high_watermark,
                uncommitted[number],
                committed[number],
                last[number].last_stable_offset,
            )
            for number in range(PARTITIONS)
        }

    def _drain(self, final: dict[int, FinalLog]) -> None:
        """Let every reader read to the end, and see that it has left nothing out."""
        limit = patience.Limit(DRAIN_S)
        for book in self._books:
            if book.client.role not in {"assigned", "subscribed"}:
                continue
            for number, log in final.items():
                while missing := book.unread(number, log):
                    if limit.is_over:
                        self._report.fail(
                            f"SKIPPED: {book.client.name} has not read {len(missing)} records of "
                            f"partition {number}, the first at {min(missing)}"
                        )
                        break
                    time.sleep(LOOK_S)

    def _judge(self, final: dict[int, FinalLog]) -> None:
        report = self._report
        said = [one for book in self._books for one in book.events] + self._bounds
        said.sort(key=lambda one: one[0])
        report.count("stored", sum(len(log.records) for log in final.values()))
        events = [event for _, event in said]
        for anomaly in check_history(events, final, drained=True, keeps_all=True):
            report.count(anomaly.kind.value)
            report.fail(f"{anomaly.kind.value} in partition {anomaly.partition}: {anomaly.detail}")
        done: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        for book in self._books:
            for one, healed_s in in_quiet_phases(book.operations, self._quiet):
                done[one.what] += 1
                if one.outcome is not Outcome.OK:
                    failed[one.what] += 1
                    since_s = one.began_s - healed_s
                    print(f"quiet: {one} {since_s:.1f} s after the healing", flush=True)
        report.count("quiet_operations", done.total())
        report.count("quiet_not_ok", failed.total())
        judge_rates(report, done, failed)


def in_quiet_phases(
    operations: Iterable[Operation], phases: Sequence[Quiet]
) -> Iterator[tuple[Operation, float]]:
    """Yield a client's operations that lie in a quiet phase, each with the healing before it.

    Without a member's first commit in the phase that its group refuses: a fault has put the member
    out, and this is how it hears of it.
    """
    began = [phase.healed_s for phase in phases]
    heard_of = -1
    for one in operations:
        phase = bisect_right(began, one.began_s) - 1
        if phase < 0 or one.ended_s > phases[phase].until_s:
            continue
        if one.what == "commit-offsets" and phase > heard_of:
            heard_of = phase
            if one.outcome is not Outcome.OK and PUT_OUT.search(one.why):
                continue
        yield one, began[phase]


def judge_rates(report: Report, done: Counter[str], failed: Counter[str]) -> None:
    """Fail when too many operations of quiet phases did, of all or of one kind."""
    if failed.total() > done.total() * (1 - OK_RATE):
        report.fail(f"OK-RATE: {failed.total()} of {done.total()} operations did not succeed")
    for what, number in failed.items():
        if number > max(1, done[what] * (1 - OK_RATE)):
            report.fail(f"OK-RATE: {number} of {done[what]} times {what} did not succeed")


def tasks_of(pid: int) -> Path:
    """Return where the kernel accounts for the threads of a process."""
    return Path(f"/proc/{pid}/task")


def read_all(bootstrap: str, isolation: str) -> dict[int, list[tuple[int, bytes]]]:
    """Read the topic with a fresh consumer, to where the library sees an end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "final",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        },
        logger=_SILENT,
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    records: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(PARTITIONS)}
    unread = set(records)
    limit = patience.Limit(DRAIN_S)
    while unread and not limit.is_over:
        for message in consumer.consume(1_000, 0.5):
            number, offset, error = message.partition(), message.offset(), message.error()
            assert number is not None
            if error is None:
                assert offset is not None
                records[number].append((offset, message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - it has no other name
                unread.discard(number)
    consumer.close()
    assert not unread, f"partitions {unread} have no end"
    return records


def run_mixed(
    seed: int,
    sets: Iterable[Sequence[str] | None],
    clients: Iterable[Client] = CLIENTS,
    serve: Sequence[str] = KGW_SERVE,
    phase_s: float = PHASE_S,
) -> Report:
    """Let these clients go through these sets of faults, None for random ones."""
    random = Random(seed)
    report = Report("mixed", seed)
    with (
        checked_directory() as directory,
        faults_around(directory, random, report, serve=serve) as faults,
    ):
        Mixed(report, random, faults, clients).run(sets, phase_s)
    return report


def broken(bug: str) -> tuple[str, ...]:
    """Return what serves with a bug."""
    return ("tests.campaigns.broken_transactions_serve", bug, "serve")


class Control(NamedTuple):
    """A gateway with a bug, the faults that bring it out, and how it is found."""

    serve: tuple[str, ...]
    kinds: tuple[str, ...]
    found: AnomalyKind


CONTROLS = (
    Control(("tests.campaigns.unsafe_serve", "serve"), ("kill",), AnomalyKind.ACKED_LOST),
    Control(broken("commits-are-torn"), ("delay",), AnomalyKind.TORN_TRANSACTION),
    Control(broken("open-records-are-stable"), ("delay",), AnomalyKind.ABORTED_READ),
    # The producer's next transaction ends what lacks its marker, and not always as was decided.
    Control(broken("markers-are-missing"), ("delay",), AnomalyKind.TORN_TRANSACTION),
)
CONTROL_ROUNDS = 3
SHORT_CLIENTS = (CLIENTS[0], CLIENTS[3], CLIENTS[7])
SHORT_SETS = (("kill", "delay"), ("reset", "eio"))


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    if not full:
        report = run_mixed(seed, SHORT_SETS, SHORT_CLIENTS, phase_s=SHORT_PHASE_S)
        report.require("operations", 500)
        report.require("faults", 3)
        return report
    report = run_mixed(seed, [None] * int(FULL_S / (2 * PHASE_S)))
    report.require("operations_ok", FULL_OPERATIONS)
    report.require("faults", FULL_FAULTS)
    for kind in FAULTS:
        report.require(f"fault_{kind}", 1)
    for what, number in FLOORS.items():
        report.require(what, number)
    for control in CONTROLS:
        found = run_mixed(seed, [control.kinds] * CONTROL_ROUNDS, CLIENTS, control.serve)
        anomalies = found.counts[control.found.value]
        report.count("control_anomalies", anomalies)
        if not anomalies:
            report.fail(f"control: {control.serve} shows no {control.found.value}: {found}")
    return report


if __name__ == "__main__":
    main(run)
