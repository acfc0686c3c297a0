"""D3: idempotent producers write while the gateway is killed and started again and again.

Run as `python -m tests.campaigns.kill_loop --full --seed N`.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from random import Random
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.testing.process import SERVE, GatewayProcess
from tests import patience
from tests.campaigns.history import (
    AnomalyKind,
    Bounds,
    FinalLog,
    Outcome,
    Poll,
    Send,
    check_history,
)
from tests.campaigns.support import Report, checked_directory, main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import KafkaError, Message

    from tests.campaigns.history import Event

TOPIC = "kill-loop"
PARTITIONS = 16
PRODUCERS = 8
CONSUMERS = 2
VALUE_BYTES = 120
RECORDS_PER_S = 4_000
START_UP_KILLS = 10
"""One kill in so many comes within the first 200 ms of a start."""
RECOVERY_KILLS = 10
"""And one later in it, when the interpreter is up and the logs are being recovered."""
START_UP_KILL_S = 0.2
READY_S = 2.0
RECORDS_PER_KILL = 500
BOUNDS_ASKED = 4
EMPTY_POLLS = 15
RELAXED = ("kgw.durability=relaxed",)

UNSAFE_SERVE = (sys.executable, "-m", "tests.campaigns.unsafe_serve", "serve")

_SILENT = logging.getLogger("kill-loop")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class _Sent:
    """A record on its way, and what became of it."""

    __slots__ = ("_sent_s", "offset", "outcome", "partition", "value", "waited_s")

    def __init__(self, partition: int, value: bytes) -> None:
        self.partition = partition
        self.value = value
        self.outcome = Outcome.INFO
        self.offset: int | None = None
        self.waited_s = 0.0
        """Until it was acknowledged."""
        self._sent_s = time.monotonic()

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Take the client's verdict. No error of it is definite: the record may be stored."""
        if error is None:
            self.outcome = Outcome.OK
            self.offset = message.offset()
            self.waited_s = time.monotonic() - self._sent_s


