"""Throughput as users of confluent-kafka in Python see it: the client costs more than a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.free_memory import REST_S
from bench.harness.scenario import Figure, Scenario
from bench.harness.servers import ONE_OF_EACH
from bench.loads import confluent
from bench.scenarios.throughput import CPU_PER_GB, MB_PER_S, RECORDS_PER_S

if TYPE_CHECKING:
    from bench.harness.scenario import Stage

PARTITIONS = 4
CLIENT = "The client, which makes and reads each record in Python on the same two cores."


@dataclass(frozen=True, kw_only=True)
class Produce(Scenario):
    """Records of 1 KB, acks=all, the client's default batching."""

    figures: tuple[Figure, ...] = (MB_PER_S, RECORDS_PER_S, CPU_PER_GB)
    rest_s: float = REST_S
    servers: tuple[str, ...] = ONE_OF_EACH
    only_writes: bool = True
    queue_kbytes: int = confluent.QUEUE_KBYTES

    def prepare(self, stage: Stage) -> None:
        confluent.create_topic(stage.server, stage.name, PARTITIONS)
        self._write(stage, 0.1)

    def measure(self, stage: Stage) -> dict[str, float]:
        return self._write(stage, stage.scale.seconds)

    def _write(self, stage: Stage, seconds: float) -> dict[str, float]:
        return confluent.produce(
            stage.server, stage.name, PARTITIONS, seconds, queue_kbytes=self.queue_kbytes
        )


@dataclass(frozen=True, kw_only=True)
class Consume(Produce):
    """What was just written, so from the page cache, once."""

    only_writes: bool = False

    def prepare(self, stage: Stage) -> None:
        super().prepare(stage)
        self._write(stage, stage.scale.seconds)

    def measure(self, stage: Stage) -> dict[str, float]:
        records = confluent.end_offsets(stage.server, stage.name, PARTITIONS)
        return confluent.consume(stage.server, stage.name, PARTITIONS, records)


SCENARIOS: tuple[Scenario, ...] = (
    Produce(
        name="confluent/produce-1kb-4p",
        title="confluent-kafka writes 1 KB records, 4 partitions",
        what="Written at full speed, the client's default batching.",
        limited_by=CLIENT,
    ),
    Consume(
        name="confluent/consume-1kb-4p",
        title="confluent-kafka reads 1 KB records, 4 partitions",
        what="Read at full speed, from the page cache.",
        limited_by=CLIENT,
    ),
)
