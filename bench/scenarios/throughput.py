"""Produce and consume as fast as one franz-go process can: sizes, partitions, codecs, connections.

Values are random bytes, which no codec makes smaller, but for the rows with a codec: those carry
lines like a log's. acks=all and idempotence, the client's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.scenario import Bar, Figure, Scenario
from bench.loads import franz

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.harness.scenario import Durability, Stage

MB_PER_S = Figure(name="mb_per_s", title="MB/s of values", unit="MB/s")
RECORDS_PER_S = Figure(name="records_per_s", title="records/s", unit="/s", decimals=0)
CPU_PER_GB = Figure(
    name="cpu_s_per_gb", title="server CPU", unit="s/GB", better="lower", decimals=2
)
# A measurement writes at most so much, so that a whole run fits in the page cache and on the disk.
MOST_BYTES = 1_500_000_000
READ_BYTES = 400_000_000


def _size(size_bytes: int) -> str:
    for unit, name in ((1 << 20, "mb"), (1 << 10, "kb")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return f"{size_bytes}b"


@dataclass(frozen=True, kw_only=True)
class Produce(Scenario):
    """Records to all partitions in turn until the time is up; all must be acknowledged."""

    figures: tuple[Figure, ...] = (MB_PER_S, RECORDS_PER_S, CPU_PER_GB)
    record_bytes: int = 1024
    batch_bytes: int = 16 << 10
    partitions: int = 4
    connections: int = 1
    codec: str = "none"

    def prepare(self, stage: Stage) -> None:
        franz.create_topic(stage.server, stage.name, self.partitions)
        # Each partition has been written to: making its files is another row's business.
        franz.produce(
            stage.server,
            stage.name,
            partitions=self.partitions,
            records=self.partitions,
            record_bytes=self.record_bytes,
        )

    def measure(self, stage: Stage) -> dict[str, float]:
        return franz.produce(
            stage.server,
            stage.name,
            partitions=self.partitions,
            seconds=stage.scale.seconds,
            record_bytes=self.record_bytes,
            batch_bytes=self.batch_bytes,
            connections=self.connections,
            codec=self.codec,
            payload="random" if self.codec == "none" else "text",
            max_bytes=MOST_BYTES,
        )


@dataclass(frozen=True, kw_only=True)
class Consume(Scenario):
    """Reads what was just written, so from the page cache, again and again."""

    figures: tuple[Figure, ...] = (MB_PER_S, RECORDS_PER_S, CPU_PER_GB)
    record_bytes: int = 1024
    batch_bytes: int = 16 << 10
    partitions: int = 4
    connections: int = 1
    codec: str = "none"

    def records(self, stage: Stage) -> int:
        """How many the topic holds: less for a warm-up."""
        return int(READ_BYTES * min(1.0, stage.scale.seconds)) // self.record_bytes

    def prepare(self, stage: Stage) -> None:
        franz.create_topic(stage.server, stage.name, self.partitions)
        franz.produce(
            stage.server,
            stage.name,
            partitions=self.partitions,
            seconds=60,
            records=self.records(stage),
            record_bytes=self.record_bytes,
            batch_bytes=self.batch_bytes,
            codec=self.codec,
            payload="random" if self.codec == "none" else "text",
        )

    def measure(self, stage: Stage) -> dict[str, float]:
        return franz.consume(
            stage.server,
            stage.name,
            partitions=self.partitions,
            seconds=stage.scale.seconds,
            records=self.records(stage),
            record_bytes=self.record_bytes,
            connections=self.connections,
        )


def _bars(
    figure: str, *, strict: float, relaxed: float, synced: float
) -> Mapping[Durability, tuple[Bar, ...]]:
    return {
        "strict": (Bar(figure=figure, at_least=strict),),
        "relaxed": (Bar(figure=figure, at_least=relaxed),),
        "synced": (Bar(figure=figure, at_least=synced),),
    }


SCENARIOS: tuple[Scenario, ...] = (
    Produce(
        name="produce/1kb-16kb-4p",
        title="1 KB records, 16 KB batches, 4 partitions",
        what="Full speed over one connection.",
        limited_by="",
        bars=_bars("mb_per_s", strict=1.0, relaxed=1.3, synced=3.0),
    ),
    Consume(
        name="consume/1kb-16kb-4p",
        title="1 KB records, 16 KB batches, 4 partitions",
        what="Full speed over one connection, from the page cache.",
        limited_by="",
        bars=_bars("mb_per_s", strict=0.9, relaxed=0.9, synced=1.0),
    ),
)
