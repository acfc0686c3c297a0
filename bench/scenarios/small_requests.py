"""Produce requests of one record, from bare sockets: what one request costs a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Bar, Figure, Scenario
from bench.loads import sockets
from bench.loads.frames import batch_of, create_topics, end_offsets, produce_frame, wait_for_leaders

if TYPE_CHECKING:
    from bench.harness.scenario import Durability, Stage

PARTITIONS = 16
RECORD_BYTES = 100
WARM_S = 0.3
SYNCED_BAR = 3.0

REQUESTS_PER_S = Figure(name="requests_per_s", title="requests/s", unit="/s", decimals=0)
P50_MS = Figure(name="p50_ms", title="p50", unit="ms", better="lower", decimals=2)
P99_MS = Figure(name="p99_ms", title="p99", unit="ms", better="lower", decimals=2)
CPU_US = Figure(
    name="cpu_s_per_million_requests", title="server CPU a request", unit="µs", better="lower"
)
GENERATOR_CPU_US = Figure(
    name="generator_cpu_us", title="generator CPU a request", unit="µs", better="lower"
)
OF_REQUESTS = (REQUESTS_PER_S, P50_MS, P99_MS, CPU_US, GENERATOR_CPU_US)


@dataclass(frozen=True, kw_only=True)
class OneRecord(Scenario):
    """Connections that each keep some Produce requests in flight, each to one partition of 16."""

    figures: tuple[Figure, ...] = OF_REQUESTS
    connections: int = 1
    depth: int = 1

    def prepare(self, stage: Stage) -> None:
        topics = {stage.name: PARTITIONS}
        create_topics(stage.server.address, topics)
        wait_for_leaders(stage.server.address, topics)
        self._drive(stage, WARM_S)

    def measure(self, stage: Stage) -> dict[str, float]:
        topics = {stage.name: PARTITIONS}
        before = end_offsets(stage.server.address, topics)
        driven = self._drive(stage, stage.scale.seconds)
        written = end_offsets(stage.server.address, topics) - before
        # Each connection has sent one before the clock started.
        answered = driven.answers + self.connections
        assert written == answered, f"{written} records are there, {answered} were acknowledged"
        return driven.figures()

    def _drive(self, stage: Stage, seconds: float) -> sockets.Driven:
        batch = batch_of(1, RECORD_BYTES)
        requests = [
            sockets.produce(produce_frame(stage.name, {number % PARTITIONS: batch}), stage.name)
            for number in range(self.connections)
        ]
        return sockets.drive(stage.server.address, requests, self.depth, seconds)


def _one_record(
    connections: int,
    depth: int,
    strict: float | None = None,
    relaxed: float | None = None,
    *,
    synced: float = 1.0,
    limited_by: str,
    would_lift: str = "",
) -> OneRecord:
    """A row; the third and fourth argument are its bars."""
    wanted: dict[Durability, float | None] = {
        "strict": strict,
        "relaxed": relaxed,
        "synced": synced,
    }
    return OneRecord(
        name=f"requests/{connections}x{depth}",
        title=f"{connections} connection{'s' * (connections > 1)}, {depth} in flight on each",
        what="Produce requests of one record of 100 B, acks=all.",
        limited_by=limited_by,
        would_lift=would_lift,
        bars={
            durability: (Bar(figure="requests_per_s", at_least=ratio),)
            for durability, ratio in wanted.items()
            if ratio is not None
        },
        connections=connections,
        depth=depth,
    )


ROUND_TRIP = (
    "The way there and back. Strict: the disk's write and flush, 103 µs as a write plus a sync, and"
    " two wake-ups of an idle process, for the request and for the sync's end. Relaxed: four"
    " syscalls a request (epoll, read, pwritev2, write), and the interpreter, which has 63 % of the"
    " processor time. Without a pause it takes 5 µs to find the partition and check the batch, and"
    " 20 to append it; after a sleep the same takes more. A loop that stayed awake for such a"
    " client gained a quarter at best, and is left out (decision 72)."
)
FEW_A_SYNC = (
    "Strict: the sync, which the five in flight share, and which takes as long as for one alone."
    " Relaxed: one core; the five come in one read and share a write and a send."
)
PER_REQUEST = (
    "The interpreter, one core. What cannot be shared is each batch's own: a copy 0.3 µs, its"
    " header 0.8, checksum and rules 0.6, placing it 0.15, its entry for the side files 1.0. Of the"
    " loop's time 33 % is writing to sockets, 19 % uvloop."
)
PER_WAKE_UP = (
    "The interpreter, one core: a receive, a send and a callback of the loop for each request,"
    " which no other request shares. The kernel has 22 to 24 % of the time."
)
ONE_SYNC = (
    "Strict: a disk that syncs faster. One write that is its own sync, past the page cache"
    " (O_DIRECT, RWF_DSYNC), took 6 to 12 % less a request in the server, and is left out (decision"
    " 67). Relaxed: less Python for each request; an answer in plain Python that does nothing else"
    " takes 47 µs from a loop that stays awake, client included, and Kafka 80."
)
ONE_CORE = (
    "Several gateways, since one has one core for its Python and Kafka uses both; or less Python"
    " for each request."
)

SCENARIOS: tuple[Scenario, ...] = (
    _one_record(1, 1, 0.5, 1.3, limited_by=ROUND_TRIP, would_lift=ONE_SYNC),
    _one_record(1, 5, 1.5, 2.0, limited_by=FEW_A_SYNC, would_lift=ONE_SYNC),
    _one_record(10, 1, limited_by=PER_WAKE_UP, would_lift=ONE_CORE),
    _one_record(10, 5, limited_by=PER_REQUEST, would_lift=ONE_CORE),
    _one_record(16, 5, 1.3, 1.8, synced=SYNCED_BAR, limited_by=PER_REQUEST, would_lift=ONE_CORE),
    _one_record(100, 1, 1.3, 1.8, limited_by=PER_WAKE_UP, would_lift=ONE_CORE),
    _one_record(100, 5, limited_by=PER_REQUEST, would_lift=ONE_CORE),
)
