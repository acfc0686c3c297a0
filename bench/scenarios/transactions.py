"""Transactions: what a record costs more in them, how many a second, and how long one takes.

franz-go producers, each with a transactional id and connections of its own, in one process. Each
goes on when its transaction is committed. All that a transaction has is sent at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.harness.free_memory import REST_S
from bench.harness.scenario import Bar, Figure, Scenario
from bench.harness.servers import ALL_SERVERS, BUT_RELAXED, WITHOUT_SYNCED
from bench.loads import franz

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.harness.scenario import Durability, Stage

PARTITIONS = 10
WARM_S = 0.3
# Of each of the two parts; together they fit in the page cache.
MOST_BYTES = 700_000_000
COST_BAR = 1.2
"""Of a record in a transaction, by one that is written without."""

PER_S = Figure(name="transactions_per_s", title="transactions/s", unit="/s", decimals=0)
RECORDS_PER_S = Figure(name="records_per_s", title="records/s", unit="/s", decimals=0)
CPU = Figure(
    name="cpu_us_a_transaction", title="server CPU a transaction", unit="µs", better="lower"
)


def _cost(name: str, title: str) -> Figure:
    return Figure(name=name, title=title, unit="times", better="lower", decimals=2)


def _ms(name: str, title: str) -> Figure:
    return Figure(name=name, title=title, unit="ms", better="lower", decimals=2)


@dataclass(frozen=True, kw_only=True)
class _Transactions(Scenario):
    """Records of 1 KB over all partitions in turn."""

    servers: tuple[str, ...] = ALL_SERVERS
    rest_s: float = REST_S
    producers: int = 1
    records: int = 1
    reads: bool = False
    """Whether somebody reads what is committed meanwhile."""

    def prepare(self, stage: Stage) -> None:
        franz.create_topic(stage.server, stage.name, PARTITIONS)
        self.write(stage, seconds=WARM_S)

    def write(self, stage: Stage, **chosen: franz.Option) -> dict[str, float]:
        """Writes transactions; adds the server's processor time for each."""
        before_s = stage.server.usage().cpu_s
        figures = franz.transact(
            stage.server,
            stage.name,
            partitions=PARTITIONS,
            connections=self.producers,
            transaction_records=self.records,
            max_bytes=MOST_BYTES,
            read=self.reads,
            **chosen,
        )
        cpu_s = stage.server.usage().cpu_s - before_s
        return figures | {"cpu_us_a_transaction": 1e6 * cpu_s / figures["transactions"]}

    def finish(self, stage: Stage) -> None:
        franz.delete_topic(stage.server, stage.name)


@dataclass(frozen=True, kw_only=True)
class Cost(_Transactions):
    """Beside idempotent producers that write the same records, and wait where others commit."""

    figures: tuple[Figure, ...] = (
        RECORDS_PER_S,
        Figure(name="plain_records_per_s", title="records/s without", unit="/s", decimals=0),
        _cost("time_times_plain", "time a record, times that without"),
        CPU,
        Figure(
            name="plain_cpu_us_a_transaction",
            title="server CPU for as many records without",
            unit="µs",
            better="lower",
        ),
        _cost("cpu_times_plain", "server CPU a record, times that without"),
    )
    records: int = 100

    def measure(self, stage: Stage) -> dict[str, float]:
        seconds = stage.scale.seconds
        # Idempotent producers first: a partition has producers of both kinds then.
        plain = self.write(stage, seconds=seconds, transactional=False)
        figures = self.write(stage, seconds=seconds)
        compared = ("records_per_s", "cpu_us_a_transaction")
        return (
            figures
            | {f"plain_{name}": plain[name] for name in compared}
            | {name: plain[name] + figures[name] for name in ("bytes", "requests")}
            | {
                "time_times_plain": plain["records_per_s"] / figures["records_per_s"],
                "cpu_times_plain": figures["cpu_us_a_transaction"] / plain["cpu_us_a_transaction"],
            }
        )


