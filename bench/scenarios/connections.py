"""Clients that only wait: what a connection costs a server that has nothing to do for it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Figure, Scenario
from bench.harness.servers import ONE_OF_EACH, WITHOUT_SYNCED
from bench.loads.connections import LongPolls, open_idle
from bench.loads.frames import create_topics, wait_for_leaders
from bench.loads.poller import Poller, allow_connections

if TYPE_CHECKING:
    from bench.harness.scenario import Stage

PARTITIONS = 10

KB_PER_CONNECTION = Figure(
    name="kb_per_connection", title="memory a connection", unit="KB", better="lower"
)
OPENED_PER_S = Figure(name="opened_per_s", title="opened", unit="/s", decimals=0)
CPU_SHARE = Figure(
    name="cpu_share", title="server's share of a core", unit="", better="lower", decimals=3
)
ANSWERS_PER_S = Figure(name="requests_per_s", title="polls answered", unit="/s", decimals=0)


@dataclass(frozen=True, kw_only=True)
class Idle(Scenario):
    """Connections that have asked ApiVersions once."""

    figures: tuple[Figure, ...] = (KB_PER_CONNECTION, OPENED_PER_S, CPU_SHARE)
    servers: tuple[str, ...] = WITHOUT_SYNCED
    connections: int = 10_000

    def prepare(self, stage: Stage) -> None:
        # What the first ones have made lies ready for the next: that is not a connection's price.
        for connection in open_idle(stage.server.address, 250):
            connection.close()

    def measure(self, stage: Stage) -> dict[str, float]:
        count = stage.scale.count(self.connections)
        allow_connections(count)
        before = stage.server.usage()
        began_s = time.perf_counter()
        held = open_idle(stage.server.address, count)
        opened_s = time.perf_counter() - began_s
        after = stage.server.usage()
        time.sleep(stage.scale.seconds)
        idle_cpu_s = stage.server.usage().cpu_s - after.cpu_s
        for connection in held:
            connection.close()
        return {
            "kb_per_connection": (after.anonymous_bytes - before.anonymous_bytes) / count / 1e3,
            "opened_per_s": count / opened_s,
            "cpu_share": idle_cpu_s / stage.scale.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class Polling(Scenario):
    """Connections that each hold a Fetch at the end of an empty partition."""

    figures: tuple[Figure, ...] = (CPU_SHARE, ANSWERS_PER_S)
    servers: tuple[str, ...] = ONE_OF_EACH
    connections: int = 1_000
    wait_ms: int = 500

    def prepare(self, stage: Stage) -> None:
        topics = {stage.name: PARTITIONS}
        create_topics(stage.server.address, topics)
        wait_for_leaders(stage.server.address, topics)

    def measure(self, stage: Stage) -> dict[str, float]:
        count = stage.scale.count(self.connections)
        allow_connections(count)
        with Poller(stage.server.address) as poller:
            polls = LongPolls(poller, stage.name, count, self.wait_ms, PARTITIONS)
            # All have begun and the first are answered; from then on the rate is even.
            poller.run_until(time.perf_counter() + self.wait_ms / 1000 + 0.2)
            cpu_s, began_s, answered = (
                stage.server.usage().cpu_s,
                time.perf_counter(),
                polls.answered,
            )
            poller.run_until(began_s + stage.scale.seconds)
            elapsed_s = time.perf_counter() - began_s
            cpu_s = stage.server.usage().cpu_s - cpu_s
            answered = polls.answered - answered
        return {
            "cpu_s": cpu_s,
            "cpu_share": cpu_s / elapsed_s,
            "requests_per_s": answered / elapsed_s,
        }


ONLY_MEMORY = "Objects of the event loop and the kernel: nothing runs for a connection that idles."
PER_POLL = "The interpreter: each poll is a request that waits, and an answer of its own."

SCENARIOS: tuple[Scenario, ...] = (
    Idle(
        name="connections/idle-10000",
        title="10,000 idle connections",
        what="Opened one after the other, then left alone.",
        limited_by=ONLY_MEMORY,
        start="own",
        warm_rounds=2,
    ),
    Polling(
        name="connections/polling-1000",
        title="1,000 long polls of 0.5 s",
        what="Fetch of one empty partition, sent again when it is answered.",
        limited_by=PER_POLL,
    ),
    Polling(
        name="connections/polling-10000",
        title="10,000 long polls of 5 s",
        what="Fetch of one empty partition, sent again when it is answered.",
        limited_by=PER_POLL,
        connections=10_000,
        wait_ms=5_000,
    ),
)
