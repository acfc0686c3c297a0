"""J3: consume, transform, produce in transactions, while everything fails: output equals input.

Run as `python -m tests.campaigns.exactly_once --full --seed N`. Each pipeline is a group of workers
of one client library, each a process of its own, and readers of another library who read committed
records of its output. The gateway, its network, disk and clock fail (mixed_faults.py); workers are
killed, paused, and replaced by another process of their transactional id while they sleep.

`--pipeline LIBRARY` runs that library's pipeline alone, without controls. A run that finds
something keeps what its processes said and what happened to them (`events.jsonl`, wall times in
seconds) and their logs, and says where.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.client import AsyncClient, ClientError, GroupClient, TransactionClient
from kgw.client.values import LATEST
from tests import patience
from tests.campaigns.client_process import ClientProcess
from tests.campaigns.exactly_once_book import PipelineBook
from tests.campaigns.exactly_once_member import SESSION_MS
from tests.campaigns.history import (
    NO_OFFSET,
    AnomalyKind,
    Bounds,
    FinalLog,
    Outcome,
    Send,
    check_history,
)
from tests.campaigns.machine import waited_for_processors_s
from tests.campaigns.mixed_faults import FAULTS, KGW_SERVE, faults_around
from tests.campaigns.support import Report, checked_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError, Message

    from tests.campaigns.exactly_once_book import Place
    from tests.campaigns.mixed_faults import Faults

MEMBER = "tests.campaigns.exactly_once_member"
SOURCE = "source"
SOURCE_PARTITIONS = 4
TARGET_PARTITIONS = 3
RECORDS_PER_S = 100
WRITERS = 2
WORKERS = 2
TRANSACTION_S = 12.0
HANGING_S = TRANSACTION_S + 5
PROGRESS_S = 10.0
PATIENCE_S = 40.0
"""How long to wait for progress that is late, to tell slow from stuck."""
BUSY_SHARE = 0.5
READY_S = 8.0
QUIET_S = 1.5
DRAIN_S = 20.0
RESTART_S = 0.3
EVENTS = ("kill", "kill_in_transaction", "pause", "pause_beyond_session", "replace")
"""What happens to a worker. A replaced one sleeps in a transaction meanwhile, and then wakes."""
EVENTS_A_ROUND = 2
FULL_S = 180.0
FULL_FAULTS = 24
ZOMBIES = 20
SHOWN_OF_A_KIND = 5
EVENTS_FILE = "events.jsonl"

_SILENT = logging.getLogger("exactly-once")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

Offsets = dict[int, int]


class Kind(NamedTuple):
    """A pipeline: of what library its workers are, and of what its readers."""

    library: str
    reader: str
    is_transactional: bool = True
    has_ids_of_workers: bool = True
    """Each worker has a transactional id; otherwise each partition of the source has one."""


KINDS = (
    Kind("confluent-kafka", "kafka-python-3"),
    Kind("kafka-python-3", "aiokafka"),
    Kind("aiokafka", "confluent-kafka", has_ids_of_workers=False),
)
PLAIN = Kind("confluent-kafka", "aiokafka", is_transactional=False)


class Events:
    """What happened, as JSON lines in a file. Several threads may write."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._lock = threading.Lock()

    def write(self, who: str, what: Mapping[str, Any]) -> None:
        """Write one line, with the time."""
        with self._lock:
            self._file.write(json.dumps({"s": round(time.time(), 3), "who": who, **what}) + "\n")
            self._file.flush()


class Member(ClientProcess):
    """A worker's or a reader's process."""

    def __init__(
        self, name: str, library: str, options: dict[str, Any], pipeline: Pipeline
    ) -> None:
        self.name = name
        self.is_ready = False
        self.gone: str | None = None
        self.wish = ""
        """The event that it shall stop for in its next transaction."""
        self.stopped = False
        self.resume_at_s: float | None = None
        self._book = pipeline.book
        self._events = pipeline.events
        super().__init__(library, MEMBER, options, self._take, pipeline.log)

    def _take(self, line: dict[str, Any]) -> None:
        at = line["at"]
        self._events.write(self.name, line)
        self._book.hear(self.name, line)
        if at == "ready":
            self.is_ready = True
        elif at == "stopping":
            self.stopped = True
        elif at == "gone":
            self.gone = line["why"]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        self._events.write("campaign", {"at": number.name, "to": self.name})
        super().send(number)

    def resume(self) -> None:
        """Let it go on."""
        self.stopped = False
        self.resume_at_s = None
        self.send(signal.SIGCONT)


