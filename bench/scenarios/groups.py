"""Consumer groups: members that stay, and members that all join again.

Groups are formed before the clock starts, so the initial rebalance delay (3 s in Kafka, none in
kgw) is in no figure.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Bar, Figure, Scenario
from bench.harness.servers import ONE_OF_EACH, WITHOUT_SYNCED
from bench.loads.connections import LongPolls
from bench.loads.frames import create_topics, wait_for_coordinators, wait_for_leaders
from bench.loads.groups import HEARTBEAT_INTERVAL_S, Heartbeats, Rebalanced, formed, rebalance
from bench.loads.poller import Poller, allow_connections
from bench.loads.sockets import percentile
from bench.scenarios.connections import CPU_SHARE
from bench.scenarios.small_requests import P50_MS, P99_MS

if TYPE_CHECKING:
    from bench.harness.scenario import Stage

PARTITIONS = 10
POLL_WAIT_MS = 500
WARM_ROUNDS = 3
LEAST_ROUNDS = 3

SETTLE_MS = Figure(name="settle_ms", title="all have their part after", unit="ms", better="lower")
CPU_MS = Figure(name="cpu_ms", title="server CPU a rebalance", unit="ms", better="lower")
COORDINATOR_P99_MS = Figure(
    name="coordinator_p99_ms", title="coordinator's time of a group, p99", unit="ms", better="lower"
)


@dataclass(frozen=True, kw_only=True)
class Staying(Scenario):
    """Members with a heartbeat every 3 s on one connection and a long poll of 0.5 s on another."""

    figures: tuple[Figure, ...] = (P50_MS, P99_MS, CPU_SHARE)
    groups: int = 100
    members: int = 10

    def prepare(self, stage: Stage) -> None:
        topics = {stage.name: PARTITIONS}
        create_topics(stage.server.address, topics)
        wait_for_leaders(stage.server.address, topics)
        wait_for_coordinators(stage.server.address, self._names(stage))

    def _names(self, stage: Stage) -> list[str]:
        return [f"{stage.name}-{number}" for number in range(stage.scale.count(self.groups))]

    def measure(self, stage: Stage) -> dict[str, float]:
        count = stage.scale.count(self.groups)
        allow_connections(2 * count * self.members)
        with Poller(stage.server.address) as poller:
            heartbeats = Heartbeats(formed(poller, self._names(stage), self.members))
            LongPolls(poller, stage.name, count * self.members, POLL_WAIT_MS, PARTITIONS)
            poller.run_until(time.perf_counter() + POLL_WAIT_MS / 1000)
            before, cpu_s, began_s = (
                len(heartbeats.latencies_s),
                stage.server.usage().cpu_s,
                time.perf_counter(),
            )
            # A whole round of heartbeats: each member is heard once.
            poller.run_until(began_s + max(stage.scale.seconds, HEARTBEAT_INTERVAL_S))
            cpu_s = stage.server.usage().cpu_s - cpu_s
            elapsed_s = time.perf_counter() - began_s
            latencies_s = heartbeats.latencies_s[before:]
        return {
            "p50_ms": percentile(latencies_s, 0.5) * 1e3,
            "p99_ms": percentile(latencies_s, 0.99) * 1e3,
            "cpu_s": cpu_s,
            "cpu_share": cpu_s / elapsed_s,
        }


@dataclass(frozen=True, kw_only=True)
class Rebalance(Scenario):
    """All members of all groups come with a new subscription at once, again and again."""

    figures: tuple[Figure, ...] = (SETTLE_MS, COORDINATOR_P99_MS, CPU_MS)
    groups: int = 1
    members: int = 100

    def prepare(self, stage: Stage) -> None:
        wait_for_coordinators(stage.server.address, self._names(stage))

    def _names(self, stage: Stage) -> list[str]:
        return [f"{stage.name}-{number}" for number in range(stage.scale.count(self.groups))]

    def measure(self, stage: Stage) -> dict[str, float]:
        names = self._names(stage)
        member_count = stage.scale.count(self.members) if self.groups == 1 else self.members
        allow_connections(len(names) * member_count)
        with Poller(stage.server.address) as poller:
            groups = formed(poller, names, member_count)
            for number in range(WARM_ROUNDS):
                rebalance(groups, seed=number)
            cpu_s, end_s = stage.server.usage().cpu_s, time.perf_counter() + stage.scale.seconds
            rounds: list[Rebalanced] = []
            while len(rounds) < LEAST_ROUNDS or time.perf_counter() < end_s:
                rounds.append(rebalance(groups, seed=len(rounds)))
            cpu_s = stage.server.usage().cpu_s - cpu_s
        coordinator_s = [one for rebalanced in rounds for one in rebalanced.coordinator_s]
        return {
            "settle_ms": statistics.median(one.elapsed_s for one in rounds) * 1e3,
            "coordinator_p99_ms": percentile(coordinator_s, 0.99) * 1e3,
            "cpu_s": cpu_s,
            "cpu_ms": cpu_s / len(rounds) * 1e3,
        }


PER_MEMBER = (
    "The interpreter, on one core: two requests a member, each read and written by itself. "
    "Of 71 µs of server CPU a member a third is polling, reading and writing the socket. The "
    "Python takes 42 without sockets, on busy cores: connections 7.5, headers and dispatch 6, "
    "decoding 3.4, handlers 4, the group's own steps 12, making and encoding answers 5, the "
    "group's row 3."
)
PER_GROUP = (
    "The interpreter, on one core: two requests and two rows a group, which are made durable."
    " Profiled by itself on a quiet machine: 80 µs of CPU a group are Python of requests and rows,"
    " a sixth of the whole is the state store's thread, a tenth the garbage collector, which meets"
    " what waits for its answer."
)
PER_POLL = "The interpreter: nearly all of it are the long polls."

SCENARIOS: tuple[Scenario, ...] = (
    Staying(
        name="groups/staying-1000",
        title="1,000 consumers in 100 groups, which have nothing to read",
        what="Latency of heartbeats.",
        limited_by=PER_POLL,
        servers=ONE_OF_EACH,
    ),
    Rebalance(
        name="groups/rebalance-100",
        title="one group of 100 members joins again",
        what="From the first JoinGroup to the last SyncGroup's answer.",
        limited_by=PER_MEMBER,
        would_lift=(
            "Less Python between a socket and its group. A group has one coordinator, so that "
            "several gateways do not help this one."
        ),
        bars={
            "strict": (Bar(figure="settle_ms", at_most=1 / 1.5),),
            "synced": (Bar(figure="settle_ms", at_most=1.0),),
        },
    ),
    Rebalance(
        name="groups/rebalance-100x10",
        title="100 groups of 10 join again at once",
        what="From the first JoinGroup to the last SyncGroup's answer.",
        limited_by=PER_MEMBER,
        groups=100,
        members=10,
        servers=WITHOUT_SYNCED,
    ),
    Rebalance(
        name="groups/join-500",
        title="500 groups of one member join again at once",
        what="From the first JoinGroup to the last SyncGroup's answer.",
        limited_by=PER_GROUP,
        groups=500,
        members=1,
        servers=WITHOUT_SYNCED,
    ),
)
