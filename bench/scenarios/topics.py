"""Creating topics, until every partition has a leader; and writing to each for the first time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Bar, Figure, Scenario
from bench.loads.frames import (
    batch_of,
    connect,
    create_topics,
    end_offsets,
    exchange,
    produce_frame,
    wait_for_leaders,
)
from bench.loads.sockets import produce_errors

if TYPE_CHECKING:
    from bench.harness.scenario import Stage

NOT_YET = {3, 5, 6}
"""Unknown topic, no leader, not the leader: a client tries again."""
WRITE_LIMIT_S = 60.0

CREATED_S = Figure(name="created_s", title="created after", unit="s", better="lower", decimals=2)
WRITTEN_S = Figure(
    name="written_s", title="and written after", unit="s", better="lower", decimals=2
)
CPU_S = Figure(name="cpu_s", title="server CPU", unit="s", better="lower", decimals=2)


@dataclass(frozen=True, kw_only=True)
class Creation(Scenario):
    """Topics of some partitions, so many in each CreateTopics request, one request at a time."""

    figures: tuple[Figure, ...] = (CREATED_S, CPU_S)
    topics: int = 1_000
    partitions: int = 10
    at_a_time: int = 100
    is_written: bool = False

    def measure(self, stage: Stage) -> dict[str, float]:
        address = stage.server.address
        batch = batch_of(1, 100)
        names = [f"{stage.name}-{number:04}" for number in range(stage.scale.count(self.topics))]
        topics = dict.fromkeys(names, self.partitions)
        frames = {
            name: produce_frame(name, dict.fromkeys(range(self.partitions), batch))
            for name in (names if self.is_written else ())
        }
        began_s = time.perf_counter()
        for start in range(0, len(names), self.at_a_time):
            chunk = names[start : start + self.at_a_time]
            create_topics(address, dict.fromkeys(chunk, self.partitions))
        if not self.is_written:
            wait_for_leaders(address, topics)
            return {"created_s": time.perf_counter() - began_s}
        created_s = time.perf_counter() - began_s
        with connect(address) as connection:
            for frame in frames.values():
                while errors := produce_errors(exchange(connection, frame)):
                    assert errors <= NOT_YET, f"Produce was answered with {errors}"
                    assert time.perf_counter() - began_s < WRITE_LIMIT_S, errors
                    time.sleep(0.02)
        written_s = time.perf_counter() - began_s
        # Where some partitions were ready and others not, the first have two records.
        assert end_offsets(address, topics) >= len(names) * self.partitions
        return {"created_s": created_s, "written_s": written_s}


FILES = (
    "The disk and the kernel: a directory and files for each partition, synced before the answer."
)

SCENARIOS: tuple[Scenario, ...] = (
    Creation(
        name="topics/10x100-written",
        title="10 topics of 100 partitions, one record to each partition",
        what="CreateTopics of all, then a Produce to each topic.",
        limited_by=FILES,
        figures=(CREATED_S, WRITTEN_S, CPU_S),
        bars={
            "strict": (Bar(figure="written_s", at_most=1 / 1.5),),
            "synced": (Bar(figure="written_s", at_most=1.0),),
        },
        topics=10,
        partitions=100,
        at_a_time=10,
        is_written=True,
        start="own",
        warm_rounds=10,
    ),
    Creation(
        name="topics/1000x10",
        title="1,000 topics of 10 partitions",
        what="CreateTopics of 100 topics at a time.",
        limited_by=FILES,
        bars={
            "strict": (Bar(figure="created_s", at_most=1 / 1.5),),
        },
        # No record is written, and Kafka takes a minute.
        servers=("kgw-strict", "kafka"),
        start="own",
        warm_rounds=4,
    ),
)
