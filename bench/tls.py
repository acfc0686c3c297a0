"""What TLS costs a server: kgw's step from plain to TLS beside Apache Kafka's.

    .venv/bin/python -m bench.tls --kafka .cache [--rounds N] [--seconds S] [--warm-seconds S]

Each server listens on two ports, one plain and one with TLS 1.3, in one process and with one
certificate. Each load takes the two ports in turn. The step is the server's processor time with TLS
less that without it, for each request or each GB. Its bar: kgw's is no larger than Kafka's.
Both acknowledge from the page cache, since a sync costs the same with TLS.
"""

from __future__ import annotations

import argparse
import ssl
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.harness.report import number, table
from bench.harness.runner import say
from bench.harness.servers import HOST, KafkaServer, free_ports
from bench.loads import sockets
from bench.loads.frames import (
    TlsAddress,
    batch_of,
    create_topics,
    fetch_frame,
    produce_frame,
    wait_for_leaders,
)
from kgw.testing.certificates import CertificateAuthority
from kgw.testing.process import SERVE, GatewayProcess, process_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.loads.frames import Address

TOPIC = "tls"
RECORD_BYTES = 1_024
RECORDS_IN_16_KB = 15
FETCHED_RECORDS = 960
"""One MB less a bit, which is what a Fetch asks for."""


class Load(NamedTuple):
    """Requests of one kind: one for each connection, and how many of them are in flight there."""

    name: str
    unit: str
    units: float
    """How much of the unit one request has."""
    make: Callable[[], sockets.Request]
    connections: int
    depth: int


class Ports(NamedTuple):
    """A running server."""

    name: str
    pid: int
    plain: Address
    encrypted: TlsAddress


def produced(records: int, record_bytes: int) -> sockets.Request:
    """A Produce of one batch."""
    batch = batch_of(records, record_bytes)
    return sockets.produce(produce_frame(TOPIC, {0: batch}), TOPIC)


LOADS = (
    Load(
        "Produce of one record of 100 B, 10 connections",
        "µs/request",
        1e-6,
        lambda: produced(1, 100),
        connections=10,
        depth=1,
    ),
    Load(
        "Produce of batches of 16 KB, 4 connections, 5 in flight",
        "s/GB",
        RECORDS_IN_16_KB * RECORD_BYTES / 1e9,
        lambda: produced(RECORDS_IN_16_KB, RECORD_BYTES),
        connections=4,
        depth=5,
    ),
    Load(
        "Fetch of 1 MB, 2 connections",
        "s/GB",
        FETCHED_RECORDS * RECORD_BYTES / 1e9,
        lambda: sockets.fetch(fetch_frame(TOPIC + "-read", 0, 1_000)),
        connections=2,
        depth=1,
    ),
)


def kgw(directory: Path, keystore: Path, context: ssl.SSLContext, stack: ExitStack) -> Ports:
    """Start kgw with both listeners."""
    plain_port, encrypted_port = free_ports(2)
    process = GatewayProcess(
        directory / "kgw",
        "kgw.durability=relaxed",
        f"ssl.keystore.location={keystore}",
        command=[*SERVE, "--listen", f"SSL://{HOST}:{encrypted_port}"],
        port=plain_port,
    )
    stack.enter_context(process)
    encrypted = TlsAddress(HOST, encrypted_port, context)
    return Ports("kgw", process.pid, (HOST, plain_port), encrypted)


def kafka(
    directory: Path, keystore: Path, context: ssl.SSLContext, stack: ExitStack, cache_dir: Path
) -> Ports:
    """Start Kafka with both listeners."""
    (encrypted_port,) = free_ports(1)
    server = KafkaServer("kafka", directory / "kafka", cache_dir=cache_dir)
    client_listeners = f"PLAINTEXT://{HOST}:{server.port},SSL://{HOST}:{encrypted_port}"
    server.settings = (
        f"listeners={client_listeners},CONTROLLER://{HOST}:{server.other_port}",
        f"advertised.listeners={client_listeners}",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={keystore}",
    )
    server.start()
    stack.callback(server.stop)
    encrypted = TlsAddress(HOST, encrypted_port, context)
    return Ports("kafka", server.pid, server.address, encrypted)