class Clients:
    """Producers and consumers that live through every restart."""

    def __init__(self, bootstrap: str, random: Random, records_per_s: int = RECORDS_PER_S) -> None:
        self._random = random
        self._records_per_s = records_per_s
        self._bootstrap = bootstrap
        self._producers = [
            Producer(
                {
                    **self._common(),
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": 3,
                    "batch.num.messages": 40,
                    "message.timeout.ms": 600_000,
                    "retry.backoff.ms": 30,
                    "retry.backoff.max.ms": 200,
                },
                logger=_SILENT,
            )
            for _ in range(PRODUCERS)
        ]
        self.fatal: dict[int, str] = {}
        self._consumers = [self._consumer(f"follower-{n}") for n in range(CONSUMERS)]
        self._bounds_asked = 0
        self._bounds_asker = self._consumer("bounds")
        self._sent: list[list[_Sent]] = [[] for _ in range(PRODUCERS)]
        self._events: list[Event] = []
        self._number = 0

    def _common(self) -> dict[str, object]:
        return {
            "bootstrap.servers": self._bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": 10_000,
            "log_level": 0,
        }

    def _consumer(self, group: str) -> Consumer:
        consumer = Consumer(
            {
                **self._common(),
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 50,
            },
            logger=_SILENT,
        )
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        return consumer

    def step(self, elapsed_s: float) -> None:
        """Send what is due and take what has come."""
        due = int(elapsed_s * self._records_per_s)
        while self._number < due:
            which = self._random.randrange(PRODUCERS)
            producer = self._producers[which]
            self._number += 1
            if which in self.fatal:
                continue
            if len(producer) > 2_000:
                break
            value = b"%d-%d-" % (which, self._number)
            sent = _Sent(self._random.randrange(PARTITIONS), value.ljust(VALUE_BYTES, b"x"))
            self._sent[which].append(sent)
            try:
                producer.produce(
                    TOPIC, sent.value, partition=sent.partition, on_delivery=sent.delivered
                )
            except KafkaException as error:
                self.fatal[which] = str(error)
        for number in range(PRODUCERS):
            self._take_answers(number, 0)
        for number in range(CONSUMERS):
            self._follow(number)

    def have_seen(self, count: int) -> bool:
        """Whether so many records were acknowledged, and read by the followers."""
        acknowledged = sum(one.outcome is Outcome.OK for all_sent in self._sent for one in all_sent)
        polled = sum(len(one.records) for one in self._events if isinstance(one, Poll))
        return min(acknowledged, polled) >= count

    def longest_wait_s(self) -> float:
        """Return how long a record has waited at the most until it was acknowledged."""
        return max((one.waited_s for all_sent in self._sent for one in all_sent), default=0.0)

    def _take_answers(self, number: int, timeout_s: float) -> None:
        """Let a producer call back. An idempotent one gives up for good on a broken sequence."""
        if number in self.fatal:
            return
        try:
            self._producers[number].poll(timeout_s)
        except KafkaException as error:
            self.fatal[number] = str(error)

    def _follow(self, number: int, timeout_s: float = 0.0) -> int:
        messages = self._consumers[number].consume(1_000, timeout_s)
        by_partition: dict[int, list[tuple[int, bytes]]] = {}
        for message in messages:
            if message.error() is None:
                records = by_partition.setdefault(message.partition(), [])
                records.append((message.offset(), message.value()))
        for partition, records in by_partition.items():
            self._events.append(Poll(f"follower-{number}", partition, tuple(records)))
        return sum(map(len, by_partition.values()))

    def finish(self, timeout_s: float) -> int:
        """Wait until every record was answered; returns how many were not."""
        limit = patience.Limit(timeout_s)
        for number, producer in enumerate(self._producers):
            while len(producer) and number not in self.fatal and not limit.is_over:
                self._take_answers(number, 0.2)
        return sum(
            len(producer)
            for number, producer in enumerate(self._producers)
            if number not in self.fatal
        )

    def drain(self, final: dict[int, FinalLog], timeout_s: float) -> None:
        """Let the followers read to the end of every partition."""
        limit = patience.Limit(timeout_s)
        for number, consumer in enumerate(self._consumers):
            while not limit.is_over:
                self._follow(number, 0.2)
                positions = consumer.position(
                    [TopicPartition(TOPIC, partition) for partition in final]
                )
                if all(final[at.partition].records_end <= max(at.offset, 0) for at in positions):
                    break
            consumer.close()

    def ask_bounds(self) -> None:
        """Ask for the bounds of a few partitions, each time of others: none may go back."""
        # The client has forgotten every leader when it lost the connection.
        self._bounds_asker.list_topics(TOPIC, timeout=patience.seconds(20))
        for _ in range(BOUNDS_ASKED):
            self._bounds_asked += 1
            number = self._bounds_asked % PARTITIONS
            partition = TopicPartition(TOPIC, number)
            low, high = self._bounds_asker.get_watermark_offsets(
                partition, timeout=patience.seconds(20)
            )
            self._events.append(Bounds(number, low, high, -1))

    def read_final(self, empty_polls: int = EMPTY_POLLS) -> dict[int, FinalLog]:
        """Read every partition from its start to its end with a fresh consumer.

        A partition is over, too, when so many polls in a row have brought nothing.
        """
        consumer = self._consumer("final")
        bounds = [
            consumer.get_watermark_offsets(
                TopicPartition(TOPIC, number), timeout=patience.seconds(20)
            )
            for number in range(PARTITIONS)
        ]
        consumer.assign([TopicPartition(TOPIC, n, low) for n, (low, _) in enumerate(bounds)])
        records: list[list[tuple[int, bytes]]] = [[] for _ in bounds]
        unread = {number for number, (low, high) in enumerate(bounds) if low < high}
        in_vain = 0
        # A relaxed partition may end with offsets that it has left out.
        while unread and in_vain < empty_polls:
            messages = consumer.consume(1_000, 0.2)
            # An error comes again and again: that of a damaged partition would never end.
            messages = [message for message in messages if message.error() is None]
            in_vain = 0 if messages else in_vain + 1
            for message in messages:
                number, offset = message.partition(), message.offset()
                records[number].append((offset, message.value()))
                if offset + 1 >= bounds[number][1]:
                    unread.discard(number)
        consumer.close()
        return {
            number: FinalLog(low, high, records[number])
            for number, (low, high) in enumerate(bounds)
        }

    def events(self) -> list[Event]:
        """Return what the clients saw."""
        sends: list[Event] = [
            Send(f"producer-{which}", sent.partition, sent.value, sent.outcome, sent.offset)
            for which, all_sent in enumerate(self._sent)
            for sent in all_sent
        ]
        return sends + self._events


