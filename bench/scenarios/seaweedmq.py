"""Gateways over a SeaweedFS: `scripts/bench --seaweedmq`, with a table of its own.

kgw acknowledges what the filer has entered; upstream's gateway what its broker has in memory.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal
from unittest.mock import patch

from bench.harness.scenario import Figure, Scenario, Stage
from bench.harness.seaweedmq import KGW_BATCHES, KGW_RECORDS, OVER_SEAWEEDFS
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
from bench.scenarios import confluent
from bench.scenarios.latency import Latency
from bench.scenarios.small_requests import OneRecord
from bench.scenarios.throughput import CPU_PER_GB, MB_PER_S, RECORDS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

KGW = (KGW_BATCHES, KGW_RECORDS)

TOPICS = 10
BATCHES_EACH = 8
BATCH_RECORDS = 125
BATCH_RECORD_BYTES = 1_000
AGAIN_S = 0.05
LIMIT_S = 60.0
RETRIED = {5, 6}
"""LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER."""

BENEATH_CPU = Figure(
    name="beneath_cpu_s", title="CPU of SeaweedFS", unit="s", better="lower", decimals=2
)
OWN_CPU = Figure(name="cpu_s", title="CPU of the gateway", unit="s", better="lower", decimals=2)
RSS = Figure(name="rss_anonymous_mb", title="memory of the gateway", unit="MB", better="lower")
BENEATH_RSS = Figure(
    name="beneath_anonymous_mb", title="memory of SeaweedFS", unit="MB", better="lower"
)
USED = (OWN_CPU, BENEATH_CPU, RSS, BENEATH_RSS)


def _fill(stage: Stage) -> tuple[Mapping[str, int], int]:
    """Write 1 MB to each of a thousand partitions; the topics and the sum of their end offsets."""
    per_topic = stage.scale.count(100)
    topics = {f"{stage.name}-{number}": per_topic for number in range(TOPICS)}
    address = stage.server.address
    create_topics(address, topics)
    wait_for_leaders(address, topics)
    batch = batch_of(BATCH_RECORDS, BATCH_RECORD_BYTES)
    with connect(address) as connection:
        for _ in range(BATCHES_EACH):
            for topic in topics:
                frame = produce_frame(topic, dict.fromkeys(range(per_topic), batch))
                errors = produce_errors(exchange(connection, frame))
                assert not errors, f"Produce was answered with {errors}"
    return topics, end_offsets(address, topics)


def _write_all(stage: Stage, topics: Mapping[str, int]) -> tuple[float, float]:
    """Write one record to each partition: when the first and when the last was acknowledged."""
    batch = batch_of(1, 100)
    deadline_s = time.monotonic() + LIMIT_S
    first_s = 0.0
    with connect(stage.server.address) as connection:
        for topic, count in topics.items():
            left = list(range(count))
            while left:
                still = []
                for partition in left:
                    frame = produce_frame(topic, {partition: batch})
                    errors = produce_errors(exchange(connection, frame))
                    assert errors <= RETRIED, f"Produce was answered with {errors}"
                    if errors:
                        still.append(partition)
                    elif not first_s:
                        first_s = time.monotonic()
                left = still
                assert time.monotonic() < deadline_s, f"{len(left)} of {topic} are not open"
                if left:
                    time.sleep(AGAIN_S)
    return first_s, time.monotonic()


@dataclass(frozen=True, kw_only=True)
class Start(Scenario):
    """A thousand partitions with 1 GB in them, after an orderly stop or after a kill."""

    figures: tuple[Figure, ...] = (
        Figure(name="ready_s", title="ready after", unit="s", better="lower", decimals=2),
        Figure(name="first_s", title="first record after", unit="s", better="lower", decimals=2),
        Figure(name="all_s", title="a record in each after", unit="s", better="lower", decimals=2),
        *USED,
    )
    servers: tuple[str, ...] = (KGW_BATCHES,)
    start: Literal["shared", "own", "unstarted"] = "unstarted"
    is_killed: bool = False
    is_elsewhere: bool = False
    """Whether what is started cannot see that the one before has ended: as on another machine."""

    def measure(self, stage: Stage) -> dict[str, float]:
        server = stage.server
        server.start()
        topics, before = _fill(stage)
        ended_s = time.monotonic()
        if self.is_killed:
            server.kill()
        else:
            server.stop()
            ended_s = time.monotonic()
        with TemporaryDirectory() as directory:
            with patch.dict(os.environ, {"TMPDIR": directory} if self.is_elsewhere else {}):
                server.start()
            return self._measure_from(stage, topics, before, ended_s)

    def _measure_from(
        self, stage: Stage, topics: Mapping[str, int], before: int, ended_s: float
    ) -> dict[str, float]:
        server = stage.server
        ready_s = time.monotonic()
        first_s, all_s = _write_all(stage, topics)
        written = end_offsets(server.address, topics) - before
        assert written == sum(topics.values()), f"{written} records more are there"
        return {
            "ready_s": ready_s - ended_s,
            "first_s": first_s - ended_s,
            "all_s": all_s - ended_s,
            "cpu_s": server.usage().cpu_s,
        }


QUEUE_KBYTES = 1 << 15
"""Upstream's gateway takes seconds for it, and what is queued in the end is written, too."""
OF_CONFLUENT = (MB_PER_S, RECORDS_PER_S, CPU_PER_GB, *USED)

