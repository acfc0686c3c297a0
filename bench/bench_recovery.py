"""How long a gateway takes to be ready after a kill -9 over a gigabyte of data in 16 KB batches.

Three starts, each after a kill: with the checkpoints that the defaults had made, with every
checkpoint, index and snapshot deleted, and with the side files deleted as well. Each is the time
from the start of the process to its `ready` line; the records are counted afterwards.

    python bench/bench_recovery.py [--megabytes N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.testing.process import GatewayProcess

PARTITIONS = 4
BATCH_BYTES = 16 << 10
TOPIC = "bench-recovery"


def fill(gateway: GatewayProcess, megabytes: int) -> int:
    """Produce records of 16 KB, one a batch, and return how many were acknowledged."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    producer = Producer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "acks": "all",
            "batch.num.messages": 1,
            "linger.ms": 0,
        }
    )
    failures: list[str] = []
    value = os.urandom(BATCH_BYTES - 80)
    count = (megabytes << 20) // BATCH_BYTES

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS, callback=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(120) or failures:
        raise RuntimeError(f"not everything was acknowledged: {failures[:3]}")
    return count


def count_records(gateway: GatewayProcess) -> int:
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "bench"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=10)
        for number in range(PARTITIONS)
    ]
    consumer.close()
    return sum(high - low for low, high in ends)


def forget(data_dir: Path, *suffixes: str) -> None:
    """Delete every checkpoint row and the files with these suffixes."""
    connection = sqlite3.connect(data_dir / "meta.sqlite")
    with connection:
        connection.execute("DELETE FROM state_entry WHERE kind = 'checkpoint'")
    connection.close()
    for path in (data_dir / "partitions").glob("*/*"):
        if path.suffix in suffixes:
            path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="bench-recovery-", dir=arguments.directory))
    result: dict[str, object] = {"megabytes": arguments.megabytes}
    try:
        gateway = GatewayProcess(base / "data").start()
        result["empty_s"] = round(gateway.start_s, 3)
        began = time.perf_counter()
        count = fill(gateway, arguments.megabytes)
        result["fill_s"] = round(time.perf_counter() - began, 1)
        gateway.kill()
        for name, suffixes in (
            ("default_checkpoints_s", None),
            ("no_checkpoints_or_indexes_s", (".index", ".timeindex", ".state")),
            ("no_side_files_either_s", (".index", ".timeindex", ".state", ".checksums")),
        ):
            if suffixes is not None:
                forget(gateway.data_dir, *suffixes)
            gateway.start(timeout_s=120)
            result[name] = round(gateway.start_s, 3)
            if count_records(gateway) != count:
                raise RuntimeError(f"{name}: {count_records(gateway)} of {count} records are there")
            gateway.kill()
        print(json.dumps(result))
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
