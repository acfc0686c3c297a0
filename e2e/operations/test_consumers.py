"""Consumers while a volume server hangs: what lies on the others is read as ever."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from e2e.operations.day import SEED, SERVERS
from kgw.testing.process import SERVE
from tests import patience
from tests.interop.libraries import java_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.operations.conftest import NewRow
    from e2e.operations.day import Day

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(360)]

AWAY: Final = "away"
"""On the server that hangs."""
HERE: Final = "here"
PARTITIONS: Final = 10
RECORDS: Final = {AWAY: 10, HERE: 200}
"""Of each partition."""
STOPPED_S: Final = 90
USUAL_S: Final = 5
"""More than it takes to read everything while nothing hangs."""
AFTER_S: Final = 20
"""More than it takes when the server goes on: what waits for it asks again at times."""
LATER_S: Final = 1.0
"""By how much later than usual a healthy partition may be read to its end."""

Ends = dict[tuple[str, int], float]
"""When each partition was read to its end, in seconds since the first poll."""


def write(bootstrap: str, topic: str) -> None:
    """Make a topic, and a chunk of each of its records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (created,) = admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values()
    created.result(patience.seconds(30))
    random = Random(SEED)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for _ in range(RECORDS[topic] // 10):
        for partition in range(PARTITIONS):
            for _ in range(10):
                producer.produce(topic, random.randbytes(2_000), partition=partition)
        assert producer.flush(patience.seconds(60)) == 0


def read_by_librdkafka(bootstrap: str, lasts_s: float) -> Ends:
    """Read both topics by confluent-kafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "socket.timeout.ms": 30_000,
            "log_level": 0,
        }
    )
    consumer.assign(
        [TopicPartition(topic, number, 0) for topic in RECORDS for number in range(PARTITIONS)]
    )
    ends: Ends = {}
    began_s = time.monotonic()
    while (elapsed_s := time.monotonic() - began_s) < lasts_s:
        for message in consumer.consume(500, 0.1):
            if message.error() is None and message.offset() == RECORDS[message.topic()] - 1:
                ends[message.topic(), message.partition()] = elapsed_s
    consumer.close()
    return ends


def read_by_java(bootstrap: str, lasts_s: float) -> Ends:
    """Read both topics by Java's kafka-clients."""
    command = java_program("java/target/kafka-4", "driver.jar", "kgw.e2e.AssignedReader")
    topics = [f"{topic}:{PARTITIONS}" for topic in RECORDS]
    said = subprocess.run(
        [*command, bootstrap, str(round(lasts_s)), *topics],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience.seconds(lasts_s + 60),
    ).stdout
    ends: Ends = {}
    for line in said.splitlines():
        topic, partition, end, elapsed_ms = line.split()
        if int(end) == RECORDS[topic]:
            ends[topic, int(partition)] = int(elapsed_ms) / 1_000
    return ends


READERS: Final[dict[str, Callable[[str, float], Ends]]] = {
    "librdkafka": read_by_librdkafka,
    "java": read_by_java,
}


def read(bootstrap: str, lasts_s: float) -> dict[str, Ends]:
    """Have every library read for so long, side by side."""
    found: dict[str, Ends] = {}

    def run(name: str) -> None:
        found[name] = READERS[name](bootstrap, lasts_s)

    threads = [threading.Thread(target=run, args=(name,)) for name in READERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_healthy_partitions_are_read_while_a_server_hangs(day: Day, new_row: NewRow) -> None:
    """90 s of SIGSTOP: each partition elsewhere is read within a second of its usual time."""
    with new_row("hangs") as row:
        # With the memory that a gateway has; each reading begins with a new one.
        gateway = day.site.gateway(row.url, (*SERVE, "--take-over"), *row.settings)
        try:
            for topic, away in ((AWAY, SERVERS[1:]), (HERE, SERVERS[:1])):
                for server in away:
                    day.cluster.terminate(server)
                if not gateway.running:
                    day.site.start(gateway)
                write(gateway.bootstrap, topic)
                day.cluster.start(*away)
            gateway.stop()
            day.site.start(gateway)
            usual = read(gateway.bootstrap, USUAL_S)
            gateway.stop()
            day.site.start(gateway)
            day.cluster.send_signal(SERVERS[0], signal.SIGSTOP)
            try:
                found = read(gateway.bootstrap, STOPPED_S)
            finally:
                day.cluster.send_signal(SERVERS[0], signal.SIGCONT)
            after = read(gateway.bootstrap, AFTER_S)
        finally:
            if gateway.running:
                gateway.kill()
    everything = {(topic, number) for topic in RECORDS for number in range(PARTITIONS)}
    late: list[str] = []
    for name in READERS:
        assert everything == set(usual[name]), name
        slowest_s = max(usual[name].values())
        print(f"{name}: usually {slowest_s:.2f} s", flush=True)
        for number in range(PARTITIONS):
            one = (HERE, number)
            took_s = found[name].get(one)
            print(f"{name}: partition {number} after {took_s} s", flush=True)
            if took_s is None or took_s > usual[name][one] + LATER_S:
                late.append(f"{name}: partition {number} after {took_s} s")
    assert [] == late
    assert [everything] * len(READERS) == [set(after[name]) for name in READERS]
