"""How long each client library stands still when the leading one of two gateways ends.

    .venv/bin/python -m bench.failover [CLIENT...] [--ends kill,stop] [--repetitions N]
        [--lease-ms MS]

Two gateway processes over one real SeaweedFS, each as on a machine of its own. A producer of each
library sends records one at a time, each acknowledged by `acks=all`, with both addresses in
`bootstrap.servers` and the library's own settings. The gateway that leads is killed (SIGKILL) or
stopped (SIGTERM), is started again to stand by, and so on in turns. For each the table has the
longest time without an acknowledgement, from the signal on: median and worst; and how many
acknowledged records are missing in the end. Needs the environments that `scripts/test` makes, and
for the other languages what `scripts/e2e` builds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.harness.report import table
from kgw.client.connection import Connection
from kgw.client.errors import ClientError
from kgw.config.listeners import format_address
from kgw.errors import KgwError
from kgw.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.interop.client import Client, DriverError
from tests.interop.drivers.loop import Record, to_json
from tests.interop.libraries import OTHERS, PYTHON, ROOT
from tests.seaweedfs.cluster import Cluster, Setup, free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

KAFKAJS = {"kafkajs": ["node", str(ROOT / "e2e" / "javascript" / "driver.js")]}
COMMANDS = {**PYTHON, **OTHERS, **KAFKAJS}
CLIENTS = (
    "kafka-python-2",
    "kafka-python-3",
    "aiokafka",
    "confluent-kafka",
    "kafkajs",
    "java-4",
    "franz-go",
)
ENDS = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}
TOPIC = "failover"
LIMIT_S = 120.0


class Gateway:
    """One of the two gateways: a process that is ended and started again at the same address."""

    def __init__(self, url: str, node_id: int, port: int, lease_ms: int, directory: Path) -> None:
        self.port = port
        self._directory = directory
        # What it locks there nobody else sees: it is on a machine of its own.
        (directory / "tmp").mkdir(parents=True)
        settings = {"kgw.seaweedmq.lease.ms": lease_ms, "num.partitions": 1}
        self._command = [sys.executable, "-m", "kgw", "serve", "--backend", url]
        self._command += ["--node-id", str(node_id), "--listen", f"127.0.0.1:{port}"]
        for name, value in settings.items():
            self._command += ["--set", f"{name}={value}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return format_address("127.0.0.1", self.port)

    def start(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self._directory / "tmp")},
            )

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(timeout=60)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Acks:
    """Records that one producer sends, one at a time, and when each was acknowledged."""

    def __init__(self, client: Client, producer: str, first: int) -> None:
        self.values: list[tuple[int, int]] = []
        """Number and offset of each that was acknowledged."""
        self.times: list[float] = []
        self.errors: list[str] = []
        self._client = client
        self._producer = producer
        self._number = first
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            record = Record(None, b"%d" % self._number, [], round(time.time() * 1000))
            self._number += 1
            try:
                answer = self._client.ask(
                    "produce",
                    bootstrap="",
                    topic=TOPIC,
                    partition=0,
                    codec="none",
                    idempotent=True,
                    producer=self._producer,
                    records=[to_json(record)],
                )
            except DriverError as error:
                self.errors.append(str(error).splitlines()[0])
                continue
            self.times.append(time.monotonic())
            self.values.append((self._number - 1, answer["offsets"][0]))
            time.sleep(0.01)

    def wait_for(self, count: int) -> None:
        """Wait until so many are acknowledged. Raises TimeoutError."""
        until_s = time.monotonic() + LIMIT_S
        while len(self.times) < count:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{len(self.times)} acknowledgements; {self.errors[-3:]}")
            time.sleep(0.02)

    def end(self) -> int:
        """Send no more; return the number of the next record."""
        self._is_over.set()
        self._thread.join(timeout=LIMIT_S)
        return self._number


class Row(NamedTuple):
    """What one client has seen of one kind of end."""

    client: str
    end: str
    stills_s: list[float]
    errors: int
    failed: list[str]


async def named_nodes(port: int) -> tuple[int, set[int]] | None:
    """Return the controller's and all nodes' ids, as a gateway names them; None if it does not."""
    try:
        connection = await Connection.open("127.0.0.1", port, timeout_s=3)
        try:
            answer = await connection.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_s=3)
        finally:
            await connection.aclose()
    except (KgwError, ClientError):
        return None
    return answer.controller_id, {one.node_id for one in answer.brokers}


def wait_for_both(gateways: Sequence[Gateway]) -> int:
    """Wait until both name both; return the place of the one that leads."""
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        found = [asyncio.run(named_nodes(one.port)) for one in gateways]
        both = [one for one in found if one is not None and one[1] == {1, 2}]
        leaders = {leader for leader, _ in both}
        if len(both) == len(gateways) and len(leaders) == 1 and leaders <= {1, 2}:
            return leaders.pop() - 1
        time.sleep(0.2)
    raise TimeoutError(f"the gateways do not name each other: {found}")


def try_client(
    name: str, end: str, repetitions: int, gateways: Sequence[Gateway], directory: Path, first: int
) -> tuple[Row, dict[int, int], int]:
    """End the leader so often under one client; return what it saw and was acknowledged."""
    stills_s: list[float] = []
    acknowledged: dict[int, int] = {}
    errors, failed = 0, []
    bootstrap = ",".join(one.address for one in gateways)
    log_path = directory / f"{name}.log"
    with closing(Client(name, COMMANDS[name], cwd=ROOT, log_path=log_path)) as client:
        for repetition in range(repetitions):
            leading = wait_for_both(gateways)
            producer = f"{end}-{repetition}"
            client.open_producer(producer, bootstrap=bootstrap, transactional_id=None)
            acks = Acks(client, producer, first)
            acks.wait_for(20)
            ended_s = time.monotonic()
            gateways[leading].signal(ENDS[end])
            # A stop is over when the process has ended; what comes then is from the other one.
            code = gateways[leading].wait()
            if end == "stop" and code:
                failed.append(f"exit code {code}")
            over_s = time.monotonic()
            try:
                acks.wait_for(len(acks.times) + 30)
            except TimeoutError as error:
                failed.append(str(error))
            first = acks.end()
            times = [ended_s, *(one for one in acks.times if one > ended_s)]
            stills_s.append(
                max((after - before for before, after in pairwise(times)), default=LIMIT_S)
            )
            errors += len(acks.errors)
            acknowledged |= dict(acks.values)
            print(
                f"{name} {end} {repetition + 1}: still for {stills_s[-1]:.2f} s, process ended "
                f"after {over_s - ended_s:.2f} s, errors {acks.errors[:2]}",
                file=sys.stderr,
                flush=True,
            )
            gateways[leading].start()
            try:
                client.close_producer(producer)
            except DriverError as error:
                failed.append(str(error).splitlines()[0])
    return Row(name, end, stills_s, errors, failed), acknowledged, first


def stored(address: str) -> dict[int, list[int]]:
    """Return the offsets of each record that is there, by its number."""
    command = [sys.executable, "-m", "kgw", "consume", TOPIC, "-b", address, "--offsets"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: dict[int, list[int]] = {}
    for line in lines.stdout.splitlines():
        place, number = line.split()
        found.setdefault(int(number), []).append(int(place.partition(":")[2]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", default=CLIENTS, metavar="CLIENT")
    parser.add_argument("--ends", default="kill,stop")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--lease-ms", type=int, default=3_000)
    asked = parser.parse_args()
    rows: list[Row] = []
    acknowledged: dict[int, int] = {}
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="failover-")))
        setup = Setup()
        cluster = Cluster(directory / "seaweedfs", setup, ports=free_ports(setup))
        opened.enter_context(cluster.running())
        url = cluster.url("failover")
        ports = [free_port() for _ in range(2)]
        gateways = [
            Gateway(url, number + 1, port, asked.lease_ms, directory / f"kgw{number + 1}")
            for number, port in enumerate(ports)
        ]
        for one in gateways:
            opened.callback(one.end)
        gateways[0].start()
        gateways[1].start()
        leading = wait_for_both(gateways)
        command = [sys.executable, "-m", "kgw", "topics", "create", TOPIC, "-p", "1"]
        subprocess.run([*command, "-b", gateways[leading].address], check=True, timeout=60)
        first = 0
        for name in asked.clients:
            for end in asked.ends.split(","):
                row, acks, first = try_client(
                    name, end, asked.repetitions, gateways, directory, first
                )
                rows.append(row)
                acknowledged |= acks
        leading = wait_for_both(gateways)
        found = stored(gateways[leading].address)
        for number in (1, 2):
            log = (directory / f"kgw{number}" / "log").read_text(errors="replace")
            for line in log.splitlines():
                if "traceback" in line.lower():
                    print(f"gateway {number}: {line}", file=sys.stderr)
    lost = [
        number for number, offset in acknowledged.items() if offset not in found.get(number, [])
    ]
    doubled = [number for number, offsets in found.items() if len(offsets) > 1]
    print(
        table(
            ("Client", "End", "Times", "Median, s", "Worst, s", "Errors", "Failed"),
            [
                [
                    row.client,
                    row.end,
                    str(len(row.stills_s)),
                    f"{statistics.median(row.stills_s):.2f}",
                    f"{max(row.stills_s):.2f}",
                    str(row.errors),
                    "; ".join(row.failed),
                ]
                for row in rows
            ],
        )
    )
    print(f"{len(acknowledged)} acknowledged, {len(lost)} lost, {len(doubled)} stored twice")
    if lost or any(row.failed for row in rows):
        sys.exit(1)


def free_port() -> int:
    """Return a port that nobody listens on, below those that connections take."""
    return free_ports(Setup())["filer"]


if __name__ == "__main__":
    main()
