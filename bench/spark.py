"""Spark on a gateway: ways of reading beside each other, and the pipeline's jobs, in one run.

    scripts/bench --spark [--runs N] [--share S] [--only PATTERN...] [--jars DIR]

One gateway, one session with `local[2]`, both on this machine. Every way reads the same topics in
turn, so that a busy moment meets all of them; each has been run once before, for the JVM's sake.
Figures are medians of the runs, with the lowest and the highest.

    kafka          Spark's own source with its default options, to Parquet
    kafka-tuned    the same with the options that let it read fast
    kgw            format("kgw"), to Parquet
    archive        the archive job: Parquet files of its own, synced, with checksums, and a commit
    *-zstd         Parquet in zstd, as the archive has it, and not in Spark's default, snappy
    *-noop         the same without writing anything
    compact        of an archive, in which about half of the records have a later one of their key
    merge          of an archive in files of a sixteenth of the target

Beside each: processor time of Spark (driver, JVM, Python workers) and of the gateway, and the most
memory that Spark's processes had at once.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.machine import Meanwhile, Moment, describe
from bench.harness.report import number, table
from bench.harness.runner import say
from kgw.client import AdminClient, NewRecord, Producer
from kgw.pipeline.archive.archived_topics import ArchivedTopic, archived_topic_ids
from kgw.pipeline.archive.audit import audit
from kgw.pipeline.archive.entry import DataFile
from kgw.pipeline.archive.units import Sizes
from kgw.pipeline.arrow.encode import encode_batches
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs import compact, merge
from kgw.pipeline.jobs.archive import ArchiveJob, ArchiveOptions
from kgw.pipeline.jobs.backfill import Backfill
from kgw.pipeline.jobs.backfill import run as run_backfill
from kgw.pipeline.jobs.running import SparkRunner
from kgw.pipeline.session import session
from kgw.pipeline.wire import WireClient
from kgw.records.batch import Compression
from kgw.testing.process import GatewayProcess, process_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from pyspark.sql import DataFrame, SparkSession

    from kgw.pipeline.arrow.encode import EncodedBatch
    from kgw.pipeline.jobs.backfill import WrittenPartition

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 4
BATCH_BYTES = 1_000_000
NOW_MS = 1_700_000_000_000
TUNED = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.receive.buffer.bytes": str(4 << 20),
}
LOOK_EVERY_S = 0.25
JOBS = frozenset({"archive", "backfill", "audit", "compact", "merge"})


TO_PARQUET = ("kafka", "kafka-tuned", "kafka-tuned-zstd", "kgw", "archive")


class Topic(NamedTuple):
    """What a topic is filled with."""

    name: str
    records: int
    value_bytes: int
    compression: Compression = Compression.NONE
    batch_records: int | None = None
    """None: as many as go into a megabyte."""
    ways: tuple[str, ...] = ("kafka-tuned", "kgw", "archive")
    keys: int | None = None
    """How many there are in a partition, taken at random; None: each record has its own."""


TOPICS = (
    Topic(
        "100b",
        2_000_000,
        100,
        ways=(*TO_PARQUET, "kafka-tuned-noop", "kgw-noop"),
    ),
    Topic(
        "1kb",
        1_000_000,
        1_000,
        ways=(*TO_PARQUET, "kafka-tuned-noop", "kgw-noop"),
    ),
    Topic("222b", 2_000_000, 222, ways=("kafka-tuned", "kgw", "archive", "backfill", "audit")),
    Topic("222b-keys", 4_000_000, 222, ways=("compact", "merge"), keys=580_000),
    Topic("100b-zstd", 2_000_000, 100, Compression.ZSTD),
    Topic("1kb-lz4", 1_000_000, 1_000, Compression.LZ4),
    Topic("100b-20", 1_000_000, 100, Compression.NONE, 20),
    Topic("100b-1", 200_000, 100, Compression.NONE, 1),
)


class Bar(NamedTuple):
    """What a way is held to: times the rate of another one, or records a second."""

    topic: str
    way: str
    at_least: float
    beside: str | None = None


BARS = (
    Bar("100b", "kgw", 1.1, "kafka-tuned"),
    Bar("1kb", "kgw", 0.8, "kafka-tuned"),
    Bar("100b", "archive", 2.0, "kafka-tuned"),
    Bar("1kb", "archive", 2.0, "kafka-tuned"),
    Bar("222b", "backfill", 0.5e6),
    Bar("222b", "audit", 2e6),
    Bar("222b-keys", "compact", 2e6),
)


@dataclass
class Measured:
    """One run of a way."""

    topic: str
    way: str
    run: int
    records_per_s: float
    spark_cpu_s: float
    gateway_cpu_s: float
    spark_mb: float
    stolen_share: float


# --- processes -----------------------------------------------------------------------------------


def _stat(pid: int) -> tuple[int, float, int]:
    """Return a process's parent, its processor time with that of ended children, and its pages."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = sum(map(int, fields[11:15]))
    return int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"), int(fields[21])