class Sleeper(NamedTuple):
    """A worker that sleeps in a transaction while another process has its transactional id."""

    member: Member
    successor: Member


class Pipeline:
    """One group of workers, and a reader of their output."""

    def __init__(
        self,
        kind: Kind,
        bootstrap: str,
        directory: Path,
        random: Random,
        report: Report,
        events: Events,
    ) -> None:
        self.kind = kind
        self.name = kind.library if kind.is_transactional else f"plain-{kind.library}"
        self.target = f"target-{self.name}"
        self.log = directory / f"{self.name}.log"
        self.book = PipelineBook(self.name, report)
        self.events = events
        self.workers: list[Member | None] = [None] * WORKERS
        self.sleepers: list[Sleeper] = []
        self.reader: Member | None = None
        self.ended: list[Member] = []
        self._bootstrap = bootstrap
        self._random = random
        self._report = report
        self._started_s: dict[int, float] = {}
        self._count = 0
        self._zombies: list[str] = []
        self._late: list[str] = []
        """Transactions in which a worker slept for longer than its session."""

    # --- processes --------------------------------------------------------------------------------

    def tend(self) -> None:
        """Start whoever is not there, and do what was wished for."""
        now_s = time.monotonic()
        for slot, worker in enumerate(self.workers):
            if worker is None:
                if now_s > self._started_s.get(slot, 0.0) + RESTART_S:
                    self.workers[slot] = self._start_worker(slot)
            elif not worker.alive:
                self._reap(worker)
                self.workers[slot] = None
            elif worker.stopped and worker.wish:
                self._fulfil(slot, worker, now_s)
            elif worker.resume_at_s is not None and worker.resume_at_s < now_s:
                worker.resume()
        for sleeper in [one for one in self.sleepers if not one.member.alive]:
            self._reap(sleeper.member)
            self.sleepers.remove(sleeper)
        if self.reader is None or not self.reader.alive:
            if self.reader is not None:
                self._reap(self.reader)
            self.reader = self.start_reader()

    def _start_worker(self, slot: int) -> Member:
        self._started_s[slot] = time.monotonic()
        self._count += 1
        name = f"{self.name}-{slot}.{self._count}"
        is_transactional = self.kind.is_transactional
        options = {
            "name": name,
            "bootstrap": self._bootstrap,
            "group": self.name,
            "source": SOURCE,
            "target": self.target,
            "partitions": TARGET_PARTITIONS,
            "transactional_id": f"{self.name}-{slot}" if is_transactional else None,
            "transaction_ms": int(TRANSACTION_S * 1_000),
            "seed": self._random.randrange(1 << 30),
        }
        self._report.count(f"workers_of_{self.name}")
        return Member(name, self.kind.library, options, self)

    def start_reader(self) -> Member:
        """Start a process that reads everything from the start."""
        self._count += 1
        options = {
            "bootstrap": self._bootstrap,
            "target": self.target,
            "partitions": TARGET_PARTITIONS,
        }
        name = f"reader-{self._count} of {self.name}"
        return Member(name, self.kind.reader, options, self)

    def _reap(self, member: Member) -> None:
        member.wait(patience.seconds(10))
        why = member.gone or "killed"
        self.events.write("campaign", {"at": "reaped", "what": member.name, "why": why})
        self._report.count(f"gone_{self.name}: {why.split(':')[0][:40]}")
        if member.gone is not None and "fenced" in why.lower():
            self._report.count("fenced")
        self.ended.append(member)

    # --- events -----------------------------------------------------------------------------------

    def begin(self, event: str) -> bool:
        """Have something happen to a worker; False when there is none to whom it could."""
        ready = [one for one in self.workers if one is not None and one.is_ready and not one.wish]
        if not ready or self.sleepers:
            return False
        worker = self._random.choice(ready)
        if event == "kill":
            worker.send(signal.SIGKILL)
            self._report.count(f"worker_{event}")
        else:
            worker.wish = event
            worker.send(signal.SIGUSR1)
        return True

    def _fulfil(self, slot: int, worker: Member, now_s: float) -> None:
        event, worker.wish = worker.wish, ""
        self._report.count(f"worker_{event}")
        if event == "kill_in_transaction":
            worker.send(signal.SIGKILL)
        elif event == "replace":
            successor = self._start_worker(slot)
            self.workers[slot] = successor
            self.sleepers.append(Sleeper(worker, successor))
        else:
            session_s = SESSION_MS / 1_000
            is_beyond = event == "pause_beyond_session"
            least_s, most_s = (session_s + 1, session_s + 2) if is_beyond else (0.2, 2.0)
            worker.resume_at_s = now_s + self._random.uniform(least_s, most_s)
            transaction = self.book.open_transaction(worker.name)
            if is_beyond and transaction is not None:
                self._late.append(transaction)

    def has_sleepers(self) -> bool:
        """Whether somebody is to sleep on until a successor is there, or beyond a session."""
        return any(not one.successor.is_ready for one in self.sleepers) or any(
            one is not None and one.resume_at_s is not None for one in self.workers
        )

    def heal(self) -> None:
        """Wake everybody."""
        for worker in self.workers:
            if worker is not None:
                if worker.wish:
                    worker.wish = "pause"
                worker.resume()
        for member, successor in self.sleepers:
            if not member.stopped:
                continue
            transaction = self.book.open_transaction(member.name)
            if successor.is_ready and transaction is not None and self.kind.has_ids_of_workers:
                self._zombies.append(transaction)
                self._report.count("zombies_in_transactions")
            member.resume()

    def judge_zombies(self) -> None:
        """No transaction may be committed whose producer slept while another took its place."""
        self.book.judge_zombies(self._zombies)
        for transaction in self._late:
            # One whose offsets were pending already held their places open, and may go on.
            outcome = self.book.outcome(transaction)
            self._report.count(f"late_{'unknown' if outcome is None else outcome.value}")

    # --- the end ----------------------------------------------------------------------------------

    def members(self) -> list[Member]:
        """Return every process that may live."""
        found = [*self.workers, self.reader, *(one.member for one in self.sleepers)]
        return [one for one in found if one is not None]

    def dismiss(self) -> None:
        """Let the workers leave."""
        those = [one for one in self.members() if one is not self.reader]
        for member in those:
            member.send(signal.SIGCONT)
            member.send(signal.SIGTERM)
        for member in those:
            member.wait(patience.seconds(15))
            self._report.count("workers_that_did_not_leave", member.gone is None)

    def kill(self) -> None:
        """Leave no process behind."""
        for member in self.members():
            member.send(signal.SIGKILL)
            member.wait(patience.seconds(10))


