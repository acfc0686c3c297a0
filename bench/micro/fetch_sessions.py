"""Consumers of many partitions: what an idle poll costs, and one of which ten have records.

Each consumer has a connection. Complete requests are what clients without sessions send
(librdkafka), incremental ones what the others do (KIP-227).

    scripts/bench --micro fetch_sessions [--consumers N] [--partitions N] [--seconds S]
        [--root DIR]
"""

from __future__ import annotations

import argparse
import json
import selectors
import shutil
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from kgw.protocol.codec import codec
from kgw.protocol.framing import request_frame
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kgw.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kgw.records.batch import split_batches
from kgw.records.builder import BatchBuilder
from kgw.testing.process import GatewayProcess

if TYPE_CHECKING:
    from typing import Any

VERSION = 11
TOPIC = "bench"
ONE_BATCH = 200
"""More than one of ours, less than two."""


class Consumer:
    """One connection that fetches from every partition, completely or by a session."""

    def __init__(self, gateway: GatewayProcess, partitions: int, *, incremental: bool) -> None:
        self.socket = socket.create_connection((gateway.host, gateway.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.incremental = incremental
        self.offsets = [0] * partitions
        self.changed: list[int] = []
        self.session_id = 0
        self.epoch = 0 if incremental else -1
        self.sent_bytes = self.received_bytes = self.polls = 0
        self.frame: bytes = b""
        self.wait_ms = self.empty_bytes = -1

    def send(self, wait_ms: int) -> None:
        """Send the next request."""
        named = self.changed if self.epoch > 0 else [*range(len(self.offsets))]
        if self.incremental or self.changed or wait_ms != self.wait_ms:
            request = FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=50 << 20,
                session_id=self.session_id,
                session_epoch=self.epoch,
                topics=[
                    FetchTopic(
                        topic=TOPIC,
                        partitions=[
                            FetchPartition(
                                partition=index,
                                fetch_offset=self.offsets[index],
                                partition_max_bytes=ONE_BATCH,
                            )
                            for index in named
                        ],
                    )
                ]
                if named
                else [],
            )
            self.frame = b"".join(request_frame(request, VERSION, 1, "bench"))
        self.changed = []
        self.wait_ms = wait_ms
        self.sent_bytes += len(self.frame)
        self.socket.sendall(self.frame)

    def receive(self) -> int:
        """Take an answer; return how many partitions had records."""
        (size,) = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))
        body = self.socket.recv(size, socket.MSG_WAITALL)
        self.received_bytes += size + 4
        self.polls += 1
        if not self.incremental and size == self.empty_bytes:
            return 0
        response = codec(FetchResponse, VERSION).decode(body, 4)
        assert not response.error_code, response.error_code
        found = 0
        for topic in response.responses:
            for data in topic.partitions:
                assert not data.error_code, data.error_code
                if data.records:
                    found += 1
                    last = [*split_batches(data.records)][-1]  # type: ignore[arg-type]
                    self.offsets[data.partition_index] = last.next_offset
                    self.changed.append(data.partition_index)
        if not found:
            self.empty_bytes = size
        self.session_id = response.session_id
        if self.incremental:
            assert self.session_id
            self.epoch += 1
        return found


def records() -> bytes:
    """Return a batch of one record."""
    builder = BatchBuilder()
    builder.add(value=b"x" * 100, timestamp_ms=1_700_000_000_000)
    return bytes(builder.build())


