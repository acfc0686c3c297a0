"""Produce and consume through a real gateway with confluent-kafka, strict unless told otherwise.

1 KB records, 4 partitions, acks=all, the client's default batching. The peer is the disk itself:
the same bytes appended in 1 MB pieces with an fdatasync after each, in the same run. Beside the
rates: ack latency (every 997th record), the gateway's CPU seconds and its memory.

    python bench/bench_throughput.py [--records N] [--runs N] [--durability D] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.testing.process import GatewayProcess, Usage

RECORD_BYTES = 1024
PARTITIONS = 4
LATENCY_SAMPLE_EVERY = 997


def disk_mb_per_s(directory: Path, total_bytes: int) -> float:
    """Append `total_bytes` in 1 MB pieces, each followed by an fdatasync."""
    piece = os.urandom(1 << 20)
    path = directory / "disk-peer"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    began = time.perf_counter()
    for _ in range(total_bytes >> 20):
        os.write(descriptor, piece)
        os.fdatasync(descriptor)
    elapsed_s = time.perf_counter() - began
    os.close(descriptor)
    path.unlink()
    return total_bytes / elapsed_s / 1e6


def produce(gateway: GatewayProcess, topic: str, records: int) -> dict[str, Any]:
    producer = Producer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 1 << 18,
        }
    )
    value = os.urandom(RECORD_BYTES)
    latencies: list[float] = []
    failures: list[str] = []

    def sampled(sent_at: float) -> Any:
        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(str(error))
            latencies.append(time.perf_counter() - sent_at)

        return on_delivery

    send = producer.produce
    before = gateway.usage()
    began = time.perf_counter()
    for number in range(records):
        while True:
            try:
                if number % LATENCY_SAMPLE_EVERY:
                    send(topic, value, partition=number % PARTITIONS)
                else:
                    on_delivery = sampled(time.perf_counter())
                    send(topic, value, partition=number % PARTITIONS, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(120)
    elapsed_s = time.perf_counter() - began
    after = gateway.usage()
    assert left == 0, f"{left} records were not acknowledged"
    assert not failures, failures[:3]
    return _figures(records, elapsed_s, before, after) | {
        "ack_p50_ms": round(statistics.median(latencies) * 1e3, 2),
        "ack_p99_ms": round(statistics.quantiles(latencies, n=100)[98] * 1e3, 2),
    }


def consume(gateway: GatewayProcess, topic: str, records: int) -> dict[str, Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "queued.min.messages": 1_000_000,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    before = gateway.usage()
    began = time.perf_counter()
    seen = 0
    seen_bytes = 0
    while seen < records:
        messages = consumer.consume(num_messages=10_000, timeout=20)
        assert messages, f"only {seen} of {records} records came"
        for message in messages:
            assert message.error() is None, message.error()
            seen_bytes += len(message)
        seen += len(messages)
    elapsed_s = time.perf_counter() - began
    after = gateway.usage()
    consumer.close()
    assert seen_bytes == records * RECORD_BYTES
    return _figures(records, elapsed_s, before, after)


def _figures(records: int, elapsed_s: float, before: Usage, after: Usage) -> dict[str, Any]:
    return {
        "mb_per_s": round(records * RECORD_BYTES / elapsed_s / 1e6, 1),
        "records_per_s": round(records / elapsed_s),
        "gateway_cpu_s": round(after.cpu_s - before.cpu_s, 2),
        "elapsed_s": round(elapsed_s, 2),
        "rss_anonymous_mb": round(after.anonymous_bytes / 1e6, 1),
        "rss_file_mb": round(after.file_bytes / 1e6, 1),
        "rss_peak_mb": round(after.peak_bytes / 1e6, 1),
    }


def run_once(directory: Path, records: int, durability: str) -> dict[str, Any]:
    disk = disk_mb_per_s(directory, min(records * RECORD_BYTES, 256 << 20))
    with GatewayProcess(directory / "data", f"kgw.durability={durability}") as gateway:
        admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
        for future in admin.create_topics([NewTopic("bench", PARTITIONS, 1)]).values():
            future.result(10)
        produced = produce(gateway, "bench", records)
        consumed = consume(gateway, "bench", records)
    shutil.rmtree(directory / "data")
    return {
        "disk_mb_per_s": round(disk, 1),
        "produce": produced,
        "produce_to_disk_ratio": round(produced["mb_per_s"] / disk, 2),
        "consume": consumed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--durability", choices=("strict", "relaxed"), default="strict")
    parser.add_argument("--directory", type=Path, help="where to put the data (default: a new one)")
    options = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory))
    try:
        runs = []
        for _ in range(options.runs):
            runs.append(run_once(parent, options.records, options.durability))
            print(json.dumps(runs[-1]), flush=True)
        medians = {
            f"{side}_{name}": statistics.median(run[side][name] for run in runs)
            for side in ("produce", "consume")
            for name in runs[0][side]
        }
        medians["disk_mb_per_s"] = statistics.median(run["disk_mb_per_s"] for run in runs)
        print(json.dumps({"median_of": len(runs), **medians}))
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