SCENARIOS: tuple[Scenario, ...] = (
    confluent.Produce(
        name="seaweedmq/produce-1kb-4p",
        title="confluent-kafka writes 1 KB records, 4 partitions",
        what="Written at full speed, acks=all, the client's default batching.",
        limited_by=confluent.CLIENT,
        servers=OVER_SEAWEEDFS,
        figures=OF_CONFLUENT,
        queue_kbytes=QUEUE_KBYTES,
        rest_s=0.0,
    ),
    confluent.Consume(
        name="seaweedmq/consume-1kb-4p",
        title="confluent-kafka reads 1 KB records, 4 partitions",
        what="What was just written, from the start.",
        limited_by=confluent.CLIENT,
        servers=OVER_SEAWEEDFS,
        figures=OF_CONFLUENT,
        queue_kbytes=QUEUE_KBYTES,
        rest_s=0.0,
    ),
    Latency(
        name="seaweedmq/latency-10mb",
        title="franz-go at 10 MB/s, 1 KB records, 4 partitions",
        what="From when a record is due to its acknowledgement, and to when a consumer has it.",
        # Upstream's gateway takes no part: it was never seen to take 10 MB/s.
        limited_by="Processor time: an upload and an update of the filer for each chunk.",
        rate_mb_per_s=10,
        servers=KGW,
        rest_s=0.0,
        figures=(
            Figure(
                name="produce_p50_ms",
                title="p50 of the acknowledgement",
                unit="ms",
                better="lower",
                decimals=2,
            ),
            *Latency.figures,
            BENEATH_CPU,
            RSS,
            BENEATH_RSS,
        ),
    ),
    OneRecord(
        name="seaweedmq/requests-1x5",
        title="one record a request, 5 in flight on one connection",
        what="Produce requests of one record of 100 B, acks=all.",
        limited_by="Requests that wait together become one chunk: an upload and an update.",
        depth=5,
        # Nobody has tried upstream's gateway with requests of our own making.
        servers=KGW,
        figures=(*OneRecord.figures, *USED),
    ),
    Start(
        name="seaweedmq/start-1000p",
        title="1,000 partitions with 1 GB in them, after an orderly stop",
        what="Process start to the ready line, and to one record more in each partition.",
        limited_by="Five calls of the filer for each partition.",
    ),
    Start(
        name="seaweedmq/take-over-1000p",
        title="1,000 partitions with 1 GB in them, after kill -9 right behind the last record",
        what=(
            "From the kill; the lease of 10 s is in it. Nothing was saved of what producers had"
            " written, so that all of it is read again."
        ),
        limited_by="The lease, and then what is read again of each partition.",
        is_killed=True,
        is_elsewhere=True,
    ),
    Start(
        name="seaweedmq/restart-1000p",
        title="The same, started again on the same machine",
        what="From the kill; no lease is waited for.",
        limited_by="What is read again of each partition.",
        is_killed=True,
    ),
)
