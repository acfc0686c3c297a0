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
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kgw.client import AdminClient, AsyncClient, ClientError
from kgw.client.values import LATEST
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
    from collections.abc import Iterable, Sequence

    from tests.campaigns.history import Event

TOPIC = "mixed"
PARTITIONS = 6
MEMBER = "tests.campaigns.mixed_member"
FAULT_S = 5.0
QUIET_S = 5.0
PROGRESS_S = 10.0
OK_RATE = 0.999
FULL_S = 300.0
STOP_S = 60.0
DRAIN_S = 60.0
SAMPLE_S = 1.0
LOOK_S = 0.1
FULL_OPERATIONS = 100_000
FULL_FAULTS = 40

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
    "fenc": "fenced",
    "out_?of_?order": "sequence",
    "producer_?epoch": "epoch",
    "unknown_?producer|producer_?id_?mapping": "unknown-id",
    "txn_?state": "state",
    "storage": "storage",
    "time|expired": "time-out",
    "coordinator|concurrent": "coordinator",
    "connect|transport|broker|disconnected": "connection",
}
"""What a library's words are counted as: the first that fits."""
LOST_POSITION = re.compile("(?i)out_?of_?range|no_?offset|auto_offset_reset")


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
        self._report = report
        self.events: list[tuple[float, Event]] = []
        self.operations: list[Operation] = []
        self.polled: dict[int, set[int]] = {number: set() for number in range(PARTITIONS)}
        self.has_ended = False
        self.last_ok_s = 0.0
        """When the last operation began that has succeeded."""

    def hear(self, line: dict[str, Any]) -> None:
        """Take one line; see mixed_member.py."""
        at = line.pop("at")
        name = self.client.name
        if at == "sent":
            for process, partition, value, said, offset, transaction, began_s, ended_s in line[
                "sends"
            ]:
                outcome = Outcome(said)
                send = Send(process, partition, value.encode(), outcome, offset, transaction)
                self.events.append((began_s, send))
                self._note("send", began_s, ended_s, outcome)
        elif at == "end":
            outcome = Outcome(line["outcome"])
            end = TransactionEnd(name, line["transaction"], outcome)
            self.events.append((line["ended"], end))
            self._report.count(f"transactions_{line['how']}_{outcome.value}")
            if line["how"] != "left":
                done = Outcome.INFO if line["why"] else Outcome.OK
                self._note(line["how"], line["began"], line["ended"], done, line["why"])
        elif at == "polled":
            is_committed = self.client.isolation == "read_committed"
            for partition, found in line["records"]:
                records = tuple((offset, value.encode()) for offset, value in found)
                poll = Poll(name, partition, records, read_committed=is_committed)
                self.events.append((line["ended"], poll))
                self.polled[partition].update(offset for offset, _ in records)
                self._report.count("polled", len(records))
            self._note("poll", line["began"], line["ended"], Outcome.OK)
        elif at == "sought":
            self._report.count("assignments")
            for partition in line["partitions"]:
                self.events.append((line["ended"], Seek(name, partition)))
        elif at == "commit":
            outcome = Outcome(line["outcome"])
            for partition, offset in line["offsets"]:
                commit = Commit(name, name, partition, offset, outcome)
                self.events.append((line["ended"], commit))
            self._note("commit-offsets", line["began"], line["ended"], outcome, line["why"])
        elif at == "fetched":
            for partition, offset in line["offsets"]:
                self.events.append((line["ended"], FetchedOffset(name, partition, offset)))
            self._note("fetch-offsets", line["began"], line["ended"], Outcome.OK)
        elif at == "trouble":
            if LOST_POSITION.search(line["why"]):
                self._report.fail(f"POSITION lost by {name}: {line['why']}")
            self._note(line["what"], line["began"], line["ended"], Outcome.INFO, line["why"])
        elif at == "anew":
            self._report.count(f"anew_{self.client.library}_{reason_of(line['why'])}")
            self._report.count("anew")
        else:
            self.has_ended = True

    def _note(
        self, what: str, began_s: float, ended_s: float, outcome: Outcome, why: str = ""
    ) -> None:
        operation = Operation(self.client.name, what, began_s, ended_s, outcome, why)
        self.operations.append(operation)
        self._report.count("operations")
        self._report.count(f"operations_{outcome.value}")
        self._report.count(f"operation_{what}")
        if outcome is Outcome.OK:
            self.last_ok_s = max(self.last_ok_s, began_s)


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

    def run(self, rounds: int, kinds: Sequence[str] | None) -> None:
        """Alternate faults, random or of these kinds, with quiet phases; then judge."""
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
            self._be_quiet(time.monotonic(), 2 * PROGRESS_S)
            for _ in range(rounds):
                self._faults.begin(kinds)
                time.sleep(FAULT_S)
                self._be_quiet(self._faults.heal(), PROGRESS_S)
                self._report.count("healings")
            self._end()
        finally:
            self._is_over.set()
            for process in self._processes:
                process.send(signal.SIGKILL)
                process.wait(STOP_S)
            self._sampler.join()

    async def _create_topic(self) -> None:
        async with AsyncClient([(self._gateway.host, self._gateway.port)]) as client:
            await AdminClient(client).create_topic(TOPIC, partitions=PARTITIONS)

    def _be_quiet(self, healed_s: float, within_s: float) -> None:
        """Let everybody go on; whoever does not is stuck.

        A client gets the time in addition for which it, the gateway or this process, which has the
        proxy, could have run and had no processor.
        """
        pids = [self._gateway.pid, *(one.pid for one in self._processes)]
        waits = [RunQueueWaits(Path(f"/proc/{pid}/task")) for pid in pids] + [RunQueueWaits()]
        deadline_s = healed_s + within_s
        while True:
            now_s = time.monotonic()
            lacking = [book for book in self._books if book.last_ok_s < healed_s]
            if now_s >= healed_s + QUIET_S and not lacking:
                break
            if now_s >= deadline_s:
                excused_s = sum(one.take_s() for one in waits)
                if excused_s < 0.1:
                    break
                self._report.count("excused_ms", int(1_000 * excused_s))
                deadline_s = now_s + excused_s
            time.sleep(LOOK_S)
        until_s = time.monotonic()
        self._quiet.append(Quiet(healed_s, until_s))
        for book in self._books:
            times = [
                one.ended_s
                for one in book.operations[:]
                if one.outcome is Outcome.OK and one.began_s >= healed_s
            ]
            for anomaly in check_progress(
                [healed_s], {book.client.name: sorted(times)}, deadline_s - healed_s
            ):
                self._report.fail(f"{anomaly.kind.value}: {anomaly.detail}")
            if times:
                took_ms = int(1_000 * (min(times) - healed_s))
                longest = self._report.counts["longest_progress_ms"]
                self._report.counts["longest_progress_ms"] = max(longest, took_ms)

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
            process.wait(STOP_S)
            if not book.has_ended:
                self._report.fail(f"{book.client.name} does not end")
        final = self._read_final()
        self._drain(final)
        for process in self._processes:
            process.send(signal.SIGTERM)
        for process in self._processes:
            process.wait(STOP_S)
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
        deadline_s = time.monotonic() + DRAIN_S
        for book in self._books:
            if book.client.role not in {"assigned", "subscribed"}:
                continue
            is_committed = book.client.isolation == "read_committed"
            for number, log in final.items():
                wanted = {
                    offset for offset, _ in (log.committed if is_committed else log.records) or ()
                }
                while missing := wanted - book.polled[number]:
                    if time.monotonic() > deadline_s:
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
        for anomaly in check_history([event for _, event in said], final, drained=True):
            report.count(anomaly.kind.value)
            report.fail(f"{anomaly.kind.value} in partition {anomaly.partition}: {anomaly.detail}")
        began = [quiet.healed_s for quiet in self._quiet]
        for book in self._books:
            for one in book.operations:
                phase = bisect_right(began, one.began_s) - 1
                if phase < 0 or one.ended_s > self._quiet[phase].until_s:
                    continue
                report.count("quiet_operations")
                if one.outcome is not Outcome.OK:
                    report.count("quiet_not_ok")
                    since_s = one.began_s - began[phase]
                    print(f"quiet: {one} {since_s:.1f} s after the healing", flush=True)
        quiet, failed = report.counts["quiet_operations"], report.counts["quiet_not_ok"]
        if failed > quiet * (1 - OK_RATE):
            report.fail(f"OK-RATE: {failed} of {quiet} operations in quiet phases did not succeed")


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
    deadline_s = time.monotonic() + DRAIN_S
    while unread and time.monotonic() < deadline_s:
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
    rounds: int,
    clients: Iterable[Client] = CLIENTS,
    serve: Sequence[str] = KGW_SERVE,
    kinds: Sequence[str] | None = None,
) -> Report:
    """Let these clients go through so many sets of faults."""
    random = Random(seed)
    report = Report("mixed", seed)
    with (
        checked_directory() as directory,
        faults_around(directory, random, report, serve=serve) as faults,
    ):
        Mixed(report, random, faults, clients).run(rounds, kinds)
    return report


