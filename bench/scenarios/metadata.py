"""Metadata of a cluster with 10,000 partitions: asked by clients when they start, and later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Bar, Figure, Scenario
from bench.loads import sockets
from bench.loads.frames import (
    METADATA_VERSION,
    create_topics,
    frame_of,
    metadata_request,
    wait_for_leaders,
)
from bench.scenarios.small_requests import OF_REQUESTS, WARM_S

if TYPE_CHECKING:
    from bench.harness.scenario import Stage

TOPICS = 1_000
PARTITIONS = 10
CREATED_AT_A_TIME = 100
CONNECTIONS = 4
JVM_WARM_S = 10.0

ONE_MS = Figure(name="one_ms", title="one, alone", unit="ms", better="lower", decimals=2)


@dataclass(frozen=True, kw_only=True)
class AllTopics(Scenario):
    """First one connection alone, then four; each asks for all topics, one request in flight."""

    figures: tuple[Figure, ...] = (ONE_MS, *OF_REQUESTS)

    def prepare(self, stage: Stage) -> None:
        names = [f"{stage.name}-{number:04}" for number in range(stage.scale.count(TOPICS))]
        for start in range(0, len(names), CREATED_AT_A_TIME):
            topics = dict.fromkeys(names[start : start + CREATED_AT_A_TIME], PARTITIONS)
            create_topics(stage.server.address, topics)
        wait_for_leaders(stage.server.address, dict.fromkeys(names, PARTITIONS))
        self._drive(stage, CONNECTIONS, JVM_WARM_S if stage.server.warms_up else WARM_S)

    def measure(self, stage: Stage) -> dict[str, float]:
        alone = self._drive(stage, 1, stage.scale.seconds / 2)
        driven = self._drive(stage, CONNECTIONS, stage.scale.seconds / 2)
        return driven.figures() | {
            "one_ms": alone.figures()["p50_ms"],
            "requests": alone.answers + driven.answers,
        }

    def _drive(self, stage: Stage, connections: int, seconds: float) -> sockets.Driven:
        partitions = stage.scale.count(TOPICS) * PARTITIONS
        frame = frame_of(metadata_request(None), METADATA_VERSION)
        requests = [sockets.metadata(frame, partitions) for _ in range(connections)]
        return sockets.drive(stage.server.address, requests, 1, seconds)


SCENARIOS: tuple[Scenario, ...] = (
    AllTopics(
        name="metadata/10000-partitions",
        title="all of 1,000 topics of 10 partitions",
        what="Metadata requests for all topics.",
        limited_by="The loopback and the generator: answers are pieces that are kept encoded.",
        bars={
            "strict": (Bar(figure="requests_per_s", at_least=1.5),),
        },
        # Nothing is written, and Kafka takes a minute to create the topics.
        servers=("kgw-strict", "kafka"),
        start="own",
        warm_rounds=0,
    ),
)
