"""B1: backups under load, killed at random as their gateway is; each one that is finished is whole.

Eight idempotent producers, two transactional ones and readers that commit live on while topics are
created, deleted, compacted and cut by retention. A backup is begun, full or incremental, and it or
the gateway is killed somewhere in it. After each kill the last finished backup of either kind is
restored, served and compared with what clients were told before it was begun.

Run as `python -m tests.campaigns.backups --full --seed N`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.backend.embedded import layout
from kgw.backend.embedded.offline.check import check_data_dir
from kgw.testing.process import SERVE, GatewayProcess
from tests import patience
from tests.campaigns import kill_loop, transactors
from tests.campaigns.history import Outcome, Send
from tests.campaigns.seaweedmq_load import Load
from tests.campaigns.support import Report, checked_directory, main

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.campaigns.history import FinalLog

SETTINGS = (
    "log.segment.bytes=262144",
    "log.retention.check.interval.ms=300",
    "log.segment.delete.delay.ms=200",
    "log.cleaner.backoff.ms=300",
)
KILLS_A_ROUND = 8
"""Then everything begins anew: what is restored after each kill stays small."""
ROUNDS = 13
GROUPS = 2
GROUP_TOPIC = kill_loop.TOPIC
CHURN_S = 0.1
KGW = (sys.executable, "-m", "kgw")
TORN_SERVE = (sys.executable, "-m", "tests.campaigns.torn_backup_serve", "serve")
BEGIN_S = 1.5
"""A backup takes about so long: kills come within it, and a little after it."""

_SILENT = logging.getLogger("backups")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Told(NamedTuple):
    """What clients had been told when a backup was begun."""

    acknowledged: dict[tuple[int, int], bytes]
    """Values by partition and offset."""
    committed: dict[tuple[str, int], int]
    """Offsets of groups of readers, by group and partition."""
    transactions: dict[str, int]
    """The last committed transaction of each producer, by its number."""
    epochs: dict[str, int]
    """Leader epochs by the directories of partitions; those of kept topics alone."""


class Readers:
    """Groups that commit how far they have read, in a thread."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.committed: dict[tuple[str, int], int] = {}

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Read no more."""
        self._is_over.set()
        self._thread.join(patience.seconds(60))

    def _run(self) -> None:
        consumers = {
            f"readers-{number}": Consumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "group.id": f"readers-{number}",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "reconnect.backoff.max.ms": 200,
                    "log_level": 0,
                },
                logger=_SILENT,
            )
            for number in range(GROUPS)
        }
        partitions = [TopicPartition(GROUP_TOPIC, n, 0) for n in range(kill_loop.PARTITIONS)]
        for consumer in consumers.values():
            consumer.assign(partitions)
        while not self._is_over.is_set():
            for group, consumer in consumers.items():
                self._step(group, consumer)
        for consumer in consumers.values():
            consumer.close()

    def _step(self, group: str, consumer: Consumer) -> None:
        with suppress(KafkaException):
            ends: dict[int, int] = {}
            for message in consumer.consume(500, 0.05):
                if message.error() is None:
                    ends[message.partition()] = message.offset() + 1
            if ends:
                offsets = [TopicPartition(GROUP_TOPIC, *one) for one in ends.items()]
                for one in consumer.commit(offsets=offsets, asynchronous=False) or ():
                    if one.error is None:
                        self.committed[group, one.partition] = one.offset


class Churn:
    """Topics that come and go, one that retention cuts and one that is compacted, in a thread."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._random = Random(seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.created = 0
        self.deleted = 0
        self.has_deleted = threading.Event()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Change nothing more."""
        self._is_over.set()
        self._thread.join(patience.seconds(60))

    def _run(self) -> None:
        common = {"bootstrap.servers": self._bootstrap, "log_level": 0}
        admin = AdminClient(common, logger=_SILENT)
        producer = Producer({**common, "message.timeout.ms": 5_000}, logger=_SILENT)
        kept = {
            "cut": {"retention.bytes": "600000"},
            "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
        }
        for topic, settings in kept.items():
            for future in admin.create_topics([NewTopic(topic, 2, 1, config=settings)]).values():
                with suppress(KafkaException):
                    future.result(patience.seconds(20))
        names: list[str] = []
        while not self._is_over.wait(CHURN_S):
            name = f"passing-{self.created}"
            with suppress(KafkaException):
                for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
                    future.result(patience.seconds(5))
                self.created += 1
                names.append(name)
            with suppress(KafkaException, BufferError):
                for topic in (*kept, *names):
                    for _ in range(60):
                        key = b"%d" % self._random.randrange(40)
                        producer.produce(topic, bytes(300), key)
                producer.poll(0)
            if len(names) > 2:
                with suppress(KafkaException):
                    for future in admin.delete_topics([names[0]]).values():
                        future.result(patience.seconds(5))
                    self.deleted += 1
                    self.has_deleted.set()
                    names.pop(0)
        producer.flush(1)


class Round:
    """One data directory, its gateway, its clients and its backups."""

    def __init__(self, directory: Path, report: Report, seed: int, command: Sequence[str]) -> None:
        self._directory = directory
        self._report = report
        self._random = Random(seed)
        self._gateway = GatewayProcess(directory / "data", *SETTINGS, command=command)
        self._place = directory / "place"
        self._told: dict[str, Told] = {}
        """By the names of finished backups."""
        self._parents: dict[str, str | None] = {}
        self._restored: dict[tuple[int, int], bytes] = {}
        """All that was ever restored, by partition and offset."""
        self._number = 0

    def run(self, seed: int, kills: int) -> None:
        """Live through so many kills and judge."""
        report = self._report
        gateway = self._gateway.start()
        self._load = Load(gateway.bootstrap, seed)
        self._readers = Readers(gateway.bootstrap)
        self._churn = Churn(gateway.bootstrap, seed)
        final: Mapping[int, FinalLog] = {}
        try:
            with self._load:
                self._readers.start()
                self._churn.start()
                self._backup(is_full=True, kills=None)
                for _ in range(kills):
                    self._kill_once()
                # On a busy machine all kills may be over before a topic has come and gone.
                self._churn.has_deleted.wait(patience.seconds(60))
                self._readers.end()
                self._churn.end()
                final = self._load.judge(report)
        finally:
            self._readers.end()
            self._churn.end()
        self._compare_final(final)
        if (gateway.data_dir / "backup").exists():
            report.fail("files are left in the data directory's backup")
        status = gateway.stop()
        if status:
            report.fail(f"exit status {status} after SIGTERM")
        self._verify()
        report.count("topics_created", self._churn.created)
        report.count("topics_deleted", self._churn.deleted)

    # --- killing ---------------------------------------------------------------------------------

    def _kill_once(self) -> None:
        random = self._random
        victim = random.choice(("gateway", "backup"))
        self._backup(is_full=random.random() < 0.3, kills=victim)
        self._report.count("kills")
        self._report.count(f"kills_of_{victim}")
        # Most are finished at some time.
        self._backup(is_full=False, kills=None)
        for is_full in (True, False):
            newest = [name for name, parent in self._parents.items() if (parent is None) is is_full]
            if newest:
                self._restore(newest[-1])

    def _backup(self, *, is_full: bool, kills: str | None) -> None:
        told = self._tell()
        command = [*KGW, "backup", str(self._gateway.data_dir), "--to", str(self._place)]
        # The clients keep both cores busy.
        command += ["--urgent", "--json"]
        command += ["--full"] if is_full else []
        command += ["--copy"] if self._random.random() < 0.5 else []
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if kills is not None:
            time.sleep(self._random.uniform(0, BEGIN_S))
            if kills == "backup":
                process.kill()
            else:
                self._gateway.kill()
                time.sleep(self._random.uniform(0, 0.2))
                try:
                    self._gateway.start()
                except RuntimeError as error:
                    self._report.fail(f"no unattended restart: {error}"[:2_000])
        try:
            output, said = process.communicate(timeout=patience.seconds(120))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self._report.fail("a backup hangs")
            return
        if process.returncode == 0:
            taken = json.loads(output)
            self._told[taken["name"]] = told
            self._parents[taken["name"]] = taken["parent"]
            self._report.count("finished")
            self._report.count("finished_full" if taken["parent"] is None else "finished_shared")
            if kills is not None:
                self._report.count("finished_though_killed")
        elif kills is None:
            self._report.fail(f"a backup that nobody killed ended so: {said.decode()[:500]}")
        else:
            self._report.count("interrupted")

    def _tell(self) -> Told:
        acknowledged = {}
        for event in self._load.clients.events():
            if isinstance(event, Send) and event.outcome is Outcome.OK and event.offset is not None:
                acknowledged[event.partition, event.offset] = event.value
        transactions = {one.name: one.last_committed for one in self._load.transactors}
        return Told(acknowledged, dict(self._readers.committed), transactions, self._epochs())

    def _epochs(self) -> dict[str, int]:
        found = {}
        for path in (self._gateway.data_dir / layout.PARTITIONS_DIRECTORY).iterdir():
            with suppress(OSError, layout.SmallFileError):
                identity = layout.decode_partition((path / layout.PARTITION_NAME).read_bytes())
                if identity.topic in {kill_loop.TOPIC, transactors.TOPIC}:
                    state = layout.decode_log_state((path / layout.LOG_STATE_NAME).read_bytes())
                    found[path.name] = state.epochs[-1].leader_epoch
        return found

    # --- restoring -------------------------------------------------------------------------------

    def _restore(self, name: str) -> None:
        self._number += 1
        target = self._directory / f"restored-{self._number}"
        done = subprocess.run(
            [*KGW, "restore", str(self._place), "--to", str(target), "--backup", name],
            capture_output=True,
            check=False,
            timeout=patience.seconds(120),
        )
        if done.returncode:
            self._report.fail(f"backup {name} cannot be restored: {done.stderr.decode()[:500]}")
            return
        self._report.count("restored")
        gateway = GatewayProcess(target, *SETTINGS)
        try:
            gateway.start()
        except RuntimeError as error:
            self._report.fail(f"backup {name} is not served: {error}"[:2_000])
            return
        try:
            self._compare(name, gateway)
        except KafkaException as error:
            self._report.fail(f"backup {name} cannot be read: {error}")
        finally:
            gateway.stop()
        for problem in asyncio.run(check_data_dir(str(target))):
            self._report.fail(f"backup {name}, restored: {problem}")
        told = [line for line in gateway.log().splitlines() if '"storage problem"' in line]
        if told:
            self._report.fail(f"backup {name}, restored: {told[:3]}")
        shutil.rmtree(target)

    def _compare(self, name: str, gateway: GatewayProcess) -> None:
        told, report = self._told[name], self._report
        bootstrap = gateway.bootstrap
        self._end_transactions(bootstrap)
        logs = transactors.read_topic(bootstrap, kill_loop.TOPIC, range(kill_loop.PARTITIONS))
        records = {
            (partition, offset): value
            for partition, (_, _, found) in logs.items()
            for offset, value in found
        }
        lost = [at for at, value in told.acknowledged.items() if records.get(at) != value]
        if lost:
            report.fail(
                f"backup {name}: {len(lost)} acknowledged records are not there: {lost[:3]}"
            )
        report.count("compared_records", len(told.acknowledged))
        for at, value in records.items():
            if self._restored.setdefault(at, value) != value:
                report.fail(f"backup {name}: another value at {at}")
        for number in range(GROUPS):
            self._compare_group(name, bootstrap, f"readers-{number}", logs)
        self._compare_transactions(name, bootstrap)
        for key, epoch in told.epochs.items():
            path = gateway.data_dir / layout.PARTITIONS_DIRECTORY / key
            try:
                state = layout.decode_log_state((path / layout.LOG_STATE_NAME).read_bytes())
            except FileNotFoundError:
                report.fail(f"backup {name}: no partition {key}")
                continue
            newest = max(epoch, self._epochs().get(key, 0))
            if state.epochs[-1].leader_epoch <= newest:
                report.fail(
                    f"backup {name}: {key} is of epoch {state.epochs[-1]}, not above {newest}"
                )

    def _end_transactions(self, bootstrap: str) -> None:
        """Have what is open aborted, as each producer that comes back has."""
        for one in self._load.transactors:
            producer = Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "transactional.id": one.name,
                    "log_level": 0,
                },
                logger=_SILENT,
            )
            limit = patience.Limit(30)
            while True:
                try:
                    producer.init_transactions(5)
                except KafkaException as error:
                    if limit.is_over or not error.args[0].retriable():
                        raise
                else:
                    break

    def _compare_group(
        self, name: str, bootstrap: str, group: str, logs: Mapping[int, tuple[int, int, object]]
    ) -> None:
        told, report = self._told[name], self._report
        for partition, offset in _committed(
            bootstrap, group, GROUP_TOPIC, range(kill_loop.PARTITIONS)
        ).items():
            before = told.committed.get((group, partition), 0)
            if offset < before:
                report.fail(
                    f"backup {name}: {group} was at {before} of {partition} and is at {offset}"
                )
            if offset > logs[partition][1]:
                report.fail(
                    f"backup {name}: {group} is at {offset} of {partition}, beyond the end "
                    f"{logs[partition][1]}"
                )
            report.count("compared_offsets")

    def _compare_transactions(self, name: str, bootstrap: str) -> None:
        told, report = self._told[name], self._report
        found = transactors.read_topic(
            bootstrap, transactors.TOPIC, range(transactors.PARTITIONS), "read_committed"
        )
        visible: dict[str, set[bytes]] = defaultdict(set)
        for _, _, records in found.values():
            for _, value in records:
                visible[value.rpartition(b"-")[0].decode()].add(value)
        sent = self._load.sent_in_transactions()
        for transaction, values in visible.items():
            missing = sent.get(transaction, set()) - values
            if missing:
                report.fail(f"backup {name}: torn transaction {transaction}: without {missing}")
        for one in self._load.transactors:
            numbers = {
                int(transaction.rpartition("-")[2])
                for transaction in visible
                if transaction.rpartition("-")[0] == one.name
            }
            newest = max(numbers, default=0)
            if newest < told.transactions[one.name]:
                report.fail(
                    f"backup {name}: {one.name} had committed transaction "
                    f"{told.transactions[one.name]}, and {newest} is the last one"
                )
            (offset,) = _committed(bootstrap, one.name, transactors.TOPIC, range(1)).values()
            if max(offset, 0) != newest:
                report.fail(
                    f"backup {name}: {one.name} is at transaction {offset} by its group, and at "
                    f"{newest} by its records: torn"
                )
            report.count("compared_transactions", len(numbers))

    # --- the end ---------------------------------------------------------------------------------

    def _compare_final(self, final: Mapping[int, FinalLog]) -> None:
        """Say which records a backup had that the log does not have."""
        logs = {number: dict(log.records) for number, log in final.items()}
        for (partition, offset), value in self._restored.items():
            if partition in logs and logs[partition].get(offset) != value:
                self._report.fail(f"a backup had {value!r} at {offset} of {partition}")

    def _verify(self) -> None:
        done = subprocess.run(
            [*KGW, "backup", "verify", str(self._place), "--urgent", "--json"],
            capture_output=True,
            check=False,
            timeout=patience.seconds(300),
        )
        told = json.loads(done.stdout or b"{}")
        self._report.count("verified", len(told.get("verified", ())))
        if done.returncode:
            self._report.fail(f"kgw backup verify: {told} {done.stderr.decode()[:500]}")
        elif set(told["verified"]) < set(self._told):
            self._report.fail("a finished backup is gone")


def _committed(bootstrap: str, group: str, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}, logger=_SILENT
    )
    try:
        found = consumer.committed(
            [TopicPartition(topic, number) for number in partitions], patience.seconds(20)
        )
    finally:
        consumer.close()
    return {one.partition: max(one.offset, 0) for one in found}


def run_rounds(seed: int, rounds: int, kills: int, command: Sequence[str] = SERVE) -> Report:
    """Run so many rounds of so many kills."""
    report = Report("backups", seed)
    for number in range(rounds):
        with checked_directory() as directory:
            Round(directory, report, seed + number, command).run(seed + number, kills)
        print(f"round {number}: {report}", flush=True)
    report.require("kills", rounds * kills)
    report.require("finished", rounds * (kills + 1))
    report.require("restored", rounds * kills)
    report.require("compared_records", 1_000 * rounds)
    report.require("compared_transactions", rounds)
    report.require("topics_deleted", rounds)
    return report


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    report = run_rounds(seed, ROUNDS if full else 1, KILLS_A_ROUND if full else 2)
    control = run_rounds(seed, 1, 3 if full else 1, TORN_SERVE)
    report.count("control_anomalies", control.failure_count)
    signs = ("torn", "beyond the end", "has no directory")
    found = [one for one in control.failures if any(sign in one for sign in signs)]
    if not found:
        report.fail(f"control: a state that is newer than the logs was not found: {control}")
    return report


if __name__ == "__main__":
    main(run)
