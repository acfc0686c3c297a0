"""D9: the wall clock of a real process jumps by an hour and by ten years, there and back.

After each jump retention looks at the topic, and would remove all of it by the wrong time. A start
that finds the clock wrong would let committed offsets of groups without members, idle transactional
ids and open transactions go.
Run as `python -m tests.campaigns.clock_jumps --full --seed N`.
"""

from __future__ import annotations

import sys
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.testing.process import GatewayProcess
from tests import patience
from tests.campaigns.jumping_serve import AGES, CLOCK_FILE, last_retention, set_clock
from tests.campaigns.support import Report, checked_directory, main

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from confluent_kafka import Message

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
YEARS_MS = (10 * YEAR_MS, -10 * YEAR_MS)
WRONG_BY_MS = (HOUR_MS, -HOUR_MS, *YEARS_MS)
TOPIC = "timed"
LEFT_TOPIC = "left"
STROBES = 100
RECORDS_PER_STROBE = 20
LEFT_EVERY = 20
"""Strobes after which another group without members and more ids are left behind."""
POLL_S = 0.02
SERVE = (
    *("env", f"{CLOCK_FILE}={{clock}}", f"{AGES}={{ages}}"),
    *(sys.executable, "-m", "tests.campaigns.jumping_serve"),
)
# Less than the smallest jump, and far more than the campaign takes.
LIMIT_MS = HOUR_MS // 2
SETTINGS = (
    "log.retention.check.interval.ms=20",
    "log.initial.task.delay.ms=0",
    "log.segment.bytes=4096",
    f"log.retention.ms={LIMIT_MS}",
    f"offsets.retention.minutes={LIMIT_MS // 60_000}",
    "offsets.retention.check.interval.ms=20",
    f"transactional.id.expiration.ms={LIMIT_MS}",
    "transaction.remove.expired.transaction.cleanup.interval.ms=20",
    f"transaction.max.timeout.ms={LIMIT_MS}",
    # The server's clock is the one that is wrong: producers are not to be refused for it.
    "log.message.timestamp.after.max.ms=9223372036854775807",
)


class _Group:
    """A member of a group: whether its partition is ever taken from it."""

    def __init__(self, bootstrap: str) -> None:
        self.taken = 0
        self.offsets: list[int] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "group.id": "watchers",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self._consumer.subscribe([TOPIC], on_revoke=self._revoked, on_lost=self._revoked)

    def _revoked(self, *_: object) -> None:
        self.taken += 1

    def poll(self, timeout_s: float) -> None:
        for message in self._consumer.consume(1000, timeout_s):
            if message.error() is None:
                self.offsets.append(message.offset())

    def close(self) -> int:
        """Leave; how often the partition was taken away before."""
        taken = self.taken
        self._consumer.close()
        return taken


class _Left:
    """What nobody uses until the end: offsets of a group, an idle id, an open transaction."""

    def __init__(self, bootstrap: str, number: int) -> None:
        self._offset = number + 1
        self._name = f"left-{number}"
        common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._consumer = Consumer({**common, "group.id": self._name})
        place = TopicPartition(TOPIC, 0, self._offset)
        self._consumer.commit(offsets=[place], asynchronous=False)
        self._producers = {}
        for state in ("idle", "open"):
            producer = Producer(
                {
                    **common,
                    "transactional.id": f"{self._name}-{state}",
                    "transaction.timeout.ms": LIMIT_MS,
                }
            )
            producer.init_transactions(30)
            self._producers[state] = producer
        self._begin("open")

    def _begin(self, state: str) -> None:
        producer = self._producers[state]
        producer.begin_transaction()
        producer.produce(LEFT_TOPIC, self._name.encode())
        producer.flush(30)

    def check(self, report: Report) -> None:
        """Use all of it; each must be what it was."""
        (found,) = self._consumer.committed(
            [TopicPartition(TOPIC, 0)], timeout=patience.seconds(30)
        )
        report.count("offsets_looked_up")
        if found.offset != self._offset:
            report.fail(f"{self._name}: committed offset {found.offset}, not {self._offset}")
        for state, producer in self._producers.items():
            report.count(f"{state}_ids_used")
            try:
                if state == "idle":
                    self._begin(state)
                producer.commit_transaction(30)
            except KafkaException as error:
                report.fail(f"{self._name}: the {state} id is not what it was: {error}")

    def close(self) -> None:
        self._consumer.close()