class SparkProcesses:
    """This process and what it has started, but for the gateway: the most memory they had."""

    def __init__(self, gateway_pid: int) -> None:
        self._gateway_pid = gateway_pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, self.look()[1])
            if self._ended.wait(LOOK_EVERY_S):
                return

    def look(self) -> tuple[float, int]:
        """Return processor time in seconds, and memory in bytes."""
        parents, used = {}, {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                pid = int(path.name)
                parents[pid], cpu_s, pages = _stat(pid)
                used[pid] = (cpu_s, pages)
            except (OSError, IndexError, ValueError):  # it has ended
                continue
        cpu_s, pages = 0.0, 0
        for pid, (seconds, held) in used.items():
            above = pid
            while above > 1 and above not in {os.getpid(), self._gateway_pid}:
                above = parents.get(above, 0)
            if above == os.getpid():
                cpu_s += seconds
                pages += held
        return cpu_s, pages * os.sysconf("SC_PAGE_SIZE")


# --- topics --------------------------------------------------------------------------------------


def make_rows(topic: Topic, count: int, first: int) -> pa.RecordBatch:
    """Return lines of words of the topic's size, each a bit longer or shorter; keys of 12 bytes."""
    random = Random(first)
    words = [bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(400)]
    text = b" ".join(random.choices(words, k=60_000))
    values = []
    for _ in range(count):
        start = random.randrange(len(text) - 2 * topic.value_bytes)
        values.append(text[start : start + topic.value_bytes + random.randint(-8, 8)])
    numbers = (
        range(first, first + count)
        if topic.keys is None
        else random.choices(range(topic.keys), k=count)
    )
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"key-%08d" % number for number in numbers], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([NOW_MS + number // 7 for number in range(count)], pa.int64()),
        ],
        names=["key", "value", "timestamp_ms"],
    )


def encoded(topic: Topic, rows: pa.RecordBatch) -> Iterator[EncodedBatch]:
    """Yield batches of as many records as the topic wants."""
    step = topic.batch_records or len(rows)
    for start in range(0, len(rows), step):
        yield from encode_batches(
            rows.slice(start, step), compression=topic.compression, max_batch_bytes=BATCH_BYTES
        )