def broken(bug: str) -> tuple[str, ...]:
    """Return what serves with a bug."""
    return ("tests.campaigns.broken_transactions_serve", bug, "serve")


CONTROLS: dict[str, tuple[Sequence[str], Sequence[str], AnomalyKind]] = {
    "unsafe": (("tests.campaigns.unsafe_serve", "serve"), ("kill",), AnomalyKind.ACKED_LOST),
    "torn": (broken("commits-are-torn"), ("delay",), AnomalyKind.TORN_TRANSACTION),
    "sequences": (
        broken("restarts-forget-sequences"),
        ("kill", "reset"),
        AnomalyKind.DUPLICATE,
    ),
    "unstable": (broken("open-records-are-stable"), ("delay",), AnomalyKind.ABORTED_READ),
}


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    if not full:
        return run_mixed(seed, 1)
    report = run_mixed(seed, int(FULL_S / (FAULT_S + QUIET_S)))
    report.require("operations", FULL_OPERATIONS)
    report.require("faults", FULL_FAULTS)
    for kind in FAULTS:
        report.require(f"fault_{kind}", 1)
    for serve, kinds, found in CONTROLS.values():
        report.expect_alarm(run_mixed(seed, 3, CLIENTS, serve, kinds), found.value)
    return report


if __name__ == "__main__":
    main(run)
