"""What logins do to other clients: at a hundred a second, and when thousands never end theirs.

    .venv/bin/python -m bench.logins [--rounds N] [--seconds S] [--unfinished COUNT]

One gateway listens with SASL_SSL and plain. Ten connections of the plain listener send a Produce of
one record in turn, 500 a second in all, and their latency is measured three times in each round: by
themselves; while another process logs in with SCRAM-SHA-512 over TLS, a hundred times a second;
while as many connections as `--unfinished` says have been opened to the other listener and send
nothing. The bar: the p99 beside logins is at most 1.5 times that without them.

It also tells what memory the gateway uses while these connections are open, and before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness.report import number, table
from bench.harness.runner import say
from bench.harness.servers import HOST, free_ports
from bench.loads.frames import batch_of, create_topics, produce_frame, wait_for_leaders
from bench.loads.poller import Poller, Wire, allow_connections
from bench.loads.sockets import percentile
from kgw.client.connection import Connection
from kgw.client.security import client_security
from kgw.testing.certificates import CertificateAuthority
from kgw.testing.process import SERVE, GatewayProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TOPIC = "others"
CONNECTIONS = 10
REQUESTS_PER_S = 500
LOGINS_PER_S = 100
USER, PASSWORD = "alice", "wonderland of logins"


class Others:
    """Clients that send requests at a steady pace, and how long each request took."""

    def __init__(self, poller: Poller) -> None:
        self.latencies_s: list[float] = []
        self._poller = poller
        self._sent_s = [0.0] * CONNECTIONS
        self._frames = [produce_frame(TOPIC, {0: batch_of(1, 100)}) for _ in range(CONNECTIONS)]
        self._wires = [Wire(poller) for _ in range(CONNECTIONS)]
        for index, wire in enumerate(self._wires):
            wire.on_frame = partial(self._answered, index)

    def run(self, seconds: float) -> list[float]:
        """Return the latencies of so many seconds, in seconds."""
        self.latencies_s = []
        began_s = time.perf_counter()
        for turn in range(int(seconds * REQUESTS_PER_S)):
            due_s = began_s + turn / REQUESTS_PER_S
            self._poller.at(due_s, partial(self._send, turn % CONNECTIONS, due_s))
        count = int(seconds * REQUESTS_PER_S)
        self._poller.run(lambda: len(self.latencies_s) == count)
        return self.latencies_s

    def _send(self, index: int, due_s: float) -> None:
        # A request is late from when it was due, also while the one before is not answered.
        if self._sent_s[index]:
            self._poller.at(time.perf_counter() + 0.0005, partial(self._send, index, due_s))
            return
        self._sent_s[index] = due_s
        self._wires[index].send(self._frames[index])

    def _answered(self, index: int, answer: bytearray) -> None:
        # The error code of the only partition.
        error_at = 4 + 1 + 1 + 1 + len(TOPIC) + 1 + 4
        assert answer[error_at : error_at + 2] == b"\0\0", f"answered with {answer.hex()}"
        self.latencies_s.append(time.perf_counter() - self._sent_s[index])
        self._sent_s[index] = 0.0


async def log_in_again_and_again(port: int, truststore: Path, seconds: float) -> int:
    """Log in so many times a second, each on a connection of its own; return how many ended."""
    security = client_security(
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(truststore),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )

    async def log_in() -> None:
        connection = await Connection.open(HOST, port, security=security, timeout_s=30)
        await connection.aclose()

    loop, pending = asyncio.get_running_loop(), []
    began_s = loop.time()
    for turn in range(int(seconds * LOGINS_PER_S)):
        await asyncio.sleep(max(0.0, began_s + turn / LOGINS_PER_S - loop.time()))
        pending.append(asyncio.create_task(log_in()))
    await asyncio.gather(*pending)
    return len(pending)


def hold_unfinished(port: int, count: int) -> list[socket.socket]:
    """Open so many connections, and send nothing on them."""
    held = []
    for _ in range(count):
        connection = socket.create_connection((HOST, port), timeout=60)
        held.append(connection)
    return held


def say_memory(process: GatewayProcess, when: str) -> None:
    """Tell what memory the gateway uses."""
    usage = process.usage()
    say(f"the gateway uses {(usage.anonymous_bytes + usage.file_bytes) / 1e6:.0f} MB {when}")


def measured(
    poller: Poller,
    process: GatewayProcess,
    port: int,
    truststore: Path,
    seconds: float,
    unfinished: int,
) -> Iterator[tuple[str, list[float]]]:
    """Yield the latencies of others in each phase of a round."""
    others = Others(poller)
    others.run(1.0)
    yield "by themselves", others.run(seconds)
    command = [sys.executable, "-m", "bench.logins", "--log-in", str(port)]
    command += ["--truststore", str(truststore), "--seconds", str(seconds + 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as logging_in:
        assert logging_in.stdout is not None
        assert logging_in.stdout.readline() == "begins\n"
        others.run(0.5)
        latencies_s = others.run(seconds)
        ended = logging_in.stdout.readline()
        assert ended, "the logins failed"
        yield f"beside {LOGINS_PER_S} logins a second", latencies_s
    say_memory(process, "before")
    held = hold_unfinished(port, unfinished)
    try:
        yield f"beside {unfinished} connections without a login", others.run(seconds)
        say_memory(process, f"beside {unfinished} connections without a login")
    finally:
        for connection in held:
            connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="bench.logins", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    parser.add_argument("--unfinished", type=int, default=10_000)
    parser.add_argument("--log-in", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--truststore", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.log_in is not None:
        # These clients would run on other machines: hashing their passwords takes more processor
        # time than the server's part of a login.
        os.nice(10)
        print("begins", flush=True)
        logins = log_in_again_and_again(chosen.log_in, chosen.truststore, chosen.seconds)
        print(asyncio.run(logins), flush=True)
        return 0
    allow_connections(chosen.unfinished + 100)
    found: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="kgw-bench-") as folder, ExitStack() as stack:
        directory = Path(folder)
        authority = CertificateAuthority("kgw bench", time.time())
        keystore, truststore = directory / "server.pem", directory / "ca.pem"
        keystore.touch(mode=0o600)
        keystore.write_text(authority.issue_server([HOST]).keystore_pem())
        truststore.write_text(authority.truststore_pem)
        password = directory / "password"
        password.touch(mode=0o600)
        password.write_text(PASSWORD)
        data_dir = directory / "data"
        add_user = [*SERVE[:-1], "users", "add", USER, "--mechanism", "SCRAM-SHA-512"]
        add_user += ["--password-file", str(password), "--data-dir", str(data_dir)]
        subprocess.run(add_user, check=True, stdout=sys.stderr)
        plain_port, port = free_ports(2)
        process = GatewayProcess(
            data_dir,
            f"ssl.keystore.location={keystore}",
            command=[*SERVE, "--listen", f"SASL_SSL://{HOST}:{port}"],
            port=plain_port,
        )
        stack.enter_context(process)
        address = (HOST, plain_port)
        create_topics(address, {TOPIC: 1})
        wait_for_leaders(address, {TOPIC: 1})
        for round_number in range(chosen.rounds):
            say(f"round {round_number + 1} of {chosen.rounds}")
            with Poller(address) as poller:
                phases = measured(
                    poller, process, port, truststore, chosen.seconds, chosen.unfinished
                )
                for phase, latencies_s in phases:
                    found.setdefault(phase, []).append(latencies_s)
            say_memory(process, "afterwards")
    print(table(("Other clients", "p50, ms", "p99, ms", "p99 by that by themselves"), rows(found)))
    return 0


def rows(found: dict[str, list[list[float]]]) -> Iterator[list[str]]:
    """A row for each phase: medians of the rounds."""
    alone = [percentile(one, 0.99) for one in next(iter(found.values()))]
    for phase, rounds in found.items():
        p99s = [percentile(one, 0.99) for one in rounds]
        ratios = [one / other for one, other in zip(p99s, alone, strict=True)]
        yield [
            phase,
            number(statistics.median(percentile(one, 0.5) for one in rounds) * 1e3, 2),
            number(statistics.median(p99s) * 1e3, 2),
            number(statistics.median(ratios), 2),
        ]


if __name__ == "__main__":
    sys.exit(main())