def create_topic(bootstrap: str) -> None:
    """Create the topic of the campaign."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=_SILENT)
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(patience.seconds(20))


def kill_during_start(gateway: GatewayProcess, delay_s: float) -> None:
    """Start the gateway and kill it before it can be expected to be ready."""
    gateway.begin_to_start()
    time.sleep(delay_s)
    gateway.kill()


def run_kills(
    seed: int,
    kills: int,
    commands: Sequence[Sequence[str]] = (SERVE,),
    settings: Sequence[str] = (),
    *,
    ready_s: float = math.inf,
) -> Report:
    """Kill a gateway under load so many times, then compare what it holds with what it said.

    `ready_s` is how long a start may take; without it nobody judges that.

    Each start takes the next command, and the last one goes on with the rest.
    """
    random = Random(seed)
    report = Report("kill-loop", seed)
    with checked_directory() as directory:
        gateways = [
            GatewayProcess(directory / "data", *settings, command=command) for command in commands
        ]
        gateway = gateways[0].start()
        create_topic(gateway.bootstrap)
        clients = Clients(gateway.bootstrap, random)
        began_s = time.monotonic()
        starts_s: list[float] = []
        for number in range(kills):
            until_s = time.monotonic() + random.uniform(0.2, 1.6)
            wanted = RECORDS_PER_KILL * (number + 1)
            limit = patience.Limit(60)
            while time.monotonic() < until_s or not (
                clients.have_seen(wanted) or limit.is_over or clients.fatal
            ):
                clients.step(time.monotonic() - began_s)
                time.sleep(0.002)
            gateway.kill()
            report.count("kills")
            port, gateway = gateway.port, gateways[min(number + 1, len(gateways) - 1)]
            gateway.port = port
            if number % START_UP_KILLS == START_UP_KILLS // 2:
                kill_during_start(gateway, random.uniform(0, START_UP_KILL_S))
                report.count("kills_in_first_200_ms")
            if number % RECOVERY_KILLS == 0:
                slowest_s = max(starts_s, default=2 * START_UP_KILL_S)
                kill_during_start(gateway, random.uniform(START_UP_KILL_S, slowest_s))
                report.count("kills_later_in_start")
            try:
                gateway.start()
            except RuntimeError as error:
                report.fail(f"no unattended restart: {error}"[:2_000])
                return report
            report.count("restarts")
            starts_s.append(gateway.start_s)
            clients.ask_bounds()
        judge_starts(report, starts_s, ready_s)
        unanswered = clients.finish(60)
        if unanswered:
            report.fail(f"{unanswered} records were never answered")
        try:
            final = clients.read_final()
        except KafkaException as error:
            report.fail(f"the final logs cannot be read: {error}")
            final = {}
        clients.drain(final, 60)
        if (status := gateway.stop()) != 0:
            report.fail(f"exit status {status} after SIGTERM")
        for number, reason in clients.fatal.items():
            report.fail(f"producer {number} gave up: {reason}")
        judge(report, clients.events(), final)
        report.require("kills", kills)
        report.require("restarts", kills)
        report.require("kills_in_first_200_ms", kills // START_UP_KILLS)
        report.require("kills_later_in_start", kills // RECOVERY_KILLS)
        report.require("acknowledged", RECORDS_PER_KILL * kills)
        report.require("polled", RECORDS_PER_KILL * kills)
    return report


def judge_starts(report: Report, starts_s: list[float], ready_s: float) -> None:
    """Say how long the restarts took from the start of the process to its `ready` line."""
    starts_ms = sorted(int(1_000 * start_s) for start_s in starts_s)
    report.count("restart_p50_ms", starts_ms[len(starts_ms) // 2])
    report.count("restart_max_ms", starts_ms[-1])
    if starts_ms[-1] > ready_s * 1_000:
        report.fail(f"a restart took {starts_ms[-1]} ms")


def judge(report: Report, events: list[Event], final: dict[int, FinalLog]) -> None:
    """Add what the history checker finds."""
    for event in events:
        if isinstance(event, Send):
            report.count("sent")
            report.count("acknowledged", event.outcome is Outcome.OK)
        elif isinstance(event, Poll):
            report.count("polled", len(event.records))
    report.count("stored", sum(len(log.records) for log in final.values()))
    for anomaly in check_history(events, final, drained=True, keeps_all=True):
        report.count(anomaly.kind.value)
        report.fail(f"{anomaly.kind.value} in partition {anomaly.partition}: {anomaly.detail}")


def run(seed: int, full: bool) -> Report:
    """Run the campaign."""
    ready_s = READY_S if full else math.inf
    report = run_kills(seed, 100 if full else 6, ready_s=ready_s)
    relaxed = run_kills(seed, 30 if full else 2, settings=RELAXED, ready_s=ready_s)
    for what in ("kills", "acknowledged", "polled"):
        report.count(f"relaxed_{what}", relaxed.counts[what])
    if relaxed.failure_count:
        report.fail(f"relaxed: {relaxed}")
    control = run_kills(seed, 12 if full else 2, (UNSAFE_SERVE,))
    report.count("control_anomalies", control.failure_count)
    # A lost record whose offset was given to another one is found as that.
    kinds = AnomalyKind.ACKED_LOST, AnomalyKind.INCONSISTENT_OFFSETS
    if not any(control.counts[kind.value] for kind in kinds):
        report.fail(f"control: acknowledging before the write lost nothing: {control}")
    return report


if __name__ == "__main__":
    main(run)
