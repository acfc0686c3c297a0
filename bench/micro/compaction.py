"""Compaction of a partition of 1 GB: records of 1 KB with 500,000 different keys.

One gateway process, as a user would start it. Records of 1 KB are produced to a compacted topic;
then one-record requests go to another topic at an even pace, first alone and then while the
partition is compacted, so that what compaction costs them shows. What is left is read by a client
and compared with a plain model, and a second run over the stopped directory has to leave every
byte as it is.

    scripts/bench --micro compaction [--megabytes N] [--keys N] [--rate N] [--directory DIR]
        [--dump-log]    also has kafka-dump-log read every segment (needs a JDK and Maven)
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.loads.frames import CORRELATION_ID_AT, batch_of, produce_frame
from kgw.backend.base import CompactionJob, CompactionReport, LogSettings
from kgw.backend.embedded.backend import EmbeddedBackend
from kgw.backend.embedded.layout import parse_directory_name
from kgw.testing.process import GatewayProcess, process_usage
from kgw.testing.segmented_suite import as_segmented
from kgw.types import TopicName

TOPIC = "compacted"
BESIDE = "beside"
RECORD_BYTES = 1_024
SEGMENTS = 8
START_LIMIT_S = 60.0
LOOK_S = 0.2


def key_numbers(count: int, keys: int) -> list[int]:
    """Return which key each record has: every key once, the rest by chance."""
    chance = random.Random(5)
    numbers = [*range(keys), *(chance.randrange(keys) for _ in range(count - keys))]
    chance.shuffle(numbers)
    return numbers


def fill(gateway: GatewayProcess, numbers: list[int]) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 5, "acks": "all"})
    padding = os.urandom(RECORD_BYTES)
    failures: list[str] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for offset, number in enumerate(numbers):
        value = b"%010d" % offset + padding[: RECORD_BYTES - 30]
        while True:
            try:
                producer.produce(TOPIC, value, b"key-%010d" % number, 0, callback=on_delivery)
                break
            except BufferError:
                producer.poll(0.05)
        if offset % 1_000 == 0:
            producer.poll(0)
    if producer.flush(120) or failures:
        raise RuntimeError(f"not everything was acknowledged: {failures[:3]}")


class Pace:
    """One-record requests at an even pace, whether or not answers are slow."""

    def __init__(self, gateway: GatewayProcess, rate: float) -> None:
        self._connection = socket.create_connection((gateway.host, gateway.port))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frame = produce_frame(BESIDE, {0: batch_of(1, 100)})
        self._interval_s = 1 / rate
        self._sent = 0

    def run(self, is_done: Any) -> list[float]:
        """Send until `is_done`; return how late each answer came after its request was due."""
        due: dict[int, float] = {}
        latencies = []
        receiver_done = threading.Event()

        def receive() -> None:
            data = bytearray()
            while not (receiver_done.is_set() and not due):
                data += self._connection.recv(1 << 16)
                now_s = time.perf_counter()
                while len(data) >= 8:
                    size = int.from_bytes(data[:4], "big")
                    if len(data) < 4 + size:
                        break
                    latencies.append(now_s - due.pop(int.from_bytes(data[4:8], "big")))
                    del data[: 4 + size]

        receiver = threading.Thread(target=receive)
        receiver.start()
        next_s = time.perf_counter()
        while not is_done():
            wait_s = next_s - time.perf_counter()
            if wait_s > 0:
                time.sleep(wait_s)
            self._send(due, next_s)
            next_s += self._interval_s
        receiver_done.set()
        self._send(due, time.perf_counter())
        receiver.join()
        return latencies

    def _send(self, due: dict[int, float], at_s: float) -> None:
        struct.pack_into(">i", self._frame, CORRELATION_ID_AT, self._sent)
        due[self._sent] = at_s
        self._sent += 1
        self._connection.sendall(self._frame)


class Watch:
    """Sees the cleaning process come and go, and what memory it and the gateway take."""

    def __init__(self, gateway_pid: int) -> None:
        self._pid = gateway_pid
        self.idle_bytes = process_usage(gateway_pid).anonymous_bytes
        self.gateway_peak_bytes = 0
        self.child_peak_bytes = 0
        self.child_cpu_s = 0.0
        self.began_s: float | None = None
        self.ended_s: float | None = None
        self.both_peak_bytes = 0
        self._next_s = 0.0

    def look(self) -> None:
        """Look, unless it was done a moment ago; to be called often, also before it begins.

        Adding up a process's memory holds up its own calls for memory: done before each request it
        made half of them half as slow again, compaction or not.
        """
        now_s = time.perf_counter()
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        gateway_bytes = process_usage(self._pid).anonymous_bytes
        child_bytes = 0
        for child in children:
            try:
                usage = process_usage(int(child))
            except (FileNotFoundError, ProcessLookupError, KeyError):
                continue
            child_bytes = usage.anonymous_bytes + usage.file_bytes
            self.child_peak_bytes = max(self.child_peak_bytes, usage.peak_bytes)
            self.child_cpu_s = usage.cpu_s
        if children and self.began_s is None:
            self.began_s = time.perf_counter()
        if self.began_s is not None and self.ended_s is None:
            self.gateway_peak_bytes = max(self.gateway_peak_bytes, gateway_bytes)
            self.both_peak_bytes = max(self.both_peak_bytes, gateway_bytes + child_bytes)
            if not children:
                self.ended_s = time.perf_counter()


def alter(gateway: GatewayProcess, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(10)


def summary(latencies: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(latencies, n=1000)
    return {
        "requests": len(latencies),
        "p50_ms": round(cuts[499] * 1e3, 2),
        "p99_ms": round(cuts[989] * 1e3, 2),
        "p999_ms": round(cuts[998] * 1e3, 2),
    }


def compare(gateway: GatewayProcess, numbers: list[int], active: int) -> int:
    """Read all that is left and compare it with the model; returns how many records that are."""
    newest: dict[int, int] = {}
    for offset in range(active):
        newest[numbers[offset]] = offset
    expected = sorted(newest.values()) + list(range(active, len(numbers)))
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    position = 0
    at_end = False
    while not at_end:
        for message in consumer.consume(10_000, 5):
            if message.error() is not None:
                at_end = True
                continue
            offset = expected[position]
            key = b"key-%010d" % numbers[offset]
            found = (message.offset(), message.key(), message.value()[:10])
            if found != (offset, key, b"%010d" % offset):
                raise AssertionError(f"{found} where {(offset, key)} should be")
            position += 1
    consumer.close()
    if position != len(expected):
        raise AssertionError(f"{position} records where {len(expected)} should be")
    return position


def partition_directory(data_dir: Path) -> Path:
    """Return the directory of the compacted partition: the one with the most bytes."""
    return max(
        (data_dir / "partitions").iterdir(),
        key=lambda one: sum(path.stat().st_size for path in one.glob("*.log")),
    )


def digest(directory: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(directory.glob("*.log")):
        found.update(path.name.encode())
        found.update(path.read_bytes())
    return found.hexdigest()


async def compact_again(data_dir: Path, directory: Path, megabytes: int) -> CompactionReport:
    """Compact the partition once more, as if nobody knew that it has been."""
    backend = EmbeddedBackend(data_dir)
    await backend.open()
    key = parse_directory_name(directory.name)
    assert key is not None
    settings = LogSettings(segment_bytes=(megabytes << 20) // SEGMENTS)
    log = as_segmented(await backend.open_partition(key, TopicName(TOPIC), settings))
    report = await log.compact(CompactionJob(1 << 40, int(time.time() * 1e3), 86_400_000))
    await backend.aclose()
    return report


def run(parent: Path, megabytes: int, keys: int, rate: float, *, dump_log: bool) -> dict[str, Any]:
    count = (megabytes << 20) // RECORD_BYTES
    numbers = key_numbers(count, keys)
    data_dir = parent / "data"
    figures: dict[str, Any] = {"records": count, "keys": keys}
    with GatewayProcess(data_dir, "log.cleaner.backoff.ms=500") as gateway:
        admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str((megabytes << 20) // SEGMENTS),
            "min.cleanable.dirty.ratio": "1.0",
            "min.compaction.lag.ms": "100000000",
        }
        topics = [NewTopic(TOPIC, 1, 1, config=config), NewTopic(BESIDE, 1, 1)]
        for created in admin.create_topics(topics).values():
            created.result(10)
        fill(gateway, numbers)
        pace = Pace(gateway, rate)
        end_s = time.perf_counter() + 2
        pace.run(lambda: time.perf_counter() > end_s)
        end_s = time.perf_counter() + 15
        watch = Watch(gateway.pid)

        def is_enough() -> bool:
            watch.look()
            return time.perf_counter() > end_s

        figures["alone"] = summary(pace.run(is_enough))
        directory = partition_directory(data_dir)
        active = max(int(path.stem) for path in directory.glob("*.log"))
        alter(gateway, "min.compaction.lag.ms", "0")
        alter(gateway, "min.cleanable.dirty.ratio", "0.01")
        limit_s = time.perf_counter() + START_LIMIT_S
        while watch.began_s is None:
            watch.look()
            time.sleep(0.005)
            if time.perf_counter() > limit_s:
                raise RuntimeError("compaction has not begun")

        def is_over() -> bool:
            watch.look()
            return watch.ended_s is not None

        figures["beside_compaction"] = summary(pace.run(is_over))
        assert watch.ended_s is not None
        figures["p99_ratio"] = round(
            figures["beside_compaction"]["p99_ms"] / figures["alone"]["p99_ms"], 2
        )
        figures |= {
            "compaction_s": round(watch.ended_s - watch.began_s, 2),
            "child_cpu_s": round(watch.child_cpu_s, 2),
            "child_peak_mb": round(watch.child_peak_bytes / 1e6, 1),
            "gateway_idle_mb": round(watch.idle_bytes / 1e6, 1),
            "gateway_peak_mb": round(watch.gateway_peak_bytes / 1e6, 1),
            "above_idle_mb": round((watch.both_peak_bytes - watch.idle_bytes) / 1e6, 1),
        }
        figures["records_left"] = compare(gateway, numbers, active)
    before = digest(directory)
    began_s = time.perf_counter()
    report = asyncio.run(compact_again(data_dir, directory, megabytes))
    figures["second_run_s"] = round(time.perf_counter() - began_s, 2)
    figures["second_run_read_mb"] = round(report.bytes_read / 1e6)
    figures["second_run_changed_nothing"] = before == digest(directory)
    figures["segments"] = len(list(directory.glob("*.log")))
    if dump_log:
        script = Path(__file__).parents[2] / "e2e" / "dump-log.sh"
        done = subprocess.run(
            [script, data_dir, "3.9.1", "compacted"], check=True, capture_output=True, text=True
        )
        figures["dump_log"] = done.stdout.strip().splitlines()[-1]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1_024)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second beside it")
    parser.add_argument("--dump-log", action="store_true")
    parser.add_argument("--directory", type=Path, help="where to put the data (default: a new one)")
    options = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory))
    try:
        figures = run(
            parent, options.megabytes, options.keys, options.rate, dump_log=options.dump_log
        )
        print(json.dumps(figures))
    finally:
        shutil.rmtree(parent)


if __name__ == "__main__":
    main()