def cost(pid: int, address: Address, load: Load, seconds: float) -> float:
    """Return the server's processor time for each unit of the load."""
    requests = [load.make() for _ in range(load.connections)]
    before_s = process_usage(pid).cpu_s
    driven = sockets.drive(address, requests, load.depth, seconds)
    used_s = process_usage(pid).cpu_s - before_s
    return used_s / (driven.answers * load.units)


def write_what_is_read(address: Address) -> None:
    """Fill the topic that the Fetch reads with a bit more than it asks for."""
    topics = {TOPIC: 1, TOPIC + "-read": 1}
    create_topics(address, topics)
    wait_for_leaders(address, topics)
    frame = produce_frame(TOPIC + "-read", {0: batch_of(RECORDS_IN_16_KB, RECORD_BYTES)})
    request = sockets.produce(frame, TOPIC + "-read")
    sockets.drive(address, [request], 1, 60.0, most=FETCHED_RECORDS / RECORDS_IN_16_KB + 16)


def measured(
    ports: Ports, rounds: int, seconds: float, warm_s: float
) -> dict[str, list[tuple[float, float]]]:
    """Return the costs of each load, plain and with TLS, round by round."""
    write_what_is_read(ports.plain)
    found: dict[str, list[tuple[float, float]]] = {}
    for load in LOADS:
        for address in (ports.plain, ports.encrypted):
            cost(ports.pid, address, load, warm_s)
        for round_number in range(rounds):
            say(f"{ports.name}: {load.name}, round {round_number + 1} of {rounds}")
            pair = tuple(
                cost(ports.pid, address, load, seconds)
                for address in (ports.plain, ports.encrypted)
            )
            found.setdefault(load.name, []).append((pair[0], pair[1]))
    return found


def report(results: dict[str, dict[str, list[tuple[float, float]]]]) -> Iterator[Sequence[str]]:
    """A row for each load: medians of both servers, and kgw's step by Kafka's."""
    for load in LOADS:
        cells, steps = [f"{load.name}, {load.unit}"], []
        for server in results.values():
            plain, encrypted = (
                statistics.median(column) for column in zip(*server[load.name], strict=True)
            )
            step = statistics.median(one - other for other, one in server[load.name])
            steps.append(step)
            cells += [number(one, 2) for one in (plain, encrypted, step)]
        cells.append(number(steps[0] / steps[1], 2) if len(steps) > 1 else "")
        yield cells


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both servers, and print the table."""
    parser = argparse.ArgumentParser(prog="bench.tls", description=__doc__)
    parser.add_argument("--kafka", type=Path, metavar="CACHE_DIR", help="with Apache Kafka")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--warm-seconds", type=float, default=10.0, help="before each load")
    chosen = parser.parse_args(arguments)
    authority = CertificateAuthority("kgw bench", time.time())
    context = ssl.create_default_context(cadata=authority.truststore_pem)
    results = {}
    with tempfile.TemporaryDirectory(prefix="kgw-bench-") as folder:
        directory = Path(folder)
        keystore = directory / "server.pem"
        keystore.touch(mode=0o600)
        keystore.write_text(authority.issue_server([HOST]).keystore_pem())
        with ExitStack() as stack:
            ports = kgw(directory, keystore, context, stack)
            results["kgw"] = measured(ports, chosen.rounds, chosen.seconds, 0.5)
        if chosen.kafka is not None:
            with ExitStack() as stack:
                ports = kafka(directory, keystore, context, stack, chosen.kafka)
                results["kafka"] = measured(
                    ports, chosen.rounds, chosen.seconds, chosen.warm_seconds
                )
    columns = [f"{name}, {way}" for name in results for way in ("plain", "TLS", "step")]
    print(table(("Load", *columns, "kgw's step by Kafka's"), list(report(results))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
