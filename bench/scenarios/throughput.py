"""Produce and consume as fast as one franz-go process can: sizes, partitions, codecs, connections.

Values are random bytes, which no codec makes smaller, but for the rows with a codec: those carry
lines like a log's. acks=all and idempotence, the client's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bench.harness.free_memory import REST_S
from bench.harness.scenario import Bar, Figure, Scenario
from bench.harness.servers import ALL_SERVERS, BUT_RELAXED, ONE_OF_EACH
from bench.loads import franz

if TYPE_CHECKING:
    from bench.harness.scenario import Durability, Stage

MB_PER_S = Figure(name="mb_per_s", title="MB/s of values", unit="MB/s")
RECORDS_PER_S = Figure(name="records_per_s", title="records/s", unit="/s", decimals=0)
CPU_PER_GB = Figure(
    name="cpu_s_per_gb", title="server CPU", unit="s/GB", better="lower", decimals=2
)
# A measurement writes at most so much, so that a whole run fits in the page cache and on the disk.
MOST_BYTES = 1_500_000_000
READ_BYTES = 300_000_000
MOST_PARTITIONS = 1_000
SYNCED_BAR = 3.0
"""Of batches of 16 KB, beside a Kafka that syncs each of them."""


def _size(size_bytes: int, separator: str = "") -> str:
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{separator}{name}"
    return f"{size_bytes}{separator}B"


class _Shape(NamedTuple):
    """What tells rows apart, and what they are called by it: `1kb-16kb-4p`."""

    record_bytes: int
    batch_bytes: int
    partitions: int
    connections: int
    codec: str

    @property
    def name(self) -> str:
        parts = [_size(self.record_bytes), _size(self.batch_bytes), f"{self.partitions}p"]
        if self.connections > 1:
            parts.append(f"{self.connections}c")
        if self.codec != "none":
            parts.append(self.codec)
        return "-".join(parts).lower()

    @property
    def title(self) -> str:
        records = f"{_size(self.record_bytes, ' ')} records"
        batches = f"{_size(self.batch_bytes, ' ')} batches"
        partitions = f"{self.partitions:,} partition{'s' * (self.partitions > 1)}"
        parts = [records, batches, partitions]
        if self.connections > 1:
            parts.append(f"{self.connections} connections")
        if self.codec != "none":
            parts.append(self.codec)
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class _Throughput(Scenario):
    """Records over all partitions of a topic in turn."""

    figures: tuple[Figure, ...] = (MB_PER_S, RECORDS_PER_S, CPU_PER_GB)
    rest_s: float = REST_S
    record_bytes: int = 1024
    batch_bytes: int = 16 << 10
    partitions: int = 4
    connections: int = 1
    codec: str = "none"

    def partitions_at(self, stage: Stage) -> int:
        """How many partitions: fewer of many where the scale is small."""
        return stage.scale.count(self.partitions, at_least=min(self.partitions, 10))

    def write(self, stage: Stage, **chosen: franz.Option) -> dict[str, float]:
        """Writes to all partitions in turn."""
        return franz.produce(
            stage.server,
            stage.name,
            partitions=self.partitions_at(stage),
            record_bytes=self.record_bytes,
            batch_bytes=self.batch_bytes,
            codec=self.codec,
            payload="random" if self.codec == "none" else "text",
            **chosen,
        )

    def finish(self, stage: Stage) -> None:
        franz.delete_topic(stage.server, stage.name)


@dataclass(frozen=True, kw_only=True)
class Produce(_Throughput):
    """Writes until the time is up; everything must be acknowledged."""

    only_writes: bool = True

    def prepare(self, stage: Stage) -> None:
        franz.create_topic(stage.server, stage.name, self.partitions_at(stage))
        # Making a partition's files is another row's business. Twice, and more than the 4 KB after
        # which Kafka looks for the index that it maps: its first page costs as much as the disk's
        # read-ahead, where that is large, which is 15 ms a partition with 8 MB.
        per_partition = 1 + 4096 // self.record_bytes
        for _ in range(2):
            self.write(stage, records=self.partitions_at(stage) * per_partition, seconds=60)

    def measure(self, stage: Stage) -> dict[str, float]:
        return self.write(
            stage,
            seconds=stage.scale.seconds,
            connections=self.connections,
            max_bytes=MOST_BYTES,
        )


@dataclass(frozen=True, kw_only=True)
class Consume(_Throughput):
    """Reads what was just written, so from the page cache, again and again."""

    def records(self, stage: Stage) -> int:
        """How many the topic holds: less for a warm-up."""
        return int(READ_BYTES * min(1.0, stage.scale.seconds)) // self.record_bytes

    def prepare(self, stage: Stage) -> None:
        franz.create_topic(stage.server, stage.name, self.partitions_at(stage))
        self.write(stage, seconds=60, records=self.records(stage))

    def measure(self, stage: Stage) -> dict[str, float]:
        return franz.consume(
            stage.server,
            stage.name,
            partitions=self.partitions_at(stage),
            seconds=stage.scale.seconds,
            records=self.records(stage),
            record_bytes=self.record_bytes,
            connections=self.connections,
        )


class Limit(NamedTuple):
    """What a profile shows, and what it would take to do better."""

    profile: str
    would_lift: str = ""


def _bars(
    figure: str, *, strict: float | None, relaxed: float | None, synced: float | None
) -> dict[Durability, tuple[Bar, ...]]:
    wanted: dict[Durability, float | None] = {
        "strict": strict,
        "relaxed": relaxed,
        "synced": synced,
    }
    return {
        durability: (Bar(figure=figure, at_least=ratio),)
        for durability, ratio in wanted.items()
        if ratio is not None
    }


def _produce(
    strict: float | None = None,
    relaxed: float | None = None,
    *,
    synced: float = 1.0,
    limit: Limit,
    record_bytes: int = 1 << 10,
    batch_bytes: int = 16 << 10,
    partitions: int = 4,
    connections: int = 1,
    codec: str = "none",
    figure: str = "mb_per_s",
) -> Produce:
    """A row; the first two arguments are its bars."""
    shape = _Shape(record_bytes, batch_bytes, partitions, connections, codec)
    return Produce(
        name=f"produce/{shape.name}",
        title=shape.title,
        what="Written at full speed.",
        limited_by=limit.profile,
        would_lift=limit.would_lift,
        bars=_bars(figure, strict=strict, relaxed=relaxed, synced=synced),
        servers=ALL_SERVERS if codec == "none" else BUT_RELAXED,
        # Making a thousand partitions alone takes Kafka most of a minute.
        dear=("kafka-synced",) if partitions == MOST_PARTITIONS else (),
        record_bytes=record_bytes,
        batch_bytes=batch_bytes,
        partitions=partitions,
        connections=connections,
        codec=codec,
    )


def _consume(
    *,
    limit: Limit,
    bar: float | None = None,
    record_bytes: int = 1 << 10,
    batch_bytes: int = 16 << 10,
    partitions: int = 4,
    connections: int = 1,
    codec: str = "none",
    figure: str = "mb_per_s",
) -> Consume:
    """A row; where it has a bar, the server's processor time has one, too."""
    shape = _Shape(record_bytes, batch_bytes, partitions, connections, codec)
    bars = _bars(figure, strict=bar, relaxed=bar, synced=None if bar is None else 1.0)
    cheap = Bar(figure="cpu_s_per_gb", at_most=1.0)
    return Consume(
        name=f"consume/{shape.name}",
        title=shape.title,
        what="Read at full speed, from the page cache.",
        limited_by=limit.profile,
        would_lift=limit.would_lift,
        bars={durability: (*all_bars, cheap) for durability, all_bars in bars.items()},
        servers=ONE_OF_EACH if bar is None else ALL_SERVERS,
        record_bytes=record_bytes,
        batch_bytes=batch_bytes,
        partitions=partitions,
        connections=connections,
        codec=codec,
    )


