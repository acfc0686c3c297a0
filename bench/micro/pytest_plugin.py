"""What the pytest plugin costs: a start, a broker for each test, a thousand tests, memory.

`start`: from the request of `kgw_broker` until it is there, imports included, the median of fresh
processes that have imported pytest. `brokers`: the same in one process that has one already, and
its end. `tests`: pytest over tests each of which gets a broker with a topic, appends a record and
reads it with a client of its own, beside as many that do nothing, and what the process had in
memory at its peak.

    scripts/bench --micro pytest_plugin [--rounds N] [--tests N] [--clients NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEAD = "import pytest\npytestmark = pytest.mark.kgw_topics('orders')\n"
CLIENTS = {
    "none": "def one(kgw_broker): ...\n",
    "kgw": """
import asyncio
from kgw.client import AsyncClient
from kgw.testing.batches import make_batch

def one(kgw_broker):
    async def both():
        async with AsyncClient([("127.0.0.1", kgw_broker.port)]) as client:
            await client.produce("orders", 0, make_batch([b"x"]).buffer)
            assert await client.fetch("orders", {0: 0})
    asyncio.run(both())
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

def one(kgw_broker):
    async def both():
        at = kgw_broker.bootstrap
        async with AIOKafkaProducer(bootstrap_servers=at) as producer:
            await producer.send_and_wait("orders", b"x")
        async with AIOKafkaConsumer(
            "orders", bootstrap_servers=at, auto_offset_reset="earliest"
        ) as consumer:
            assert b"x" == (await consumer.getone()).value
    asyncio.run(both())
""",
    "confluent-kafka": """
from confluent_kafka import Consumer, Producer, TopicPartition

def one(kgw_broker):
    at = kgw_broker.bootstrap
    producer = Producer({"bootstrap.servers": at, "linger.ms": 0})
    producer.produce("orders", b"x")
    assert 0 == producer.flush(10)
    consumer = Consumer({"bootstrap.servers": at, "group.id": "g", "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert b"x" == consumer.poll(10).value()
    consumer.close()
""",
    "kafka-python": """
from kafka import KafkaConsumer, KafkaProducer

def one(kgw_broker):
    at = kgw_broker.bootstrap
    producer = KafkaProducer(bootstrap_servers=at)
    producer.send("orders", b"x").get(10)
    producer.close()
    consumer = KafkaConsumer("orders", bootstrap_servers=at, auto_offset_reset="earliest")
    assert b"x" == next(consumer).value
    consumer.close()
""",
}
DEFAULT = [name for name in CLIENTS if name != "kafka-python"]
"""A producer and a consumer of kafka-python wait 0.1 s each before they ask for a topic again."""
TIMED = """
import time, pytest

class Times:
    def __init__(self):
        self.seconds = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            if fixturedef.argname in ("kgw_thread", "kgw_broker"):
                self.seconds += time.perf_counter() - began

times = Times()
assert 0 == pytest.main(["-q", "-pno:cacheprovider", "test_one.py"], plugins=[times])
print("seconds", times.seconds)
"""
BROKERS = """
import json, sys, time
from kgw.testing.broker import Broker
from kgw.testing.loop_thread import LoopThread

thread, starts, ends = LoopThread(), [], []
Broker(thread=thread, topics={"orders": 1}).start().close()
for _ in range(int(sys.argv[1])):
    began = time.perf_counter()
    broker = Broker(thread=thread, topics={"orders": 1}).start()
    started = time.perf_counter()
    broker.close()
    starts.append(started - began)
    ends.append(time.perf_counter() - started)
thread.close()
print(json.dumps([starts, ends]))
"""


def run(directory: Path, *arguments: str) -> str:
    """Run Python there and return what it prints."""
    ran = subprocess.run(
        [sys.executable, *arguments], check=True, cwd=directory, capture_output=True, text=True
    )
    return ran.stdout


def start_ms(directory: Path, rounds: int) -> dict[str, float]:
    """Measure the first broker of fresh processes."""
    (directory / "test_one.py").write_text("def test_one(kgw_broker): ...\n")
    (directory / "timed.py").write_text(TIMED)
    times = [
        float(run(directory, "timed.py").rsplit("seconds", 1)[1]) * 1000 for _ in range(rounds)
    ]
    return {"median": round(statistics.median(times), 1), "worst": round(max(times), 1)}


def brokers_ms(directory: Path, rounds: int) -> dict[str, float]:
    """Measure further brokers of one process."""
    (directory / "brokers.py").write_text(BROKERS)
    starts, ends = json.loads(run(directory, "brokers.py", str(rounds)))
    return {
        "start": round(statistics.median(starts) * 1000, 2),
        "end": round(statistics.median(ends) * 1000, 2),
    }


def tests_s(directory: Path, client: str, count: int) -> dict[str, float]:
    """Measure so many tests, each with a broker and a client of its own."""
    text = f"{HEAD}{CLIENTS[client]}\n@pytest.mark.parametrize('number', range({count}))\n"
    (directory / "test_many.py").write_text(
        text + "def test_many(kgw_broker, number):\n    one(kgw_broker)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "test_many.py"]
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the tests with {client} failed: {' '.join(command)}")
    return {
        "s": round(time.perf_counter() - began, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss / 1024, 1),
    }


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tests", type=int, default=1_000)
    parser.add_argument("--clients", nargs="*", default=DEFAULT, choices=list(CLIENTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        found: dict[str, object] = {
            "start_ms": start_ms(directory, options.rounds),
            "brokers_ms": brokers_ms(directory, options.rounds),
        }
        for client in options.clients:
            measured = tests_s(directory, client, options.tests)
            found[f"tests, {client}"] = {"tests": options.tests, **measured}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
