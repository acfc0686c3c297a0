"""One-record Produce requests of 100 B on one connection: five in flight, strict, unless told.

The client is a bare socket with a ready-made frame, so that what is measured is the gateway. The
peer is the disk: 100 B appended and synced, one after the other, in the same run.

    python bench/bench_small_requests.py [--seconds S] [--runs N] [--in-flight N] [--durability D]
                                         [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import struct
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from kgw.protocol.framing import request_frame
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kgw.records.builder import BatchBuilder
from kgw.testing.process import GatewayProcess

IN_FLIGHT = 5
PRODUCE_VERSION = 9
CORRELATION_ID_AT = 8
"""Size, api key and api version come before the correlation id in a request's frame."""


def disk_syncs_per_s(directory: Path, count: int = 2000) -> float:
    path = directory / "disk-peer"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    piece = os.urandom(100)
    began = time.perf_counter()
    for _ in range(count):
        os.write(descriptor, piece)
        os.fdatasync(descriptor)
    elapsed_s = time.perf_counter() - began
    os.close(descriptor)
    path.unlink()
    return count / elapsed_s


def produce_frame(topic: str, partition_index: int = 0) -> bytearray:
    builder = BatchBuilder()
    builder.add(value=os.urandom(100), timestamp_ms=int(time.time() * 1000))
    partition = PartitionProduceData(index=partition_index, records=builder.build())
    topic_data = TopicProduceData(name=topic, partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic_data])
    return bytearray(b"".join(request_frame(request, PRODUCE_VERSION, 0, "bench")))


def drive(
    gateway: GatewayProcess, frame: bytearray, seconds: float, in_flight: int = IN_FLIGHT
) -> dict[str, Any]:
    connection = socket.create_connection((gateway.host, gateway.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = bytearray()
    sent_at: deque[float] = deque()
    latencies: list[float] = []
    correlation_id = answered = 0
    before = gateway.usage()
    began = time.perf_counter()
    deadline = began + seconds
    while True:
        now = time.perf_counter()
        if now < deadline:
            burst = b""
            while len(sent_at) < in_flight:
                struct.pack_into(">i", frame, CORRELATION_ID_AT, correlation_id)
                correlation_id += 1
                burst += frame
                sent_at.append(now)
            if burst:
                connection.sendall(burst)
        elif not sent_at:
            break
        received += connection.recv(1 << 16)
        now = time.perf_counter()
        position = 0
        while len(received) - position >= 4:
            size = int.from_bytes(received[position : position + 4], "big")
            if len(received) - position < 4 + size:
                break
            answer_id = int.from_bytes(received[position + 4 : position + 8], "big")
            assert answer_id == answered, f"answer {answer_id} came where {answered} was due"
            latencies.append(now - sent_at.popleft())
            answered += 1
            position += 4 + size
        del received[:position]
    elapsed_s = time.perf_counter() - began
    after = gateway.usage()
    connection.close()
    return {
        "requests_per_s": round(answered / elapsed_s),
        "p50_ms": round(statistics.median(latencies) * 1e3, 3),
        "p99_ms": round(statistics.quantiles(latencies, n=100)[98] * 1e3, 3),
        "gateway_cpu_us_per_request": round((after.cpu_s - before.cpu_s) / answered * 1e6, 1),
        "gateway_cpu_share": round((after.cpu_s - before.cpu_s) / elapsed_s, 2),
        "rss_anonymous_mb": round(after.anonymous_bytes / 1e6, 1),
        "rss_file_mb": round(after.file_bytes / 1e6, 1),
        "answered": answered,
    }


def run_once(directory: Path, seconds: float, in_flight: int, durability: str) -> dict[str, Any]:
    disk = disk_syncs_per_s(directory)
    with GatewayProcess(directory / "data", f"kgw.durability={durability}") as gateway:
        admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
        admin.create_topics([NewTopic("bench", 1, 1)])["bench"].result(10)
        frame = produce_frame("bench")
        drive(gateway, frame, min(1.0, seconds), in_flight)
        figures = drive(gateway, frame, seconds, in_flight)
    shutil.rmtree(directory / "data")
    return figures | {"disk_syncs_per_s": round(disk)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    parser.add_argument("--durability", choices=("strict", "relaxed"), default="strict")
    parser.add_argument("--directory", type=Path, help="where to put the data (default: a new one)")
    options = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory))
    try:
        runs = []
        for _ in range(options.runs):
            runs.append(run_once(parent, options.seconds, options.in_flight, options.durability))
            print(json.dumps(runs[-1]), flush=True)
        medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        print(json.dumps({"median_of": len(runs), **medians}))
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
