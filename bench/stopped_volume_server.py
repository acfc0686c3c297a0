"""How long a Fetch takes of 50 cold partitions that cannot be read and 50 that can.

    .venv/bin/python -m bench.stopped_volume_server [seaweedmq|embedded ...] [--rounds N]
        [--seconds S]

Over SeaweedMQ a volume server is stopped (SIGSTOP) that has the records of 50 partitions; a second
one has those of the other 50. The embedded backend is on the tests' own file system, of which reads
of 50 partitions hang. In each round the gateway has just been started and has read nothing. One
client fetches all 100 partitions, `max_wait_ms` 500, in one request, again and again; in the first
round those that hang come first, then last, then mixed. Three other connections ask for Metadata
and fetch a partition that is in memory, 100 times a second each. The table has the longest time of
the first Fetch and of those behind it, how many of the 50 healthy partitions the first one brought,
and the others' 99th percentile, each beside the same rounds with nothing stopped. In the end the
server goes on, and everything must be read.
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
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from bench.harness.report import table
from kgw.client import AdminClient, AsyncClient
from kgw.client.connection import Connection
from kgw.client.errors import ClientError
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kgw.records.builder import BatchBuilder
from tests.seaweedfs.cluster import Cluster, Setup, free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

HOST = "127.0.0.1"
EACH = 50
"""Partitions that can, and cannot, be read."""
MAX_WAIT_MS = 500
VALUE_BYTES = 2_000
OTHERS = 3
PAUSE_S = 0.01
TOPICS = ("away", "here")
WARM = "warm"
VERSION = 12
LIMIT_S = 60.0


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Store(Protocol):
    """A gateway, and what it stores its records in."""

    port: int
    warm_offset: int
    """Of what is in memory all the same."""

    async def cold(self) -> None:
        """Have nothing of what is stored in memory."""

    async def hang(self) -> None:
        """Answer no read of the records of "away"."""

    async def go_on(self) -> None:
        """Answer them again."""


class Figures(NamedTuple):
    """What one round has shown."""

    first_s: float
    later_s: list[float]
    healthy: int
    others_s: list[float]


# --- clients --------------------------------------------------------------------------------------


async def fetch(
    connection: Connection, places: Sequence[Place], offset: int = 0
) -> tuple[float, set[Place]]:
    """Return how long a Fetch took, and the partitions that it brought records of."""
    request = FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=50 << 20,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=one.topic,
                partitions=[
                    FetchPartition(
                        partition=one.partition, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                ],
            )
            for one in places
        ],
    )
    began_s = time.perf_counter()
    answer = await connection.ask(request, FetchResponse, version=VERSION, timeout_s=LIMIT_S)
    took_s = time.perf_counter() - began_s
    found = set()
    for topic in answer.responses:
        for data in topic.partitions:
            if data.error_code:
                print(f"{topic.topic}-{data.partition_index}: error {data.error_code}")
            if data.records:
                found.add(Place(topic.topic, data.partition_index))
    return took_s, found


async def produce(connection: Connection, topic: str, partition: int) -> int | None:
    """Append one record; return its offset, None when it is refused."""
    builder = BatchBuilder()
    builder.add(value=os.urandom(VALUE_BYTES), timestamp_ms=round(time.time() * 1000))
    data = PartitionProduceData(index=partition, records=builder.build())
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = await connection.ask(request, ProduceResponse, version=9)
    (result,) = answer.responses[0].partition_responses
    return None if result.error_code else result.base_offset


async def fill(port: int, topic: str, partitions: int) -> None:
    """Append one record to each partition of a new topic."""
    async with AsyncClient([(HOST, port)]) as client:
        await AdminClient(client).create_topic(topic, partitions=partitions)
    connection = await Connection.open(HOST, port)
    try:
        for partition in range(partitions):
            for _ in range(5):
                if await produce(connection, topic, partition) is not None:
                    break
            else:
                raise RuntimeError(f"{topic}-{partition} takes no record")
    finally:
        await connection.aclose()


async def ask_for_others(port: int, offset: int, until_s: float) -> list[float]:
    """Ask for what is in memory until a time; return how long each answer took."""
    connection = await Connection.open(HOST, port)
    took_s = []
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name=WARM)])
    try:
        while time.perf_counter() < until_s:
            began_s = time.perf_counter()
            await connection.ask(metadata, MetadataResponse, version=9)
            took_s.append(time.perf_counter() - began_s)
            one, found = await fetch(connection, [Place(WARM, 0)], offset)
            if not found:
                raise RuntimeError("the partition in memory has no record")
            took_s.append(one)
            await asyncio.sleep(PAUSE_S)
    finally:
        await connection.aclose()
    return took_s


# --- stores ---------------------------------------------------------------------------------------


async def until_served(port: int) -> None:
    """Wait until a gateway answers."""
    until_s = time.monotonic() + LIMIT_S
    while True:
        try:
            connection = await Connection.open(HOST, port, timeout_s=2)
        except ClientError:
            if time.monotonic() > until_s:
                raise
            await asyncio.sleep(0.1)
        else:
            await connection.aclose()
            return


class OnSeaweedFs:
    """A gateway over a SeaweedFS of two volume servers."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.port = free_ports(Setup())["filer"]
        self.warm_offset = 0
        self._log = directory / "kgw.log"
        self._command = [sys.executable, "-m", "kgw", "serve", "--backend", cluster.url("stopped")]
        self._command += ["--listen", f"{HOST}:{self.port}"]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Begin, with nothing in memory."""
        self.end(signal.SIGTERM)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
                self._command, stdout=log, stderr=log
            )
        await until_served(self.port)

    async def cold(self) -> None:
        await self.start()
        connection = await Connection.open(HOST, self.port)
        try:
            offset = None
            while offset is None:
                offset = await produce(connection, WARM, 0)
            self.warm_offset = offset
        finally:
            await connection.aclose()

    async def hang(self) -> None:
        self.cluster.send_signal("volume", signal.SIGSTOP)

    async def go_on(self) -> None:
        self.cluster.send_signal("volume", signal.SIGCONT)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(timeout=60)


@asynccontextmanager
async def on_seaweedfs(directory: Path) -> AsyncIterator[Store]:
    """Fill "away" while one volume server runs, "here" while the other one does."""
    setup = Setup(volume_servers=2)
    cluster = Cluster(directory / "seaweedfs", setup, ports=free_ports(setup))
    with cluster.running("master", "volume", "filer"):
        store = OnSeaweedFs(cluster, directory)
        try:
            await store.start()
            await fill(store.port, "away", EACH)
            cluster.start("volume2")
            cluster.terminate("volume")
            # Until the master gives no place on it any more.
            await asyncio.sleep(7)
            await fill(store.port, "here", EACH)
            await fill(store.port, WARM, 1)
            cluster.start("volume")
            await asyncio.sleep(5)
            yield store
        finally:
            store.end()


class OnHangingDisk:
    """A gateway in a process of its own, on the file system of the tests."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.port = port
        self.warm_offset = 0
        self.process = process

    async def _tell(self, word: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n".encode())
        await self.process.stdin.drain()
        await self.process.stdout.readline()

    async def cold(self) -> None:
        await self._tell("cold")

    async def hang(self) -> None:
        await self._tell("hang")

    async def go_on(self) -> None:
        await self._tell("go on")


@asynccontextmanager
async def on_hanging_disk(_: Path) -> AsyncIterator[Store]:
    """Start it, and fill the topics."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.stopped_volume_server", "--serve"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        store = OnHangingDisk(process, int(await process.stdout.readline()))
        for topic in TOPICS:
            await fill(store.port, topic, EACH)
        await fill(store.port, WARM, 1)
        yield store
    finally:
        process.kill()
        await process.wait()


async def serve() -> None:
    """Be the gateway on a file system that hangs when standard input says so."""
    from threading import Event

    from kgw.backend.embedded.backend import EmbeddedBackend
    from kgw.backend.embedded.options import EmbeddedOptions
    from kgw.clock import SystemClock
    from kgw.config import Config, Listener
    from kgw.gateway import Gateway
    from kgw.handlers.dispatch import Dispatcher
    from kgw.server.limits import Limits
    from kgw.server.server import Server
    from kgw.state.memory import MemoryStateStore
    from tests.simulated_fs import SimulatedFs

    fs = SimulatedFs()
    fs.make_directory_durably("/data")
    clock = SystemClock()
    # The last batch stays in memory: that of the topic that is warm.
    options = EmbeddedOptions(cache_bytes=VALUE_BYTES * 2, journal_append_bytes=0)
    backend = EmbeddedBackend("/data", options, fs=fs, state=MemoryStateStore(), clock=clock)
    gateway = Gateway(Config(), backend, clock)
    await gateway.start()
    server = Server(Dispatcher(gateway), Limits(), clock, gateway.metrics)
    (bound,) = await server.open((Listener("PLAINTEXT", HOST, 0),))
    gateway.advertise({"PLAINTEXT": bound})
    print(bound.port, flush=True)
    loop = asyncio.get_running_loop()
    may_go_on = Event()
    while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if word == "cold":
            fs.drop_page_cache()
            await gateway.cold_reads.aclose()
        elif word == "hang":
            may_go_on.clear()
            (topic,) = [one for one in gateway.catalog.topics.values() if one.name == "away"]
            for partition in topic.partitions.values():
                fs.hanging[f"/{partition.log.key}/"] = may_go_on
        else:
            fs.hanging.clear()
            may_go_on.set()
        print(word, flush=True)


# --- rounds ---------------------------------------------------------------------------------------


def in_order(number: int) -> list[Place]:
    """Return the partitions in the order of a round."""
    away, here = ([Place(topic, one) for one in range(EACH)] for topic in TOPICS)
    if number % 3 == 0:
        return away + here
    if number % 3 == 1:
        return here + away
    return Random(number).sample(away + here, 2 * EACH)


async def one_round(store: Store, number: int, seconds: float, *, hangs: bool) -> Figures:
    """Fetch everything again and again while others ask for what is in memory."""
    await store.cold()
    places = in_order(number)
    if hangs:
        await store.hang()
    until_s = time.perf_counter() + seconds
    others = [
        asyncio.ensure_future(ask_for_others(store.port, store.warm_offset, until_s))
        for _ in range(OTHERS)
    ]
    # They have their connections.
    await asyncio.sleep(0.2)
    connection = await Connection.open(HOST, store.port)
    later_s = []
    try:
        first_s, found = await fetch(connection, places)
        healthy = len([one for one in found if one.topic == "here"])
        while time.perf_counter() < until_s:
            took_s, _ = await fetch(connection, places)
            later_s.append(took_s)
            await asyncio.sleep(PAUSE_S)
        others_s = [one for took in await asyncio.gather(*others) for one in took]
        if hangs:
            await store.go_on()
        left = set(places)
        ends_s = time.perf_counter() + LIMIT_S
        while left:
            _, found = await fetch(connection, sorted(left))
            left -= found
            if time.perf_counter() > ends_s:
                raise RuntimeError(f"{len(left)} partitions are not read in the end")
    finally:
        await connection.aclose()
    return Figures(first_s, later_s, healthy, others_s)


def p99_ms(times_s: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(times_s, n=100)[98] * 1000


STORES = {"seaweedmq": on_seaweedfs, "embedded": on_hanging_disk}


async def measure(names: Sequence[str], rounds: int, seconds: float) -> bool:
    """Run all rounds, and print the table; whether the bars are met."""
    rows = []
    is_met = True
    for name in names:
        async with AsyncExitStack() as opened:
            directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="stopped-")))
            store = await opened.enter_async_context(STORES[name](directory))
            found: dict[bool, list[Figures]] = {False: [], True: []}
            for number in range(rounds):
                for hangs in (False, True):
                    figures = await one_round(store, number, seconds, hangs=hangs)
                    found[hangs].append(figures)
                    print(
                        f"{name} round {number + 1}, {'one stopped' if hangs else 'all run'}: "
                        f"first {figures.first_s * 1000:.0f} ms, {figures.healthy} of {EACH}, "
                        f"others p99 {p99_ms(figures.others_s):.2f} ms",
                        file=sys.stderr,
                        flush=True,
                    )
        p99s = {}
        for hangs, all_figures in found.items():
            others_s = [one for figures in all_figures for one in figures.others_s]
            p99s[hangs] = p99_ms(others_s)
            later_s = [one for figures in all_figures for one in figures.later_s]
            first_s = max(one.first_s for one in all_figures)
            healthy = min(one.healthy for one in all_figures)
            rows.append(
                [
                    name,
                    "one stopped" if hangs else "all run",
                    f"{first_s * 1000:.0f}",
                    f"{healthy} of {EACH}",
                    f"{max(later_s, default=0) * 1000:.0f}",
                    f"{p99s[hangs]:.2f}",
                ]
            )
            is_met = is_met and healthy == EACH and (first_s <= 0.6 or not hangs)
        rows[-1].append(f"{p99s[True] / p99s[False]:.2f}")
        rows[-2].append("")
        is_met = is_met and p99s[True] <= 1.2 * p99s[False]
    head = (
        "Backend",
        "",
        "First Fetch, ms",
        "Healthy in it, least",
        "Later Fetches, ms",
        "Others' p99, ms",
        "Ratio",
    )
    print(table(head, rows))
    return is_met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=list(STORES), metavar="BACKEND")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve())
        return
    if not asyncio.run(measure(asked.stores, asked.rounds, asked.seconds)):
        sys.exit(1)


if __name__ == "__main__":
    main()