ONE_CORE = (
    "Less Python for each batch, or several gateways: one has one core for it. Clients that fill"
    " larger batches are in the rows of 1 MB."
)
PER_REQUEST = Limit(
    "The interpreter: a request with 16 KB for each of four partitions keeps the loop's thread for"
    " 97 to 118 µs, network not included (relaxed), in many small parts: checking, appending,"
    " writing, noting, answering. And the page cache, see the row of 1 MB: on a machine whose host"
    " had taken free memory back, writing into it was 134 of the 300 µs that such a request kept"
    " the thread for.",
    ONE_CORE,
)
ONE_PARTITION = Limit(
    "The interpreter: a request carries one small batch. Each is checked, appended, noted and"
    " answered; strict, each batch is written twice, to the journal and to its segment, and"
    " synced.",
    ONE_CORE,
)
PER_PARTITION = Limit(
    "The interpreter: 18 to 20 µs for each batch of a request with a hundred of them, network not"
    " included; each is checked, placed, written and noted by itself.",
    ONE_CORE,
)
MANY_PARTITIONS = Limit(
    "A thousand files, each with 1 to 6 KB in a request: each is written by itself, and synced when"
    " the journal's 16 MB are full after three requests (strict), ten times a second (relaxed), and"
    " by each checkpoint of 128 MB. On busy cores a batch of 6 KB costs 50 to 65 µs; in a request"
    " with a hundred batches each costs 18 to 20.",
    "A larger journal; the loop writing beside relaxed syncs, where the thread has to get the"
    " interpreter back after each of a thousand writes; fewer checkpoints.",
)
PAGE_CACHE = Limit(
    "The page cache: with four connections two thirds of the samples are copies into it, with one"
    " connection two fifths; a bare program pays 0.2 s/GB for them in memory that is at hand. And"
    " the client, on the same two cores.",
    "Writing past the page cache, which readers at the tail would then need another cache for.",
)
PER_BYTE = Limit(
    "The client, which makes and compresses the batches on the same two cores.",
    "A client that takes less of the cores, or cores of its own for it.",
)
PER_ANSWER = Limit(
    "What is read for the first time: each partition has 300 KB, so that one pass is a thousand"
    " first reads. What costs is the opening of files, and one partition's part of an answer after"
    " the other, each found, made and verified by itself."
)
COPYING = Limit(
    "Two copies of each byte, one checksum over it, and the client on the same two cores. A bare"
    " sender needs 0.30 s a GB for these over loopback, and 0.16 to 0.20 with sendfile, by which"
    " Kafka sends from the page cache what it has not looked at.",
    "Sending from the page cache without looking, as Kafka does with sendfile; a checksum that is"
    " wrong would then be found by the client.",
)
DECODING = Limit(
    "The client: it decompresses and decodes every record on the same two cores. What the server"
    " does is the same as for batches without a codec.",
    COPYING.would_lift,
)
MANY_RECORDS = Limit(
    "The client, which decodes ten times as many records on the same two cores. What the server"
    " uses beyond Kafka is the same as for 1 KB: two copies of each byte and a checksum over it,"
    " which Kafka leaves out by sendfile.",
    COPYING.would_lift,
)