class Writer:
    """Idempotent producers of the input."""

    def __init__(self, bootstrap: str, random: Random) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 10,
            "message.timeout.ms": 600_000,
            "socket.timeout.ms": 4_000,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 300,
            "log_level": 0,
        }
        self._producers = [Producer(settings, logger=_SILENT) for _ in range(WRITERS)]
        self._random = random
        self._sends: list[list[Send]] = [[] for _ in range(WRITERS)]
        self._stopping = threading.Event()
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.05):
                for which in range(WRITERS):
                    for _ in range(RECORDS_PER_S // 20 // WRITERS or 1):
                        self._send(which)
                    self._producers[which].poll(0)
        except KafkaException as error:
            self.errors.append(f"an idempotent producer has given up: {error}")

    def _send(self, which: int) -> None:
        sends = self._sends[which]
        number = len(sends)
        partition = self._random.randrange(SOURCE_PARTITIONS)
        value = f"writer{which}-{number}"
        sends.append(Send(f"writer-{which}", partition, value.encode(), Outcome.INFO))

        def took(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.errors.append(f"{value} was not written: {error}")
            else:
                sends[number] = sends[number]._replace(outcome=Outcome.OK, offset=message.offset())

        self._producers[which].produce(SOURCE, value, partition=partition, on_delivery=took)

    def stop(self) -> None:
        """Write no more, and wait for what is on its way."""
        self._stopping.set()
        self._thread.join()
        for producer in self._producers:
            left = producer.flush(60)
            if left:
                self.errors.append(f"{left} records of the input were never answered")

    def sends(self) -> list[Send]:
        """Return what was sent."""
        return [one for sends in self._sends for one in sends]


class State(NamedTuple):
    """How far everybody is."""

    committed: dict[str, Offsets]
    """By group."""
    stable: dict[str, Offsets]
    """Last stable offsets, by topic."""
    ends: dict[str, Offsets]
    """High watermarks, by topic; asked after the others."""

    def behind(self, before: State) -> list[str]:
        """Return what has not moved since."""
        return [
            f"{what} {name}-{partition} stays at {offset}"
            for what, now, then in (
                ("group", self.committed, before.committed),
                ("last stable offset", self.stable, before.stable),
            )
            for name, offsets in then.items()
            for partition, offset in offsets.items()
            if now[name][partition] <= offset
        ]


class Campaign:
    """One run over some pipelines."""

    def __init__(
        self,
        report: Report,
        random: Random,
        faults: Faults,
        directory: Path,
        kinds: Sequence[Kind],
        *,
        events: Sequence[str] = EVENTS,
        patience_s: float = PATIENCE_S,
        progress_s: float = PROGRESS_S,
    ) -> None:
        self._report = report
        self._random = random
        self._faults = faults
        self._kinds_of_events = events
        self._patience_s = patience_s
        self._progress_s = progress_s
        self._log = Events(directory / EVENTS_FILE)
        self._pipelines = [
            Pipeline(kind, faults.bootstrap, directory, random, report, self._log) for kind in kinds
        ]
        targets = [NewTopic(one.target, TARGET_PARTITIONS, 1) for one in self._pipelines]
        admin = AdminClient({"bootstrap.servers": faults.bootstrap}, logger=_SILENT)
        for future in admin.create_topics(
            [NewTopic(SOURCE, SOURCE_PARTITIONS, 1), *targets]
        ).values():
            future.result(patience.seconds(20))
        self._writer = Writer(faults.bootstrap, random)
        self._events: list[tuple[Pipeline, str]] = []
        self._bounds: dict[str, list[Bounds]] = {one.target: [] for one in self._pipelines}
        self._is_lost = False

    # --- rounds -----------------------------------------------------------------------------------

    def run(
        self, for_s: float, kinds: Sequence[str] | None = None, *, least_faults: int = 0
    ) -> None:
        """Let faults begin and end for so long; then let everything be read, and judge.

        It takes up to twice as long until there were so many faults: a busy machine is slow.

        `kinds` are the faults of the gateway in each round instead of random ones.
        """
        try:
            self._await_progress(self._look(), "at the start")
            began_s = time.monotonic()
            while not self._is_lost:
                took_s = time.monotonic() - began_s
                has_enough = self._report.counts["faults"] >= least_faults
                if took_s > (for_s if has_enough else 2 * for_s):
                    break
                self._round(kinds)
            self._finish()
        finally:
            for pipeline in self._pipelines:
                pipeline.kill()

    def _round(self, kinds: Sequence[str] | None) -> None:
        for _ in range(EVENTS_A_ROUND):
            if not self._events:
                self._events = [
                    (one, event) for one in self._pipelines for event in self._kinds_of_events
                ]
                self._random.shuffle(self._events)
            pipeline, event = self._events.pop()
            pipeline.begin(event)
        self._tend(self._random.uniform(0.1, 0.8))
        begun = self._faults.begin(kinds)
        self._log.write("campaign", {"at": "faults", "begun": begun})
        self._tend(self._random.uniform(2.0, 4.5))
        self._heal()
        self._tend(self._random.uniform(0.5, 1.5))
        self._report.count("rounds")

    def _tend(self, for_s: float) -> None:
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            for pipeline in self._pipelines:
                pipeline.tend()
            time.sleep(0.05)

    def _heal(self) -> None:
        """End all faults, wake everybody, and see that all go on."""
        self._log.write("campaign", {"at": "healing"})
        self._faults.heal()
        self._log.write("campaign", {"at": "healed"})
        limit = patience.Limit(READY_S)
        while not limit.is_over and any(one.has_sleepers() for one in self._pipelines):
            self._tend(0.1)
        before = self._look()
        for pipeline in self._pipelines:
            pipeline.heal()
        self._await_progress(before, "after healing")

    def _await_progress(self, before: State, when: str) -> None:
        limit = patience.Limit(self._patience_s)
        began_s, waited_s = time.monotonic(), waited_for_processors_s()
        behind = ["not looked at"]
        while behind and not limit.is_over:
            self._tend(0.2)
            behind = self._look().behind(before)
        took_s = time.monotonic() - began_s
        share = (waited_for_processors_s() - waited_s) / took_s
        self._report.count("progress_looked_for")
        self._report.counts["longest_progress_ms"] = max(
            self._report.counts["longest_progress_ms"], int(1_000 * took_s)
        )
        if behind:
            self._report.fail(f"STUCK {when} for {took_s:.0f} s: {behind}")
            self._is_lost = True
        elif took_s > self._progress_s:
            verdict = "this machine is TOO BUSY to judge by" if share > BUSY_SHARE else "LATE"
            self._report.fail(
                f"{verdict}: {when} all went on after {took_s:.1f} s; for {share:.0%} of it "
                "something waited for a processor"
            )

    # --- looking ----------------------------------------------------------------------------------

    def _look(self) -> State:
        state = asyncio.run(self._ask())
        self._log.write("campaign", {"at": "state", **state._asdict()})
        for topic, events in self._bounds.items():
            for partition, end in state.ends[topic].items():
                stable = state.stable[topic][partition]
                events.append(Bounds(partition, 0, end, -1, stable))
        return state

    async def _ask(self) -> State:
        gateway = self._faults.gateway
        async with AsyncClient([(gateway.host, gateway.port)]) as client:
            groups = GroupClient(client)
            committed = {}
            for one in self._pipelines:
                try:
                    offsets = await groups.offsets(one.name)
                except ClientError:  # nobody has joined yet
                    offsets = {}
                found = {partition: place.offset for (_, partition), place in offsets.items()}
                committed[one.name] = dict.fromkeys(range(SOURCE_PARTITIONS), 0) | found
            stable, ends = {}, {}
            for one in self._pipelines:
                asked = dict.fromkeys(range(TARGET_PARTITIONS), LATEST)
                places = await client.list_offsets(one.target, asked, read_committed=True)
                stable[one.target] = {number: place.offset for number, place in places.items()}
                places = await client.list_offsets(one.target, asked)
                ends[one.target] = {number: place.offset for number, place in places.items()}
        return State(committed, stable, ends)

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Let all be read and every transaction end, and judge."""
        self._writer.stop()
        for error in self._writer.errors:
            self._report.fail(error)
        source = read_logs(self._faults.bootstrap, SOURCE, SOURCE_PARTITIONS)
        for anomaly in check_history(self._writer.sends(), source, keeps_all=True):
            self._report.fail(f"the input: {anomaly.kind.value}: {anomaly.detail}")
        ends = {number: log.records_end for number, log in source.items()}
        self._await_end(ends)
        for pipeline in self._pipelines:
            pipeline.dismiss()
        state = self._await_ended_transactions()
        self._find_hanging()
        readers = self._await_readers(sum(len(log.records) for log in source.values()))
        values = {
            (number, offset): value.decode()
            for number, log in source.items()
            for offset, value in log.records
        }
        self._report.count("input_records", len(values))
        for pipeline in self._pipelines:
            self._judge(pipeline, values, state, ends, readers[pipeline.name])

    def _await_end(self, ends: Mapping[int, int]) -> None:
        """Every group must come to the input's end."""
        limit = patience.Limit(0.0 if self._is_lost else self._patience_s)
        committed: dict[str, Offsets] = {}
        while not limit.is_over:
            self._tend(0.2)
            committed = self._look().committed
            if all(offsets == ends for offsets in committed.values()):
                return
        self._report.fail(f"STUCK at the end: {committed} of {ends}")

    def _await_ended_transactions(self) -> State:
        """Wait until no transaction is open; they have their time-out, and five seconds."""
        limit = patience.Limit(HANGING_S)
        while True:
            state = self._look()
            under_way = asyncio.run(self._under_way())
            if state.stable == state.ends and not under_way:
                return state
            if limit.is_over:
                self._report.fail(
                    f"HANGING: {under_way}; last stable offsets {state.stable}, ends {state.ends}"
                )
                return state
            time.sleep(0.2)

    async def _under_way(self) -> list[str]:
        gateway = self._faults.gateway
        async with AsyncClient([(gateway.host, gateway.port)]) as client:
            states = ("Ongoing", "PrepareCommit", "PrepareAbort")
            found = await TransactionClient(client).transactions(states=states)
        return [f"{one.transactional_id} is {one.state}" for one in found]

    def _find_hanging(self) -> None:
        command = ("transactions", "find-hanging", "--older-than", "PT0S", "--bootstrap")
        done = subprocess.run(
            (sys.executable, "-m", "kgw", *command, self._faults.bootstrap),
            capture_output=True,
            text=True,
            timeout=patience.seconds(60),
            check=False,
        )
        if done.returncode != 0:
            self._report.fail(f"HANGING, says kgw: {done.stdout} {done.stderr}")

    def _await_readers(self, count: int) -> dict[str, list[Member]]:
        """Let those who read all the time, and fresh readers, come to the end; return them."""
        readers = {one.name: [one.start_reader()] for one in self._pipelines}
        for pipeline in self._pipelines:
            if pipeline.reader is not None:
                readers[pipeline.name].append(pipeline.reader)
        limit = patience.Limit(DRAIN_S)

        def counts() -> list[int]:
            return [
                one.book.count_read(reader.name)
                for one in self._pipelines
                for reader in readers[one.name]
            ]

        while not limit.is_over and min(counts()) < count:
            time.sleep(0.1)
        time.sleep(QUIET_S)  # for what must not come
        for those in readers.values():
            for reader in those:
                reader.send(signal.SIGTERM)
                reader.wait(patience.seconds(10))
        return readers

    def _judge(
        self,
        pipeline: Pipeline,
        values: Mapping[Place, str],
        state: State,
        ends: Mapping[int, int],
        readers: Sequence[Member],
    ) -> None:
        pipeline.judge_zombies()
        offsets = state.committed[pipeline.name]
        pipeline.book.judge(values, [one.name for one in readers], offsets)
        if offsets != ends:
            self._report.fail(f"{pipeline.name}: OFFSETS are {offsets}, the input ends at {ends}")
        topic = pipeline.target
        raw = read_logs(self._faults.bootstrap, topic, TARGET_PARTITIONS)
        committed = read_logs(self._faults.bootstrap, topic, TARGET_PARTITIONS, "read_committed")
        final = {
            number: FinalLog(
                0,
                state.ends[topic][number],
                log.records,
                committed[number].records,
                state.stable[topic][number],
            )
            for number, log in raw.items()
        }
        told = {number: offset or NO_OFFSET for number, offset in offsets.items()}
        events = [*pipeline.book.events(told), *self._bounds[topic]]
        self._report.count("history_events", len(events))
        shown: Counter[str] = Counter()
        for anomaly in check_history(events, final, drained=True, keeps_all=True):
            kind = anomaly.kind.value
            self._report.count(kind)
            shown[kind] += 1
            if shown[kind] <= SHOWN_OF_A_KIND:
                self._report.fail(
                    f"{pipeline.name}: {kind} in {anomaly.partition}: {anomaly.detail}"
                )


def read_logs(
    bootstrap: str, topic: str, partitions: int, isolation: str = "read_uncommitted"
) -> dict[int, FinalLog]:
    """Read every partition from its start to its end, as far as the isolation lets one."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "log_level": 0,
        },
        logger=_SILENT,
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    records: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(partitions)}
    unread = set(records)
    limit = patience.Limit(60)
    while unread and not limit.is_over:
        for message in consumer.consume(1_000, 0.2):
            error = message.error()
            number = message.partition()
            if error is None:
                records[number].append((message.offset(), message.value()))
            elif error.name() == "_PARTITION_EOF":
                unread.discard(number)
    consumer.close()
    assert not unread, f"{topic} {sorted(unread)} cannot be read to the end"
    return {
        number: FinalLog(0, log[-1][0] + 1 if log else 0, log) for number, log in records.items()
    }


def run_pipelines(
    seed: int,
    for_s: float,
    kinds: Sequence[Kind] = KINDS,
    faults: Sequence[str] | None = None,
    *,
    events: Sequence[str] = EVENTS,
    bug: str = "",
    patience_s: float = PATIENCE_S,
    progress_s: float = PROGRESS_S,
    least_faults: int = 0,
    keep: Path | None = None,
) -> Report:
    """Run some pipelines for so long, under these faults in each round or under random ones.

    `bug` is one of broken_transactions_serve.py. `keep` is where the events and the logs go.
    """
    report = Report("exactly-once", seed)
    random = Random(seed)
    serve = ("tests.campaigns.broken_transactions_serve", bug, "serve") if bug else KGW_SERVE
    with (
        checked_directory() as directory,
        _keeping(directory, keep),
        faults_around(directory, random, report, serve=serve) as around,
    ):
        campaign = Campaign(
            report,
            random,
            around,
            directory,
            kinds,
            events=events,
            patience_s=patience_s,
            progress_s=progress_s,
        )
        campaign.run(for_s, faults, least_faults=least_faults)
    return report


@contextmanager
def _keeping(directory: Path, keep: Path | None) -> Iterator[None]:
    """Copy the events and all logs of a run when it is over, in whatever way."""
    try:
        yield
    finally:
        if keep is not None:
            keep.mkdir()
            for path in (*directory.glob("*.log"), *directory.glob("*.jsonl")):
                shutil.copy(path, keep)


CONTROLS = {
    "aborted-offsets-count": "MISSING",
    "markers-are-missing": AnomalyKind.TORN_TRANSACTION.value,
    "commits-are-torn": AnomalyKind.TORN_TRANSACTION.value,
    "restarts-forget-aborts": "DUPLICATE",
}


def run(seed: int, full: bool, pipeline: str | None = None) -> Report:
    """Run the campaign, or in full size the pipeline of one library alone."""
    if not full:
        # Whoever goes on late is judged in full size only.
        report = run_pipelines(seed, 12.0, KINDS[:1], ("kill",), progress_s=math.inf)
        report.require("faults", 1)
        return report
    kept = Path(tempfile.mkdtemp(prefix="exactly-once-"))
    kinds = [one for one in KINDS if pipeline in {None, one.library}]
    report = run_pipelines(seed, FULL_S, kinds, least_faults=FULL_FAULTS, keep=kept / "faults")
    report.require("faults", FULL_FAULTS)
    for fault in FAULTS:
        report.require(f"fault_{fault}", 1)
    if pipeline is None:
        for event in EVENTS:
            report.require(f"worker_{event}", 2)
        report.require("fenced", 5)
        report.require("zombies_in_transactions", 1)
    for kind in kinds:
        report.require(f"workers_of_{kind.library}", 2 * WORKERS)
    if pipeline is None:
        zombies = run_pipelines(
            seed, 100.0, faults=(), events=("pause_beyond_session",), keep=kept / "zombies"
        )
        zombies.require("worker_pause_beyond_session", ZOMBIES)
        for what, number in zombies.counts.items():
            if what.startswith(("worker_pause", "late_")):
                report.count(f"zombies_alone: {what}", number)
        if zombies.failure_count:
            report.fail(f"zombies alone: {zombies}")
    if report.failure_count:
        report.kept = kept
    else:
        shutil.rmtree(kept)
    if pipeline is None:
        for bug, what in CONTROLS.items():
            control = run_pipelines(seed, 20.0, KINDS[:1], ("kill",), bug=bug, patience_s=12.0)
            report.expect_alarm(control, what)
        report.expect_alarm(run_pipelines(seed, 20.0, (PLAIN,), ("kill",)), "DUPLICATE")
    return report


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="full size instead of the short form")
    parser.add_argument("--seed", type=int, default=None, help="replay the run of this seed")
    parser.add_argument(
        "--pipeline",
        choices=[one.library for one in KINDS],
        help="with --full: that library's pipeline alone, without controls",
    )
    arguments = parser.parse_args()
    seed = time.time_ns() % 1_000_000 if arguments.seed is None else arguments.seed
    print(f"seed={seed}", flush=True)
    report = run(seed, arguments.full, arguments.pipeline)
    print(report, flush=True)
    sys.exit(1 if report.failure_count else 0)


if __name__ == "__main__":
    main()
