"""What a backup costs: its own time, and that of producers beside it.

A gateway gets some gigabytes. Producers then send batches, each waiting for its answer, for a while
alone and for as long beside backups that are made one after the other. Then more is written, and
the second backup's time is compared with the first one's.

    python bench/backup.py --gigabytes 10 --more-megabytes 500 --place /mnt/other/backups
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.testing.process import GatewayProcess

KGW = (sys.executable, "-m", "kgw")
PARTITIONS = 4
VALUE = os.urandom(64 << 10)
PRODUCERS = 8


def fill(bootstrap: str, size_bytes: int) -> None:
    """Write so many bytes."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 1_000_000, "acks": "all"}
    )
    for number in range(size_bytes // len(VALUE)):
        while True:
            try:
                producer.produce("filled", VALUE, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def measure(bootstrap: str, until: threading.Event) -> list[float]:
    """Return how long each record of several producers waited for its answer, in ms."""
    found: list[float] = []

    def run() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        while not until.is_set():
            began = time.perf_counter()
            producer.produce("measured", b"x" * 1_000)
            producer.flush()
            found.append((time.perf_counter() - began) * 1_000)
            time.sleep(0.01)

    threads = [threading.Thread(target=run) for _ in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def alone(bootstrap: str, seconds: float) -> list[float]:
    """Measure for so long."""
    over = threading.Event()
    threading.Timer(seconds, over.set).start()
    return measure(bootstrap, over)


def backup(data_dir: Path, place: Path, *options: str) -> tuple[float, dict[str, object]]:
    """Make a backup; return its time in seconds and what it says."""
    began = time.perf_counter()
    output = subprocess.run(
        [*KGW, "backup", str(data_dir), "--to", str(place), "--json", *options],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return time.perf_counter() - began, json.loads(output)


def tell(what: str, times: list[float]) -> float:
    """Print the figures of one phase and return its p99."""
    p99 = statistics.quantiles(times, n=100)[98]
    print(
        f"{what}: {len(times)} answers, p50 {statistics.median(times):.2f} ms, p99 {p99:.2f} ms, "
        f"max {max(times):.2f} ms",
        flush=True,
    )
    return p99


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--more-megabytes", type=int, default=100)
    parser.add_argument("--place", type=Path, help="on another file system", required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", default="", help="as of kgw backup, which has a default")
    arguments = parser.parse_args()
    rate = ("--rate", arguments.rate) if arguments.rate else ()
    place = arguments.place / f"kgw-bench-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="kgw-bench-") as directory:
        data_dir = Path(directory) / "data"
        with GatewayProcess(data_dir, "log.segment.bytes=268435456") as gateway:
            bootstrap = gateway.bootstrap
            topics = [NewTopic("filled", PARTITIONS, 1), NewTopic("measured", PARTITIONS, 1)]
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for future in admin.create_topics(topics).values():
                future.result(20)
            fill(bootstrap, int(arguments.gigabytes * (1 << 30)))
            ratios = []
            for _ in range(3):
                before = tell("alone", alone(bootstrap, arguments.seconds))
                over = threading.Event()
                made: list[float] = []

                def make_backups(over: threading.Event = over, made: list[float] = made) -> None:
                    until = time.perf_counter() + arguments.seconds
                    while time.perf_counter() < until:
                        shutil.rmtree(place, ignore_errors=True)
                        made.append(backup(data_dir, place, "--copy", *rate)[0])
                    over.set()

                thread = threading.Thread(target=make_backups)
                thread.start()
                beside = tell("beside backups", measure(bootstrap, over))
                thread.join()
                ratios.append(beside / before)
                print(f"{len(made)} full backups; p99 ratio {ratios[-1]:.2f}", flush=True)
            print(
                f"p99 ratio, median of {len(ratios)}: {statistics.median(ratios):.2f}", flush=True
            )
            shutil.rmtree(place, ignore_errors=True)
            first_s, first = backup(data_dir, place, *rate)
            fill(bootstrap, arguments.more_megabytes << 20)
            second_s, second = backup(data_dir, place, *rate)
            print(
                f"first {first_s:.2f} s ({first['copied_bytes']} bytes copied), second "
                f"{second_s:.2f} s ({second['copied_bytes']} bytes): {second_s / first_s:.3f}",
                flush=True,
            )
    shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
