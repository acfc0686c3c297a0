"""From when a record is due to when a consumer has it, at a rate that is held.

One franz-go producer and one consumer in the same process, linger 0. Each value holds the time at
which it was due to be sent, so that a server that holds the sender up does not hide what it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.free_memory import REST_S
from bench.harness.scenario import Bar, Figure, Scenario
from bench.loads import franz

if TYPE_CHECKING:
    from bench.harness.scenario import Durability, Stage

PARTITIONS = 4
RECORD_BYTES = 1024


def _quantile(name: str, title: str) -> Figure:
    return Figure(name=name, title=title, unit="ms", better="lower", decimals=2)


@dataclass(frozen=True, kw_only=True)
class Latency(Scenario):
    """Records of 1 KB to four partitions, evenly spaced."""

    figures: tuple[Figure, ...] = (
        _quantile("end_to_end_p50_ms", "p50"),
        _quantile("end_to_end_p99_ms", "p99"),
        _quantile("end_to_end_p999_ms", "p99.9"),
        _quantile("produce_p99_ms", "p99 of the acknowledgement"),
        Figure(name="mb_per_s", title="rate reached", unit="MB/s"),
        Figure(name="cpu_s", title="server CPU", unit="s", better="lower", decimals=2),
    )
    rest_s: float = REST_S
    rate_mb_per_s: int

    def prepare(self, stage: Stage) -> None:
        franz.create_topic(stage.server, stage.name, PARTITIONS)
        franz.produce(stage.server, stage.name, partitions=PARTITIONS, records=16 * PARTITIONS)

    def measure(self, stage: Stage) -> dict[str, float]:
        return franz.latency(
            stage.server,
            stage.name,
            partitions=PARTITIONS,
            record_bytes=RECORD_BYTES,
            batch_bytes=1 << 20,
            bytes_per_second=self.rate_mb_per_s * 1e6,
            seconds=2 * stage.scale.seconds,
        )

    def finish(self, stage: Stage) -> None:
        franz.delete_topic(stage.server, stage.name)


def _bars(**ratios: tuple[float | None, float]) -> dict[Durability, tuple[Bar, ...]]:
    """Of p50 and p99, by durability."""
    figures = ("end_to_end_p50_ms", "end_to_end_p99_ms")
    bars: dict[Durability, tuple[Bar, ...]] = {}
    for durability in ("strict", "relaxed", "synced"):
        wanted = zip(figures, ratios[durability], strict=True)
        bars[durability] = tuple(
            Bar(figure=figure, at_most=ratio) for figure, ratio in wanted if ratio is not None
        )
    return bars


WAKE_UPS = (
    "Hand-overs: a record wakes the gateway, strict the disk, the parked fetch and the client in"
    " turn, on cores that are mostly asleep. A Fetch that waits and is answered is 68 µs of Python;"
    " a write of 4 KB and its sync by a thread take 127 µs."
)
GROUPS = (
    " Strict, one group is written and synced at a time, by one thread: an append waits for the"
    " sync before its own, then for its group to be written and synced. To write the next groups"
    " while one is synced gave nothing (decisions 67 and 81)."
)
LESS_OF_THE_LOOP = " Strict: less Python for each group that is written and answered."
FEWER_HAND_OVERS = (
    " Strict: a disk that syncs faster, or acknowledging before the sync, as Kafka does; a sync in"
    " the loop's own thread would hold it up."
)
SLOW_SYNCS = (
    " For the slowest hundredth: a disk with fewer slow syncs of its own, which are what they meet."
)
FEWER_TURNS = (
    "Relaxed: fewer turns of the interpreter a request; a produce takes the loop two and the thread"
    " that writes one, the fetch that waits for it one."
)
TURNS = (
    "The tail is turns on two busy cores; strict, also syncs of the journal beside segments that"
    " are written. In a bare program that does the same the slowest thousandth takes 1.2 to 1.9 ms,"
    " and took 8 to 13 before segments went to the disk as they grow."
)

SCENARIOS: tuple[Scenario, ...] = (
    Latency(
        name="latency/1mb",
        title="End to end at 1 MB/s",
        what="1,000 records of 1 KB a second.",
        limited_by=WAKE_UPS,
        would_lift=FEWER_TURNS + FEWER_HAND_OVERS + SLOW_SYNCS,
        bars=_bars(strict=(1.5, 1.0), relaxed=(1.0, 1.0), synced=(1.0, 1.0)),
        rate_mb_per_s=1,
    ),
    Latency(
        name="latency/10mb",
        title="End to end at 10 MB/s",
        what="10,000 records of 1 KB a second.",
        limited_by=WAKE_UPS + GROUPS,
        would_lift=FEWER_TURNS + LESS_OF_THE_LOOP + SLOW_SYNCS,
        bars=_bars(strict=(1.5, 1.0), relaxed=(1.0, 1.0), synced=(1.0, 1.0)),
        rate_mb_per_s=10,
    ),
    Latency(
        name="latency/50mb",
        title="End to end at 50 MB/s",
        what="50,000 records of 1 KB a second.",
        limited_by=TURNS,
        would_lift="Less Python for each batch, so that turns are shorter; a core for the syncs.",
        bars=_bars(strict=(None, 0.5), relaxed=(None, 0.5), synced=(1.0, 1.0)),
        rate_mb_per_s=50,
    ),
)
