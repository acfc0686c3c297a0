"""A cluster of 10,000 partitions: created, and asked for as clients do when they start."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.harness.runner import WARM_SCALE
from bench.harness.scenario import Bar, Figure, Scenario
from bench.harness.servers import BUT_RELAXED
from bench.loads import sockets
from bench.loads.frames import (
    METADATA_VERSION,
    create_topics,
    delete_topics,
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
# Kafka removes the files of deleted topics a second later: not while the clock runs.
DELETED_S = 2.0

CREATED_S = Figure(name="created_s", title="created after", unit="s", better="lower", decimals=2)
CREATING_CPU_S = Figure(
    name="creating_cpu_s", title="server CPU until then", unit="s", better="lower", decimals=2
)
ONE_MS = Figure(name="one_ms", title="one request, alone", unit="ms", better="lower", decimals=2)


@dataclass(frozen=True, kw_only=True)
class ManyTopics(Scenario):
    """Creates them; then one connection alone, then four, each asks for all, one in flight."""

    figures: tuple[Figure, ...] = (CREATED_S, CREATING_CPU_S, ONE_MS, *OF_REQUESTS)

    def prepare(self, stage: Stage) -> None:
        if stage.server.warm_share:
            # A JVM that has created topics before; they are gone when all topics are asked for.
            small = replace(stage, scale=WARM_SCALE, name=f"{stage.name}-warm")
            self._create(small)
            delete_topics(stage.server.address, self._names(small))
            time.sleep(DELETED_S)

    def measure(self, stage: Stage) -> dict[str, float]:
        created = self._create(stage)
        self._drive(stage, CONNECTIONS, JVM_WARM_S if stage.server.warm_share else WARM_S)
        cpu_s = stage.server.usage().cpu_s
        alone = self._drive(stage, 1, stage.scale.seconds / 2)
        driven = self._drive(stage, CONNECTIONS, stage.scale.seconds / 2)
        cpu_s = stage.server.usage().cpu_s - cpu_s
        requests = alone.answers + driven.answers
        return (
            created
            | driven.figures()
            | {
                "one_ms": alone.figures()["p50_ms"],
                "requests": requests,
                "cpu_s_per_million_requests": cpu_s / requests * 1e6,
            }
        )

    def _names(self, stage: Stage) -> list[str]:
        return [f"{stage.name}-{number:04}" for number in range(stage.scale.count(TOPICS))]

    def _create(self, stage: Stage) -> dict[str, float]:
        names = self._names(stage)
        cpu_s, began_s = stage.server.usage().cpu_s, time.perf_counter()
        for start in range(0, len(names), CREATED_AT_A_TIME):
            topics = dict.fromkeys(names[start : start + CREATED_AT_A_TIME], PARTITIONS)
            create_topics(stage.server.address, topics)
        wait_for_leaders(stage.server.address, dict.fromkeys(names, PARTITIONS))
        return {
            "created_s": time.perf_counter() - began_s,
            "creating_cpu_s": stage.server.usage().cpu_s - cpu_s,
        }

    def _drive(self, stage: Stage, connections: int, seconds: float) -> sockets.Driven:
        partitions = stage.scale.count(TOPICS) * PARTITIONS
        frame = frame_of(metadata_request(None), METADATA_VERSION)
        requests = [sockets.metadata(frame, partitions) for _ in range(connections)]
        return sockets.drive(stage.server.address, requests, 1, seconds)


SCENARIOS: tuple[Scenario, ...] = (
    ManyTopics(
        name="metadata/1000x10",
        title="1,000 topics of 10 partitions are created, then all are asked for",
        what="CreateTopics of 100 topics at a time; then Metadata requests for all topics.",
        limited_by=(
            "Creating: the disk and the kernel, a directory and files for each partition, synced"
            " before the answer. Asking: the loopback and the generator, since answers are pieces"
            " that are kept encoded."
        ),
        would_lift="Fewer files a partition; several gateways.",
        bars={
            "strict": (
                Bar(figure="created_s", at_most=1 / 1.5),
                Bar(figure="requests_per_s", at_least=1.5),
            ),
            "synced": (
                Bar(figure="created_s", at_most=1.0),
                Bar(figure="requests_per_s", at_least=1.0),
            ),
        },
        servers=BUT_RELAXED,
        start="own",
        # `prepare` does it: the topics of whole rounds would be asked for, too.
        warm_rounds=0,
    ),
)
