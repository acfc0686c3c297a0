"""Kill -9 over a gigabyte of data, and how long the next start takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Bar, Figure, Scenario
from bench.harness.servers import ONE_OF_EACH
from bench.loads import sockets
from bench.loads.frames import (
    batch_of,
    create_topics,
    end_offsets,
    produce_frame,
    wait_for_leaders,
)

if TYPE_CHECKING:
    from bench.harness.scenario import Stage

PARTITIONS = 4
RECORDS_PER_BATCH = 16
RECORD_BYTES = 1_000
DEPTH = 4
FULL_BYTES = 1 << 30
FILL_LIMIT_S = 120.0

READY_S = Figure(
    name="ready_s", title="all records there after", unit="s", better="lower", decimals=2
)
CPU_S = Figure(name="start_cpu_s", title="CPU until then", unit="s", better="lower", decimals=2)


@dataclass(frozen=True, kw_only=True)
class Recovery(Scenario):
    """Four partitions in batches of 16 KB, with the checkpoints that the defaults have made."""

    figures: tuple[Figure, ...] = (READY_S, CPU_S)

    def prepare(self, stage: Stage) -> None:
        stage.server.start()
        topics = {stage.name: PARTITIONS}
        create_topics(stage.server.address, topics)
        wait_for_leaders(stage.server.address, topics)
        batch = batch_of(RECORDS_PER_BATCH, RECORD_BYTES)
        requests = [
            sockets.produce(produce_frame(stage.name, {partition: batch}), stage.name)
            for partition in range(PARTITIONS)
        ]
        count = stage.scale.count(FULL_BYTES) // len(batch)
        sockets.drive(stage.server.address, requests, DEPTH, FILL_LIMIT_S, most=count)

    def measure(self, stage: Stage) -> dict[str, float]:
        server, topics = stage.server, {stage.name: PARTITIONS}
        written = end_offsets(server.address, topics)
        server.kill()
        server.start()
        wait_for_leaders(server.address, topics)
        found = end_offsets(server.address, topics)
        assert found == written, f"{found} of {written} records are there"
        ready_s = time.monotonic() - server.began_s
        return {"ready_s": ready_s, "start_cpu_s": server.usage().cpu_s}


SCENARIOS: tuple[Scenario, ...] = (
    Recovery(
        name="recovery/kill-1gb",
        title="1 GB in 4 partitions, after kill -9",
        what=(
            "Process start to the end offsets of all partitions, counted. Each process is new, so"
            " that a JVM cannot be warm. Not of a relaxed log: after a kill it goes on past the"
            " offsets that it had reserved, so that its end does not count its records."
        ),
        limited_by="What lies above the last checkpoint is read and checked.",
        would_lift="Checkpoints that are closer together.",
        bars={"strict": (Bar(figure="ready_s", at_most=1.0),)},
        servers=ONE_OF_EACH,
        start="unstarted",
    ),
)
