"""A consumer that starts from the beginning, where the page cache holds nothing of it any more.

All data files of the server are put out of the cache before, which is checked. `beside` is with
live traffic of 10 MB/s on another topic, written and read at its end, as others do meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.free_memory import REST_S
from bench.harness.scenario import Bar, Figure, Scenario
from bench.harness.servers import ALL_SERVERS, WITHOUT_SYNCED
from bench.loads import franz, page_cache

if TYPE_CHECKING:
    from bench.harness.scenario import Stage

PARTITIONS = 4
RECORD_BYTES = 1024
OLD_BYTES = 1_000_000_000
LIVE_BYTES_PER_S = 10e6
LIVE_WARM_S = 0.5
# Live traffic without the reader: longer than most servers take to read the old topic.
ALONE_S = 4.0
LIVE_LIMIT_S = 120.0

MB_PER_S = Figure(name="mb_per_s", title="MB/s of values", unit="MB/s")
CPU_PER_GB = Figure(
    name="cpu_s_per_gb", title="server CPU", unit="s/GB", better="lower", decimals=2
)


@dataclass(frozen=True, kw_only=True)
class CatchUp(Scenario):
    """Reads the whole topic once at full speed, from the disk."""

    figures: tuple[Figure, ...] = (MB_PER_S, CPU_PER_GB)
    servers: tuple[str, ...] = WITHOUT_SYNCED
    rest_s: float = REST_S

    def records(self, stage: Stage) -> int:
        """How many the topic holds: less for a warm-up."""
        return int(OLD_BYTES * min(1.0, stage.scale.seconds)) // RECORD_BYTES

    def prepare(self, stage: Stage) -> None:
        franz.create_topic(stage.server, stage.name, PARTITIONS)
        franz.produce(
            stage.server,
            stage.name,
            partitions=PARTITIONS,
            records=self.records(stage),
            batch_bytes=64 << 10,
            seconds=60,
        )
        page_cache.drop(stage.server.data_dir)

    def measure(self, stage: Stage) -> dict[str, float]:
        return self.read_old(stage)

    def read_old(self, stage: Stage) -> dict[str, float]:
        """One pass over the old topic."""
        return franz.consume(
            stage.server,
            stage.name,
            partitions=PARTITIONS,
            records=self.records(stage),
            seconds=0.001,
        )

    def finish(self, stage: Stage) -> None:
        franz.delete_topic(stage.server, stage.name)


@dataclass(frozen=True, kw_only=True)
class CatchUpBesideLive(CatchUp):
    """The same while others write and read; and what they notice of it."""

    figures: tuple[Figure, ...] = (
        MB_PER_S,
        Figure(name="live_p99_ms", title="p99 of others", unit="ms", better="lower", decimals=2),
        Figure(
            name="produce_p99_rise",
            title="p99 of others' acknowledgements, times that without",
            unit="times",
            better="lower",
            decimals=2,
        ),
        Figure(name="produce_p99_ms", title="that p99", unit="ms", better="lower", decimals=2),
    )

    def prepare(self, stage: Stage) -> None:
        live = f"{stage.name}-live"
        franz.create_topic(stage.server, live, PARTITIONS)
        franz.produce(stage.server, live, partitions=PARTITIONS, records=16 * PARTITIONS)
        super().prepare(stage)

    def measure(self, stage: Stage) -> dict[str, float]:
        live = franz.live(
            stage.server,
            f"{stage.name}-live",
            partitions=PARTITIONS,
            bytes_per_second=LIVE_BYTES_PER_S,
            seconds=LIVE_LIMIT_S,
        )
        times: dict[str, tuple[int, int]] = {}
        try:
            time.sleep(LIVE_WARM_S)
            alone_ns = time.time_ns()
            time.sleep(ALONE_S * min(1.0, stage.scale.seconds))
            began_ns = time.time_ns()
            caught_up = self.read_old(stage)
            ended_ns = time.time_ns()
            times = windows(alone_ns, began_ns, ended_ns)
        finally:
            found = franz.parts(live, times)
        return caught_up | {
            "live_p99_ms": found["beside_end_to_end_p99_ms"],
            "produce_p99_ms": found["beside_produce_p99_ms"],
            "produce_p99_rise": found["beside_produce_p99_ms"] / found["alone_produce_p99_ms"],
            "bytes": caught_up["bytes"] + found["bytes"],
            "requests": caught_up["requests"] + found["requests"],
        }

    def finish(self, stage: Stage) -> None:
        franz.delete_topic(stage.server, f"{stage.name}-live")
        super().finish(stage)


def windows(alone_ns: int, began_ns: int, ended_ns: int) -> dict[str, tuple[int, int]]:
    """The time of the read, and as much of that before it, as far as it is without the reader."""
    return {
        "alone": (max(alone_ns, began_ns - (ended_ns - began_ns)), began_ns),
        "beside": (began_ns, ended_ns),
    }


DISK = (
    "The disk and the client, which decodes what comes from it on the same two cores. The server"
    " reads past the page cache, a megabyte ahead of its reader. Profiled by itself on a quiet"
    " machine: 0.66 to 0.76 s of processor time a GB, where it was 2.5 through the cache, whose"
    " pages a virtual machine has to be given; a bare program reads 1,497 MB/s in that way."
)
SEVERAL_AHEAD = "Asking the disk for several pieces at once; a checksum that nobody waits for."
TURNS = (
    "The disk, whose syncs wait behind reads; and turns of the interpreter, of which the live"
    " traffic alone takes 0.83 to 0.94 of a core, and which the thread that reads ahead waits for."
)

SCENARIOS: tuple[Scenario, ...] = (
    CatchUp(
        name="catch_up/alone",
        title="1 GB from a cold cache",
        what="Read once from the start at full speed.",
        limited_by=DISK,
        would_lift=SEVERAL_AHEAD,
        bars={
            "strict": (Bar(figure="mb_per_s", at_least=0.9),),
            "relaxed": (Bar(figure="mb_per_s", at_least=0.9),),
            "synced": (Bar(figure="mb_per_s", at_least=1.0),),
        },
        servers=ALL_SERVERS,
    ),
    CatchUpBesideLive(
        name="catch_up/beside",
        title="1 GB from a cold cache, beside 10 MB/s of live traffic",
        what=(
            "Read once from the start at full speed while others write and read another topic."
            " Their p99 is that of the records which were due while it read; without the reader,"
            " of those in as long a time right before, 4 s at most. What a reader does to writers"
            " of the segment that it reads is not in it."
        ),
        limited_by=TURNS,
        would_lift=(
            "Less Python for each request of the live traffic; reads that the disk's scheduler puts"
            " behind syncs."
        ),
        bars={
            durability: (
                Bar(figure="mb_per_s", at_least=0.9),
                Bar(figure="produce_p99_rise", at_most=1.5, absolute=True),
            )
            for durability in ("strict", "relaxed")
        },
    ),
)