def idle(gateway: GatewayProcess, options: Any, *, incremental: bool) -> dict[str, Any]:
    """Consumers that find nothing."""
    consumers = [
        Consumer(gateway, options.partitions, incremental=incremental)
        for _ in range(options.consumers)
    ]
    selector = selectors.DefaultSelector()
    for consumer in consumers:
        selector.register(consumer.socket, selectors.EVENT_READ, consumer)
        for _ in range(3):
            consumer.send(0)
            consumer.receive()
        consumer.sent_bytes = consumer.received_bytes = consumer.polls = 0
    for number, consumer in enumerate(consumers):
        consumer.send(options.wait_ms)
        if number % 16 == 0:
            time.sleep(options.wait_ms / 1000 * 16 / len(consumers))
    before = gateway.usage()
    deadline = time.monotonic() + options.seconds
    while (left_s := deadline - time.monotonic()) > 0:
        for key, _ in selector.select(left_s):
            key.data.receive()
            key.data.send(options.wait_ms)
    after = gateway.usage()
    polls = sum(one.polls for one in consumers)
    row = {
        "case": "idle",
        "incremental": incremental,
        "consumers": len(consumers),
        "polls": polls,
        "sent_bytes": round(sum(one.sent_bytes for one in consumers) / (polls + len(consumers))),
        "received_bytes": round(sum(one.received_bytes for one in consumers) / max(1, polls)),
        "cpu_us_per_poll": round((after.cpu_s - before.cpu_s) / max(1, polls) * 1e6, 1),
        "cpu_share": round((after.cpu_s - before.cpu_s) / options.seconds, 4),
        "anonymous_mb": round(after.anonymous_bytes / 1e6, 1),
    }
    for consumer in consumers:
        consumer.socket.close()
    return row


def active(
    gateway: GatewayProcess, options: Any, count: int, *, incremental: bool
) -> dict[str, Any]:
    """One consumer that takes one batch of each of so many partitions at every poll.

    Most of them are read from disk: a backlog is larger than what is kept in memory.
    """
    partitions = options.partitions
    consumer = Consumer(gateway, partitions, incremental=incremental)
    producer = socket.create_connection((gateway.host, gateway.port))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=TOPIC,
                partition_data=[
                    PartitionProduceData(index=index, records=records()) for index in range(count)
                ],
            )
        ],
    )
    frame = b"".join(request_frame(request, 7, 1, "bench"))
    for _ in range(options.cycles):
        producer.sendall(frame)
        (size,) = struct.unpack(">i", producer.recv(4, socket.MSG_WAITALL))
        producer.recv(size, socket.MSG_WAITALL)
    before = gateway.usage().cpu_s
    began = time.perf_counter()
    left = options.cycles * count
    while left:
        consumer.send(500)
        left -= consumer.receive()
    elapsed_s = time.perf_counter() - began
    cpu_s = gateway.usage().cpu_s - before
    row = {
        "case": f"{count} of {partitions} have a record",
        "incremental": incremental,
        "polls": consumer.polls,
        "sent_bytes": round(consumer.sent_bytes / consumer.polls),
        "received_bytes": round(consumer.received_bytes / consumer.polls),
        "cpu_us_per_poll": round(cpu_s / consumer.polls * 1e6, 1),
        "elapsed_ms_per_poll": round(elapsed_s / consumer.polls * 1e3, 2),
    }
    consumer.socket.close()
    producer.close()
    return row


def main() -> None:
    """Print one line of JSON a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--consumers", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--wait-ms", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the revision to measure")
    parser.add_argument("--cases", nargs="+", default=["idle", "10", "all"])
    parser.add_argument("--modes", nargs="+", default=["complete", "incremental"])
    options = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir="/var/tmp"))
    command = ("env", "-C", str(options.root), sys.executable, "-m", "kgw", "serve")
    try:
        with GatewayProcess(parent / "data", command=command) as gateway:
            admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
            admin.create_topics([NewTopic(TOPIC, options.partitions, 1)])[TOPIC].result(60)
            del admin
            for case in options.cases:
                for mode in options.modes:
                    incremental = mode == "incremental"
                    if case == "idle":
                        row = idle(gateway, options, incremental=incremental)
                    else:
                        count = options.partitions if case == "all" else int(case)
                        row = active(gateway, options, count, incremental=incremental)
                    print(json.dumps(row), flush=True)
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