@dataclass(frozen=True, kw_only=True)
class Rate(_Transactions):
    """Producers that each write one record and commit it, again and again."""

    figures: tuple[Figure, ...] = (
        PER_S,
        _ms("transaction_p50_ms", "p50, record and commit"),
        _ms("transaction_p99_ms", "p99, record and commit"),
        CPU,
    )
    producers: int = 100

    def measure(self, stage: Stage) -> dict[str, float]:
        return self.write(stage, seconds=stage.scale.seconds)


@dataclass(frozen=True, kw_only=True)
class Latency(_Transactions):
    """One producer beside a reader of what is committed, in the same process."""

    figures: tuple[Figure, ...] = (
        _ms("commit_p50_ms", "p50 of the commit"),
        _ms("commit_p99_ms", "p99 of the commit"),
        _ms("end_to_end_p50_ms", "p50 until it is read"),
        _ms("end_to_end_p99_ms", "p99 until it is read"),
        PER_S,
        CPU,
    )
    reads: bool = True

    def measure(self, stage: Stage) -> dict[str, float]:
        return self.write(stage, seconds=stage.scale.seconds)


PER_PARTITION = (
    "The interpreter, and syncs in sequence. A transaction is two requests, two rows of the state"
    " store and twenty appends, ten of which are markers, where the same records without one are a"
    " request and ten appends; and it waits four times for the disk, one after the other (the row"
    " that takes the partitions in, the batches, the decision, the markers), where the other waits"
    " once. Each wait also wakes a thread and the loop."
)
FEWER_WAITS = (
    "Batches that are written while the row with their partitions is: a crash in between would"
    " leave transactions in the log that no coordinator knows, and a start would have to look for"
    " them in every partition. A commit of the state store that is one call into its thread."
)
TWO_REQUESTS = (
    "The interpreter: two requests, two rows and two appends a transaction. What comes at the same"
    " time shares the syncs, so that a hundred producers need a tenth of one each."
)
ONE_CORE = "Less Python for each request; several gateways, each of which has a core for its own."
WAITS = (
    "Syncs in sequence, each with the hand-overs to a thread and back: a commit waits for one, the"
    " decision; until it is read it is four."
)

OF_COST: Mapping[Durability, tuple[Bar, ...]] = {
    "strict": tuple(
        Bar(figure=figure, at_most=COST_BAR, absolute=True)
        for figure in ("time_times_plain", "cpu_times_plain")
    ),
}

SCENARIOS: tuple[Scenario, ...] = (
    *(
        Cost(
            name=f"transactions/1kb-100r-10p{f'-{producers}c' if producers > 1 else ''}",
            title=f"100 records of 1 KB to 10 partitions, {producers} producer"
            f"{'s' if producers > 1 else ''}",
            what="Written, acknowledged and committed, at full speed.",
            limited_by=PER_PARTITION,
            would_lift=FEWER_WAITS,
            bars=OF_COST,
            servers=WITHOUT_SYNCED,
            producers=producers,
        )
        for producers in (1, 4)
    ),
    Rate(
        name="transactions/1kb-1r-10p-100c",
        title="one record of 1 KB, 100 producers",
        what="Written, acknowledged and committed, at full speed.",
        limited_by=TWO_REQUESTS,
        would_lift=ONE_CORE,
        bars={"synced": (Bar(figure="transactions_per_s", at_least=1.0),)},
    ),
    Latency(
        name="transactions/latency",
        title="one record of 1 KB, one producer, one reader",
        what="From the first record of a transaction, and from EndTxn, on.",
        limited_by=WAITS,
        would_lift=FEWER_WAITS,
        bars={
            "synced": tuple(
                Bar(figure=figure, at_most=1.0) for figure in ("commit_p50_ms", "end_to_end_p50_ms")
            )
        },
        servers=BUT_RELAXED,
    ),
)
