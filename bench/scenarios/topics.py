"""Creating topics and writing to each of their partitions for the first time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Bar, Figure, Scenario
from bench.loads.frames import (
    NO_LEADER_YET,
    batch_of,
    connect,
    create_topics,
    end_offsets,
    exchange,
    produce_frame,
)
from bench.loads.sockets import produce_errors
from bench.scenarios.metadata import CREATED_S

if TYPE_CHECKING:
    from bench.harness.scenario import Stage

WRITE_LIMIT_S = 60.0

WRITTEN_S = Figure(
    name="written_s", title="and written after", unit="s", better="lower", decimals=2
)
CPU_S = Figure(name="cpu_s", title="server CPU", unit="s", better="lower", decimals=2)


@dataclass(frozen=True, kw_only=True)
class Creation(Scenario):
    """Topics of some partitions, created by one request; then a record to each partition."""

    figures: tuple[Figure, ...] = (CREATED_S, WRITTEN_S, CPU_S)
    topics: int = 10
    partitions: int = 100

    def measure(self, stage: Stage) -> dict[str, float]:
        address = stage.server.address
        batch = batch_of(1, 100)
        names = [f"{stage.name}-{number:04}" for number in range(stage.scale.count(self.topics))]
        topics = dict.fromkeys(names, self.partitions)
        frames = {
            name: produce_frame(name, dict.fromkeys(range(self.partitions), batch))
            for name in names
        }
        began_s = time.perf_counter()
        create_topics(address, topics)
        created_s = time.perf_counter() - began_s
        with connect(address) as connection:
            for frame in frames.values():
                while errors := produce_errors(exchange(connection, frame)):
                    assert errors <= NO_LEADER_YET, f"Produce was answered with {errors}"
                    assert time.perf_counter() - began_s < WRITE_LIMIT_S, errors
                    time.sleep(0.02)
        written_s = time.perf_counter() - began_s
        # Where some partitions were ready and others not, the first have two records.
        assert end_offsets(address, topics) >= len(names) * self.partitions
        return {"created_s": created_s, "written_s": written_s}


FILES = (
    "The disk and the kernel: a directory and files for each partition, synced before the answer,"
    " 64 directories at a time. Profiled by itself on a quiet machine, creating and writing to"
    " 1,000 takes 0.67 s of processor time."
)

SCENARIOS: tuple[Scenario, ...] = (
    Creation(
        name="topics/10x100-written",
        title="10 topics of 100 partitions, one record to each partition",
        what="CreateTopics of all, then a Produce to each topic.",
        limited_by=FILES,
        would_lift="Making a partition's files with its first record; fewer files and syncs each.",
        bars={
            "strict": (Bar(figure="written_s", at_most=1 / 1.5),),
            "synced": (Bar(figure="written_s", at_most=1.0),),
        },
        start="own",
        warm_rounds=10,
    ),
)