SCENARIOS: tuple[Scenario, ...] = (
    _produce(1.0, 1.3, synced=SYNCED_BAR, limit=PER_REQUEST),
    _produce(1.0, 1.3, synced=SYNCED_BAR, connections=4, limit=PER_REQUEST),
    _produce(batch_bytes=256 << 10, limit=PAGE_CACHE),
    _produce(0.9, 1.0, batch_bytes=1 << 20, limit=PAGE_CACHE),
    _produce(0.9, 1.0, batch_bytes=1 << 20, connections=4, limit=PAGE_CACHE),
    _produce(1.5, 2.5, synced=SYNCED_BAR, partitions=1, limit=ONE_PARTITION),
    _produce(
        1.0,
        1.3,
        synced=SYNCED_BAR,
        record_bytes=100,
        figure="records_per_s",
        limit=PER_REQUEST,
    ),
    _produce(record_bytes=10 << 10, synced=SYNCED_BAR, limit=PER_REQUEST),
    _produce(partitions=10, synced=SYNCED_BAR, limit=PER_PARTITION),
    _produce(1.0, 1.5, partitions=100, synced=SYNCED_BAR, limit=PER_PARTITION),
    _produce(1.0, 1.5, partitions=MOST_PARTITIONS, synced=SYNCED_BAR, limit=MANY_PARTITIONS),
    *(
        _produce(batch_bytes=256 << 10, codec=codec, limit=PER_BYTE)
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
    _consume(bar=0.9, limit=COPYING),
    _consume(bar=0.9, connections=4, limit=COPYING),
    _consume(bar=0.9, record_bytes=100, figure="records_per_s", limit=MANY_RECORDS),
    _consume(record_bytes=10 << 10, limit=COPYING),
    _consume(partitions=1, limit=COPYING),
    _consume(batch_bytes=256 << 10, limit=COPYING),
    _consume(batch_bytes=1 << 20, limit=COPYING),
    _consume(partitions=10, limit=COPYING),
    _consume(partitions=100, limit=COPYING),
    _consume(partitions=MOST_PARTITIONS, limit=PER_ANSWER),
    *(
        _consume(batch_bytes=256 << 10, codec=codec, limit=DECODING)
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
)
