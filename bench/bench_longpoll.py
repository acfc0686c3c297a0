"""Many clients that each hold one long-poll Fetch at the end of a partition.

Each has a connection and sends its next Fetch when the last one is answered. Given are the
gateway's processor time for a range of waits, and how fast all of them hear of a new record.

    python bench/bench_longpoll.py [--clients N] [--seconds S] [--waits MS ...] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import resource
import selectors
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_small_requests import produce_frame
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.protocol.framing import request_frame
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kgw.testing.process import GatewayProcess

FETCH_VERSION = 11
PARTITIONS = 10


def fetch_frame(topic: str, partition: int, offset: int, wait_ms: int) -> bytes:
    """Return a Fetch of one partition from an offset."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    return b"".join(request_frame(request, FETCH_VERSION, 1, "bench"))


class Clients:
    """Plain sockets, each with a Fetch outstanding."""

    def __init__(self, gateway: GatewayProcess, count: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.connections = []
        for _ in range(count):
            connection = socket.create_connection((gateway.host, gateway.port))
            self.connections.append(connection)
            self.selector.register(connection, selectors.EVENT_READ)

    def send(self, wait_ms: int, over_s: float) -> None:
        """Every client asks once; they are spread over the partitions, and evenly over a time.

        Clients that all began at once would stay together, and so be cheaper than real ones.
        """
        began = time.perf_counter()
        for index, connection in enumerate(self.connections):
            time.sleep(
                max(0.0, began + over_s * index / len(self.connections) - time.perf_counter())
            )
            connection.sendall(fetch_frame("bench", index % PARTITIONS, 0, wait_ms))

    def receive(self, seconds: float, again: bytes | None = None) -> int:
        """Take answers for so long, or until each client has one when none asks `again`."""
        answers = 0
        deadline = time.perf_counter() + seconds
        while (left_s := deadline - time.perf_counter()) > 0:
            for key, _ in self.selector.select(left_s):
                connection: Any = key.fileobj
                size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
                assert len(connection.recv(size, socket.MSG_WAITALL)) == size
                answers += 1
                if again is not None:
                    connection.sendall(again)
            if again is None and answers == len(self.connections):
                break
        return answers


def measure(gateway: GatewayProcess, clients: Clients, wait_ms: int, seconds: float) -> Any:
    """Return the figures for one wait."""
    again = fetch_frame("bench", 0, 0, wait_ms)
    clients.send(wait_ms, min(wait_ms / 1000, 5.0))
    # As long as the longest wait, so that there are answers to count.
    seconds = max(seconds, 1.5 * wait_ms / 1000)
    before = gateway.usage()
    answers = clients.receive(seconds, again)
    after = gateway.usage()
    # The last round, so that the next measurement starts with nothing outstanding.
    clients.receive(wait_ms / 1000 + 5)
    return {
        "wait_ms": wait_ms,
        "answers_per_s": round(answers / seconds, 1),
        "cpu_share": round((after.cpu_s - before.cpu_s) / seconds, 4),
        "cpu_us_per_poll": round((after.cpu_s - before.cpu_s) / answers * 1e6, 1),
    }


def wake_all(gateway: GatewayProcess, clients: Clients) -> float:
    """Return the time from a record in each partition to the last client's answer."""
    clients.send(30_000, 1.0)
    with socket.create_connection((gateway.host, gateway.port)) as producer:
        frames = [produce_frame("bench", partition) for partition in range(PARTITIONS)]
        began = time.perf_counter()
        producer.sendall(b"".join(frames))
        answers = clients.receive(30)
        elapsed_s = time.perf_counter() - began
    assert answers == len(clients.connections), answers
    return elapsed_s


def main() -> None:
    """Print one line of JSON a wait, and one for the wake-up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--waits", type=int, nargs="+", default=[500, 5_000, 30_000])
    parser.add_argument("--directory", type=Path, help="where to put the data (default: a new one)")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    parent = Path(tempfile.mkdtemp(prefix="kgw-bench-", dir=options.directory))
    try:
        with GatewayProcess(parent / "data") as gateway:
            admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
            admin.create_topics([NewTopic("bench", PARTITIONS, 1)])["bench"].result(10)
            del admin
            clients = Clients(gateway, options.clients)
            for wait_ms in options.waits:
                print(json.dumps(measure(gateway, clients, wait_ms, options.seconds)), flush=True)
            print(json.dumps({"all_woken_ms": round(wake_all(gateway, clients) * 1000, 1)}))
    finally:
        shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