def fill(wire: WireClient, topic: Topic, records: int) -> None:
    """Create a topic and write its records."""
    wire.call(AdminClient(wire.client).create_topic(topic.name, partitions=PARTITIONS))
    each = records // PARTITIONS
    at_once = min(each, 50_000_000 // topic.value_bytes)

    async def write() -> None:
        async with Producer(wire.client) as producer:
            for partition in range(PARTITIONS):
                for first in range(0, each, at_once):
                    rows = make_rows(topic, min(at_once, each - first), first)
                    answers = [
                        await producer.send_encoded(
                            topic.name, partition, one.data, one.record_count
                        )
                        for one in encoded(topic, rows)
                    ]
                    for answer in answers:
                        await answer

    wire.call(write())


# --- ways ----------------------------------------------------------------------------------------


class Work(NamedTuple):
    """What is timed, and what says afterwards how many records it has come to."""

    run: Callable[[], object]
    counted: Callable[[], int]


class Ways:
    """What is measured."""

    def __init__(
        self, spark: SparkSession, wire: WireClient, bootstrap: str, directory: Path
    ) -> None:
        self._spark = spark
        self._wire = wire
        self._bootstrap = bootstrap
        self._directory = directory
        self._runner = SparkRunner(spark, "bench")
        self._backfills = 0

    def prepare(self, way: str, topic: Topic) -> Work:
        """Return what is to be measured, when what it needs is there."""
        out = self._directory / "out"
        shutil.rmtree(out, ignore_errors=True)
        if way in JOBS:
            return self._job(way, topic, out)
        frame = self._frame(way, topic)
        if way.endswith("-noop"):
            # Nothing is left of it that could be counted.
            nowhere = frame.write.format("noop").mode("overwrite")
            return Work(nowhere.save, lambda: self.records(topic))
        codec = "zstd" if way.endswith("-zstd") else "snappy"
        writer = frame.write.option("compression", codec)
        return Work(lambda: writer.parquet(str(out)), lambda: parquet_rows(out))

    def _job(self, way: str, topic: Topic, out: Path) -> Work:
        if way == "archive":
            return Work(lambda: self._archive(topic, out), lambda: parquet_rows(out))
        self._archive(topic, out, 16 if way == "merge" else 1)
        (topic_id,) = archived_topic_ids(out, topic.name)
        life = ArchivedTopic(out, topic.name, topic_id)
        generation = life.generation
        if way == "compact":
            return self._compact(life)
        if way == "merge":
            return Work(lambda: self._merge(life), lambda: archived_rows(life))
        if way == "audit":
            return Work(lambda: self._audit(generation, topic_id), lambda: parquet_rows(out))
        self._backfills += 1
        again = topic._replace(name=f"{topic.name}-again-{self._backfills}")
        admin = AdminClient(self._wire.client)
        self._wire.call(admin.create_topic(again.name, partitions=PARTITIONS))
        asked = Backfill(Cluster(self._bootstrap), again.name, generation, topic_id, again.name)
        # A marker behind each transaction has an offset, too.
        written: list[WrittenPartition] = []
        return Work(
            lambda: written.extend(run_backfill(self._wire, asked, self._runner)),
            lambda: sum(one.records for one in written),
        )

    def _frame(self, way: str, topic: Topic) -> DataFrame:
        reader = self._spark.read.format("kgw" if way.startswith("kgw") else "kafka")
        options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "subscribe": topic.name,
            "startingOffsets": "earliest",
        }
        if way.startswith("kafka-tuned"):
            options |= TUNED
        return reader.options(**options).load()

    def records(self, topic: Topic) -> int:
        """Return how many records a topic has."""
        bounds = self._wire.bounds(topic.name, range(PARTITIONS))
        return sum(one.latest - one.earliest for one in bounds.values())

    def _archive(self, topic: Topic, out: Path, files: int = 1) -> None:
        """Archive a topic, in so many files instead of one."""
        sizes = Sizes(file_bytes=Sizes().file_bytes // files)
        job = ArchiveJob(
            self._wire,
            Cluster(self._bootstrap),
            out,
            self._runner,
            ArchiveOptions(group=None, sizes=sizes),
            now_ms=now_ms,
        )
        job.run_once(topic.name)

    def _compact(self, life: ArchivedTopic) -> Work:
        settings = compact.Settings(life, 0, 512 << 20, Sizes())
        done: list[compact.Compacted] = []

        def run() -> None:
            dues = compact.plan(life.log.read().coverage, min_dirty_ratio=0.0)
            done.extend(compact.run(settings, dues, self._runner, now_ms=now_ms))

        return Work(run, lambda: archived_rows(life) + sum(one.fallen for one in done))

    def _merge(self, life: ArchivedTopic) -> None:
        groups = merge.plan_life(life, Sizes().file_bytes)
        merge.run(life, groups, self._runner, sizes=Sizes(), now_ms=now_ms)

    def _audit(self, generation: Path, topic_id: UUID) -> None:
        threads = len(os.sched_getaffinity(0))
        findings = list(audit(generation, topic_id, level=2, threads=threads))
        if findings:
            raise ValueError(f"the audit finds {findings}")


def now_ms() -> int:
    """Return the time."""
    return int(time.time() * 1000)


def archived_rows(life: ArchivedTopic) -> int:
    """Return how many records the files have that an archive's log names."""
    partitions = life.log.read().coverage.partitions.values()
    pieces = (piece for covered in partitions for piece in covered.pieces)
    return sum(piece.rows for piece in pieces if isinstance(piece, DataFile))


def parquet_rows(directory: Path) -> int:
    """Return how many rows the files below a directory have."""
    return sum(pq.read_metadata(one).num_rows for one in directory.rglob("*.parquet"))


def command_s(*arguments: str) -> float:
    """Return how long a command of kgw takes, from its start to its end."""
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-m", "kgw", *arguments], check=True, capture_output=True)
    return time.monotonic() - began_s


def measure_commands(wire: WireClient, bootstrap: str, directory: Path, runs: int) -> str:
    """Return how long commands take that have little to do."""
    topic, out = "little", directory / "little"
    wire.call(AdminClient(wire.client).create_topic(topic))
    archive = ("pipeline", "archive", "-t", topic, "--out", str(out), "-b", bootstrap)
    lag = ("pipeline", "lag", "--archive", str(out), "-b", bootstrap)
    took: dict[str, list[float]] = defaultdict(list)
    for run in range(runs):
        fill_one(wire, topic, run)
        took["archive of one record, with the session's start"].append(command_s(*archive))
        took["archive that finds nothing to do"].append(command_s(*archive))
        took["lag of an archive"].append(command_s(*lag))
        took["lag of groups"].append(command_s("pipeline", "lag", "-b", bootstrap))
    return table(
        ("Command", "s"),
        [
            [name, f"{statistics.median(one):.2f} ({min(one):.2f} to {max(one):.2f})"]
            for name, one in took.items()
        ],
    )


def fill_one(wire: WireClient, topic: str, number_: int) -> None:
    """Write one record."""

    async def write() -> None:
        async with Producer(wire.client) as producer:
            await (await producer.send(topic, 0, [NewRecord(None, b"%d" % number_, NOW_MS)]))

    wire.call(write())


# --- a run ---------------------------------------------------------------------------------------


@contextmanager
def started(directory: Path, jars: Path) -> Iterator[tuple[GatewayProcess, SparkSession]]:
    """Yield a gateway and a session that knows both sources."""
    settings = {
        "spark.jars": ",".join(str(one) for one in sorted(jars.glob("*.jar"))),
        "spark.driver.memory": "2g",
        "spark.local.dir": str(directory / "spark"),
    }
    spark = session("kgw bench", master="local[2,4]", settings=settings)
    try:
        with GatewayProcess(directory / "data") as gateway:
            yield gateway, spark
    finally:
        spark.stop()


def measure(
    gateway: GatewayProcess, ways: Ways, topic: Topic, way: str, run: int, expected: int
) -> Measured:
    """Measure one way on one topic."""
    work = ways.prepare(way, topic)
    os.sync()
    with SparkProcesses(gateway.pid) as spark:
        cpu_s, _ = spark.look()
        before = Moment.now(process_usage(gateway.pid).cpu_s)
        work.run()
        after = Moment.now(process_usage(gateway.pid).cpu_s)
        spark_cpu_s = spark.look()[0] - cpu_s
    found = work.counted()
    if found != expected:
        raise ValueError(f"{way} of {topic.name}: {found} records of {expected}")
    meanwhile = Meanwhile.between(before, after, os.cpu_count() or 1)
    return Measured(
        topic.name,
        way,
        run,
        found / meanwhile.elapsed_s,
        spark_cpu_s,
        meanwhile.server_cpu_s,
        spark.peak_bytes / 1e6,
        meanwhile.stolen_share,
    )


def report(measured: Sequence[Measured]) -> str:
    """Return a table of medians, and the bars."""
    by_way: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for one in measured:
        by_way[one.topic, one.way].append(one)
    rates = {
        key: statistics.median(one.records_per_s for one in ones) for key, ones in by_way.items()
    }
    rows = []
    for (topic, way), ones in by_way.items():
        thousands = [one.records_per_s / 1e3 for one in ones]
        median = statistics.median(thousands)
        tuned = rates.get((topic, "kafka-tuned-noop" if way.endswith("noop") else "kafka-tuned"))
        rows.append(
            [
                topic,
                way,
                f"{median:.0f} ({min(thousands):.0f} to {max(thousands):.0f})",
                number(rates[topic, way] / tuned, 2) if tuned else "",
                number(statistics.median(one.spark_cpu_s for one in ones), 1),
                number(statistics.median(one.gateway_cpu_s for one in ones), 1),
                number(statistics.median(one.spark_mb for one in ones), 0),
            ]
        )
    titles = (
        "Topic",
        "Way",
        "1,000 records/s",
        "by kafka-tuned",
        "CPU of Spark, s",
        "CPU of kgw, s",
        "memory of Spark, MB",
    )
    lines = [table(titles, rows), ""]
    for bar in BARS:
        if (bar.topic, bar.way) not in rates or (
            bar.beside is not None and (bar.topic, bar.beside) not in rates
        ):
            continue
        value = rates[bar.topic, bar.way]
        if bar.beside is not None:
            value /= rates[bar.topic, bar.beside]
        verdict = "kept" if value >= bar.at_least else "LOST"
        beside = f" by {bar.beside}" if bar.beside else " records/s"
        lines.append(
            f"{bar.topic} {bar.way}{beside}: {value:,.2f}, bar {bar.at_least:,.2f}: {verdict}"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure, and print the table; every measurement is a line of JSON in the output."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench --spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the records of each topic")
    parser.add_argument("--only", nargs="+", metavar="TOPIC/WAY", help="patterns; no commands then")
    parser.add_argument("--jars", type=Path, default=ROOT / ".cache" / "spark-jars")
    parser.add_argument("--output", type=Path, metavar="FILE")
    options = parser.parse_args()
    if not list(options.jars.glob("*.jar")):
        parser.error(f"{options.jars} has no jars: kgw pipeline jars --to {options.jars}")
    chosen = [
        (topic, way)
        for topic in TOPICS
        for way in topic.ways
        if any(fnmatch.fnmatch(f"{topic.name}/{way}", one) for one in options.only or ["*"])
    ]
    directory = Path(tempfile.mkdtemp(prefix="kgw-bench-")).resolve()
    measured = []
    try:
        say(json.dumps(describe(directory)))
        with (
            started(directory, options.jars) as (gateway, spark),
            WireClient(gateway.bootstrap) as wire,
        ):
            ways = Ways(spark, wire, gateway.bootstrap, directory)
            for topic in dict.fromkeys(topic for topic, _ in chosen):
                fill(wire, topic, int(topic.records * options.share))
                say(f"{topic.name}: {ways.records(topic)} records")
            for run in range(options.runs + 1):
                for topic, way in chosen:
                    if run == 0 and topic not in TOPICS[:2] and way not in JOBS - {"archive"}:
                        continue
                    one = measure(gateway, ways, topic, way, run, ways.records(topic))
                    say(
                        f"run {run or 'to warm up'}: {topic.name} {way} "
                        f"{one.records_per_s:,.0f} records/s"
                    )
                    if run:
                        measured.append(one)
                        if options.output:
                            with options.output.open("a") as file:
                                file.write(json.dumps(vars(one)) + "\n")
            print(report(measured))
            if not options.only:
                print(measure_commands(wire, gateway.bootstrap, directory, options.runs))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