class Answers:
    """Where records were stored, and with which times, by the answers to them."""

    def __init__(self) -> None:
        self.times: dict[int, int] = {}
        self._given_again: list[int] = []

    def take(self, offset: int, timestamp_ms: int) -> None:
        """Take the answer to one record."""
        if offset in self.times:
            self._given_again.append(offset)
        self.times[offset] = timestamp_ms

    def first_at(self, timestamp_ms: int) -> int:
        """Return the first offset with a time or a later one."""
        return min(at for at, time_ms in self.times.items() if time_ms >= timestamp_ms)

    def broken(self, start: int, end: int) -> Iterator[str]:
        """Yield what is wrong with a log that begins and ends there: all of it is answered."""
        if start != 0:
            yield f"records were removed: the log begins at {start}"
        if self._given_again:
            yield f"offsets were given twice: {self._given_again[:10]}"
        if sorted(self.times) != list(range(end)):
            yield f"offsets up to {end} are not those of the answers"


class _Run:
    """One process, its clock, and what was stored."""

    def __init__(self, gateway: GatewayProcess, clock: Path) -> None:
        self._gateway = gateway
        self._clock = clock
        self._clock_version = 0
        self._wrong_by_ms = 0
        common = {"bootstrap.servers": gateway.bootstrap, "log_level": 0}
        admin = AdminClient(common)
        for creation in admin.create_topics(
            [NewTopic(TOPIC, 1, 1), NewTopic(LEFT_TOPIC, 1, 1)]
        ).values():
            creation.result(timeout=patience.seconds(30))
        self._producer = Producer({**common, "linger.ms": 0, "acks": "all"})
        self._reader = Consumer({**common, "group.id": "unused", "auto.offset.reset": "error"})
        self._group = _Group(gateway.bootstrap)
        self._left: list[_Left] = []
        self.answers = Answers()

    def _stored(self, error: object, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            self.answers.take(offset, message.timestamp()[1])

    def strobe(self, wrong_by_ms: int) -> None:
        """Set the clock, produce, and wait until retention has looked at what was produced."""
        self._wrong_by_ms = wrong_by_ms
        self._set_clock()
        for number in range(RECORDS_PER_STROBE):
            self._producer.produce(TOPIC, b"%d" % number + b"." * 50, on_delivery=self._stored)
        self._producer.flush(30)
        self._await_retention()

    def leave(self) -> None:
        """Leave something behind that must be there at the end."""
        self._left.append(_Left(self._gateway.bootstrap, len(self._left)))

    def restart(self, wrong_by_ms: int) -> None:
        """Kill, set the clock, and start."""
        self._gateway.kill()
        self._wrong_by_ms = wrong_by_ms
        self._set_clock()
        self._gateway.start()
        # Before the next jump: a start that first looks at the clock after it would take an hour
        # for the time for which it was stopped.
        self._await_retention()

    def _await_retention(self) -> None:
        """Wait for a run of retention that begins from now on: it knows the newest version."""
        self._set_clock()
        limit = patience.Limit(20)
        while last_retention(self._clock) < self._clock_version:
            if limit.is_over:
                raise AssertionError("retention has not run for 20 s")
            self._group.poll(POLL_S)

    def _set_clock(self) -> None:
        self._clock_version += 1
        set_clock(self._clock, self._clock_version, self._wrong_by_ms)

    def check(self, report: Report) -> None:
        """Compare what is served with what was stored."""
        for one in self._left:
            one.check(report)
        place = TopicPartition(TOPIC, 0)
        # A client forgets where the leader is when the server is killed.
        self._reader.list_topics(TOPIC, timeout=patience.seconds(20))
        start, end = self._reader.get_watermark_offsets(place, timeout=patience.seconds(20))
        for wrong in self.answers.broken(start, end):
            report.fail(wrong)
        if start != 0:
            return  # what follows would wait for those records
        times = self.answers.times
        wanted = sorted(times.items())[:: max(1, len(times) // 50)]
        for offset, timestamp_ms in wanted:
            asked = TopicPartition(TOPIC, 0, timestamp_ms)
            (found,) = self._reader.offsets_for_times([asked], timeout=patience.seconds(20))
            first = self.answers.first_at(timestamp_ms)
            report.count("times_looked_up")
            if found.offset != first:
                report.fail(f"the time of offset {offset} leads to {found.offset}, not {first}")
        limit = patience.Limit(20)
        while len(self._group.offsets) < len(times) and not limit.is_over:
            self._group.poll(0.2)
        if sorted(set(self._group.offsets)) != sorted(times):
            report.fail("the group has not read what was stored")

    def close(self) -> int:
        """End the clients; how often the group's member lost its partition."""
        self._reader.close()
        for one in self._left:
            one.close()
        return self._group.close()


def run(seed: int, full: bool) -> Report:
    """Jump a hundred times, and kill after one, with the clock ten years wrong at the start.

    With no hold a control must lose records, and one whose ages go by the wall clock all the rest.
    """
    report = Report("clock_jumps", seed)
    random = Random(seed)
    jumps = [0]
    while len(jumps) < STROBES * (10 if full else 1):
        jumps.append(random.choice([one for one in (*WRONG_BY_MS, 0) if one != jumps[-1]]))
    restarts = 5 if full else 1
    # A start does not catch a jump of an hour: a stop of an hour would explain it.
    restart_at = {
        len(jumps) * (one + 1) // (restarts + 1): YEARS_MS[one % 2] for one in range(restarts)
    }
    _jump(report, jumps, restart_at)
    report.require("jumps", len(jumps) - 2 * restarts - 1)
    report.require("records", RECORDS_PER_STROBE * (len(jumps) + 1))
    report.require("restarts", restarts)
    for what in ("offsets_looked_up", "idle_ids_used", "open_ids_used"):
        report.require(what, len(jumps) // LEFT_EVERY)
    control = Report("clock_jumps (no hold)", seed)
    _jump(control, WRONG_BY_MS, settings=("kgw.clock.hold.ms=0",))
    report.expect_alarm(control, "records were removed")
    control = Report("clock_jumps (ages by the wall clock)", seed)
    _jump(control, (0, 0), {0: 10 * YEAR_MS}, ages="wall")
    # A start gives open transactions their whole time, by whichever clock.
    for what in ("committed offset", "the idle id"):
        report.expect_alarm(control, what)
    return report


def _jump(
    report: Report,
    jumps: Iterable[int],
    restart_at: Mapping[int, int] = MappingProxyType({}),
    settings: tuple[str, ...] = (),
    ages: str = "",
) -> None:
    """Let the clock be wrong by each of these in turn, and at restarts by what they say."""
    with checked_directory() as parent:
        clock = parent / "clock"
        set_clock(clock, 0, 0)
        command = [part.format(clock=clock, ages=ages) for part in SERVE]
        with GatewayProcess(
            parent / "data", *SETTINGS, *settings, command=[*command, "serve"]
        ) as gateway:
            running = _Run(gateway, clock)
            before = 0
            for number, wrong_by_ms in enumerate(jumps):
                running.strobe(wrong_by_ms)
                report.count("jumps", wrong_by_ms != before)
                before = wrong_by_ms
                if number % LEFT_EVERY == 0:
                    running.leave()
                if number in restart_at:
                    before = restart_at[number]
                    running.restart(before)
                    report.count("restarts")
            running.strobe(0)
            running.check(report)
            report.count("records", len(running.answers.times))
            taken, restarts = running.close(), len(restart_at)
            if taken > restarts:
                report.fail(f"a member lost its partition {taken} times in {restarts} restarts")


if __name__ == "__main__":
    main(run)
