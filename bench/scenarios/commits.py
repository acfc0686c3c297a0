"""Offset commits from many connections, one request in flight on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Bar, Figure, Scenario
from bench.loads import sockets
from bench.loads.frames import (
    commit_frame,
    create_topics,
    wait_for_coordinators,
    wait_for_leaders,
)
from bench.scenarios.small_requests import OF_REQUESTS, WARM_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.harness.scenario import Durability, Stage

OFFSETS_PER_S = Figure(name="offsets_per_s", title="offsets/s", unit="/s", decimals=0)


@dataclass(frozen=True, kw_only=True)
class Commits(Scenario):
    """Each connection commits for a group of its own, from outside of any membership."""

    figures: tuple[Figure, ...] = (*OF_REQUESTS, OFFSETS_PER_S)
    connections: int = 50
    partitions: int = 1

    def prepare(self, stage: Stage) -> None:
        topics = {stage.name: self.partitions}
        create_topics(stage.server.address, topics)
        wait_for_leaders(stage.server.address, topics)
        names = [f"{stage.name}-{number}" for number in range(self.connections)]
        wait_for_coordinators(stage.server.address, names)
        self._drive(stage, WARM_S)

    def measure(self, stage: Stage) -> dict[str, float]:
        driven = self._drive(stage, stage.scale.seconds)
        return driven.figures() | {"offsets_per_s": driven.per_s * self.partitions}

    def _drive(self, stage: Stage, seconds: float) -> sockets.Driven:
        requests = [
            sockets.offset_commit(
                commit_frame(f"{stage.name}-{number}", stage.name, range(self.partitions), number)
            )
            for number in range(self.connections)
        ]
        return sockets.drive(stage.server.address, requests, 1, seconds)


BARS: Mapping[Durability, tuple[Bar, ...]] = {
    "strict": (Bar(figure="requests_per_s", at_least=1.5),),
    "synced": (Bar(figure="requests_per_s", at_least=1.0),),
}

IN_TWO_THREADS = (
    "The interpreter, which the loop (two thirds) and the state store's thread share. Profiled by "
    "itself on a quiet machine: 36 to 38 µs of CPU a commit, of which 12 are Python of the "
    "request and its row, 12 the thread's (SQLite's share is small: three pages and one sync for "
    "some twenty commits), and the rest is reading and writing the socket. Commits that wait 1 ms "
    "for more to share a sync take 12 % less CPU and come no faster."
)
ONE_CORE = "Less Python for each commit; several gateways, each of which has a core for its own."

SCENARIOS: tuple[Scenario, ...] = (
    Commits(
        name="commits/single",
        title="50 groups, one partition a commit",
        what="OffsetCommit; kgw has made it durable when it answers.",
        limited_by=IN_TWO_THREADS,
        would_lift=ONE_CORE,
        bars=BARS,
    ),
    Commits(
        name="commits/batched",
        title="50 groups, 1,000 partitions a commit",
        what="OffsetCommit; kgw has made it durable when it answers.",
        limited_by="The interpreter: seeing by columns that 1,000 entries are alike and valid.",
        would_lift=ONE_CORE,
        bars=BARS,
        partitions=1_000,
    ),
)
