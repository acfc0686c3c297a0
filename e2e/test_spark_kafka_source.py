"""Spark's own `kafka` source and sink with a gateway process, and `format("kgw")` beside them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

from kgw.client import AdminClient, NewRecord, Producer
from kgw.pipeline.wire import WireClient
from kgw.records.batch import Compression
from kgw.testing.process import GatewayProcess
from tests.signals import send_to_group

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with both sources."""
    jars = sorted(Path(os.environ.get("KGW_SPARK_JARS", ".cache/spark-jars")).glob("*.jar"))
    if not jars:
        pytest.fail(
            "the jars of Spark's kafka source are missing: kgw pipeline jars --to .cache/spark-jars"
        )
    from kgw.pipeline.session import session

    made = session(
        "kafka source",
        master="local[2,4]",
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.jars": ",".join(str(one.resolve()) for one in jars),
            "spark.task.maxFailures": "8",
        },
        log_level="OFF",
    )
    yield made
    made.stop()


class Topics:
    """A gateway process, and what tests do to its topics."""

    def __init__(self, process: GatewayProcess) -> None:
        self.process = process
        self.wire = WireClient(process.bootstrap, retry_s=60.0)
        self.admin = AdminClient(self.wire.client)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic that keeps old records."""
        config = {"retention.ms": "-1"} | {
            name.replace("_", "."): value for name, value in config.items()
        }
        self.wire.call(self.admin.create_topic(topic, partitions=partitions, config=config))

    def produce(
        self,
        topic: str,
        records: Mapping[int, list[NewRecord]],
        compression: Compression = Compression.NONE,
    ) -> None:
        """Store a batch in each of some partitions."""

        async def send() -> None:
            async with Producer(self.wire.client, compression=compression) as producer:
                for partition, batch in records.items():
                    await (await producer.send(topic, partition, batch))

        self.wire.call(send())

    def number(self, topic: str, partitions: int, first: int, count: int) -> None:
        """Store records that say where they are from."""
        self.produce(
            topic,
            {
                partition: [
                    NewRecord(b"%d" % one, b"%d-%d" % (partition, one), START_MS + one)
                    for one in range(first, first + count)
                ]
                for partition in range(partitions)
            },
        )


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """A gateway over a data directory."""
    with GatewayProcess(tmp_path_factory.mktemp("spark") / "data") as process:
        found = Topics(process)
        yield found
        found.wire.close()


def read(spark: SparkSession, topics: Topics, source: str, topic: str, **options: str) -> DataFrame:
    """Return a batch."""
    return (
        spark.read.format(source)
        .option("kafka.bootstrap.servers", topics.process.bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .options(**options)
        .load()
    )


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return all columns of all rows, in the order of partitions and offsets."""
    found = frame.selectExpr(
        "topic", "partition", "offset", "key", "value", "unix_micros(timestamp)", "timestampType",
        "headers",
    ).collect()  # fmt: skip
    return sorted(
        (
            *row[:3],
            row[3] and bytes(row[3]),
            row[4] and bytes(row[4]),
            *row[5:7],
            row[7] and [(one.key, one.value and bytes(one.value)) for one in row[7]],
        )
        for row in found
    )


def both(spark: SparkSession, topics: Topics, topic: str, **options: str) -> list[tuple[Any, ...]]:
    """Return the rows that both sources return."""
    ours = rows(read(spark, topics, "kgw", topic, **options))
    assert ours == rows(read(spark, topics, "kafka", topic, **options))
    return ours


async def _transact(address: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=f"in {topic}")
    async with producer:
        for value in b"aborted", b"committed":
            await producer.begin_transaction()
            for _ in range(5):
                await producer.send_and_wait(topic, value, partition=0)
            await (
                producer.abort_transaction()
                if value == b"aborted"
                else producer.commit_transaction()
            )


def test_both_sources_return_the_same_rows(spark: SparkSession, topics: Topics) -> None:
    """Every codec, nulls, headers, holes of compaction, aborted transactions: all columns."""
    topics.create(
        "every", 2, cleanup_policy="compact", segment_bytes="1024", delete_retention_ms="0"
    )
    for codec in Compression:
        for number in range(3):
            at_ms = START_MS + 10 * number + codec
            records = [
                NewRecord(b"k%d" % (number % 2), b"%d" % codec * 200, at_ms),
                NewRecord(b"%d-%d" % (codec, number), b"", at_ms),
                NewRecord(b"h", b"v", at_ms, [("a", b"1"), ("a", None), ("b", b"")]),
                NewRecord(b"gone", None, at_ms),
            ]
            topics.produce("every", {0: records, 1: records[:2]}, codec)
    topics.create("plain", 2)
    for codec in Compression:
        topics.produce(
            "plain", {0: [NewRecord(None, None, START_MS), NewRecord(None, b"x", START_MS)]}, codec
        )
    asyncio.run(_transact(topics.process.bootstrap, "plain"))

    before = both(spark, topics, "every")
    assert len(before) == len(Compression) * 3 * 6
    assert topics.process.stop() == 0
    subprocess.run(
        [sys.executable, "-m", "kgw", "log", "compact", str(topics.process.data_dir)],
        check=True,
        capture_output=True,
    )
    topics.process.start()
    compacted = both(spark, topics, "every")
    assert 0 < len(compacted) < len(before)
    assert all(row in before for row in compacted)
    committed = both(spark, topics, "plain", **{"kafka.isolation.level": "read_committed"})
    every = both(spark, topics, "plain")
    assert [row[4] for row in committed].count(b"committed") == 5
    assert [row[4] for row in every].count(b"aborted") == 5
    assert b"aborted" not in [row[4] for row in committed]


def test_times_offsets_and_cuts(spark: SparkSession, topics: Topics) -> None:
    """Where reading begins and ends, by time and by offset, in more ranges than partitions."""
    topics.create("cut", 3)
    topics.number("cut", 3, 0, 200)
    assert len(both(spark, topics, "cut", minPartitions="10")) == 600
    assert len(both(spark, topics, "cut", startingTimestamp=str(START_MS + 50))) == 450
    assert (
        len(
            both(
                spark,
                topics,
                "cut",
                startingOffsets='{"cut":{"0":10,"1":-2,"2":199}}',
                endingOffsets='{"cut":{"0":20,"1":7,"2":-1}}',
            )
        )
        == 10 + 7 + 1
    )
    assert read(spark, topics, "kafka", "cut", minPartitions="9").rdd.getNumPartitions() == 9


@pytest.mark.parametrize("source", ["kafka", "kgw"])
@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_batch_that_begins_behind_its_end_is_refused(
    spark: SparkSession, topics: Topics, source: str, loss: str
) -> None:
    """However its end is given; nothing is lost, so that failOnDataLoss changes nothing."""
    topic = f"behind-{source}-{loss}"
    topics.create(topic, 1)
    topics.number(topic, 1, 0, 10)
    start = f'{{"{topic}":{{"0":7}}}}'
    for end in (
        {"endingOffsets": f'{{"{topic}":{{"0":6}}}}'},
        {"endingTimestamp": str(START_MS + 5)},
        {"startingOffsets": f'{{"{topic}":{{"0":11}}}}'},
    ):
        given = {"startingOffsets": start, "failOnDataLoss": loss} | end
        with pytest.raises(Exception, match=r"greater than the|behind its end"):
            read(spark, topics, source, topic, **given).count()


@pytest.mark.parametrize("source", ["kafka", "kgw"])
def test_a_stream_goes_on_with_new_partitions(
    spark: SparkSession, topics: Topics, tmp_path: Path, source: str
) -> None:
    """Two runs over one checkpoint, with a partition more in the second."""
    topic = f"streamed-{source}"
    topics.create(topic, 1)
    for run in range(2):
        topics.number(topic, run + 1, 100 * run, 100)
        stream(spark, topics, source, topic, tmp_path)
        if not run:
            topics.wire.call(topics.admin.create_partitions(topic, 2))
            topics.wire.find_topic(topic)
    expected = [b"0-%d" % one for one in range(200)] + [b"1-%d" % one for one in range(100, 200)]
    assert streamed(spark, tmp_path) == sorted(expected)


@pytest.mark.parametrize("source", ["kafka", "kgw"])
def test_lost_records_end_a_stream(
    spark: SparkSession, topics: Topics, tmp_path: Path, source: str
) -> None:
    """FailOnDataLoss is on by default."""
    topic = f"lost-{source}"
    topics.create(topic)
    topics.number(topic, 1, 0, 10)
    stream(spark, topics, source, topic, tmp_path)
    topics.number(topic, 1, 10, 10)
    topics.wire.call(topics.admin.delete_records(topic, {0: 15}))
    with pytest.raises(Exception, match="STREAM_FAILED"):
        stream(spark, topics, source, topic, tmp_path)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sink", ["kafka", "kgw"])
def test_rows_are_written_in_every_codec(
    spark: SparkSession, topics: Topics, sink: str, codec: str
) -> None:
    """What one sink writes both sources read; keys go where Java's partitioner puts them."""
    topic = f"{sink}-{codec}"
    topics.create(topic, 3)
    frame = spark.sql(
        """select cast(id as string) as key, concat('v', id) as value,
           array(struct('h' as key, cast('x' as binary) as value)) as headers
           from range(0, 300, 1, 2)"""
    )
    (
        frame.write.format(sink)
        .option("kafka.bootstrap.servers", topics.process.bootstrap)
        .option("topic", topic)
        .option("includeHeaders", "true")
        .option("kafka.compression.type", codec)
        .mode("append")
        .save()
    )
    found = both(spark, topics, topic)
    assert sorted(int(row[3]) for row in found) == list(range(300))
    assert all(row[4] == b"v" + row[3] and row[7] == [("h", b"x")] for row in found)
    placed = {row[3]: row[1] for row in found}
    other = _PLACED.setdefault("first", placed)
    assert placed == other


_PLACED: dict[str, dict[bytes, int]] = {}
"""Where keys went in the first of the topics above: the same in all of them."""


@pytest.mark.parametrize("source", ["kafka", "kgw"])
def test_the_gateway_is_killed_in_the_middle_of_a_query(
    spark: SparkSession, topics: Topics, tmp_path: Path, source: str
) -> None:
    """With failOnDataLoss=true, and to the default time-outs of clients."""
    topic = f"killed-{source}"
    topics.create(topic, 3)
    for first in range(0, 20_000, 1000):
        topics.number(topic, 3, first, 1000)

    def kill() -> None:
        for _ in range(3):
            topics.process.kill()
            topics.process.start()
            if ended.wait(2):
                return

    ended = threading.Event()
    killing = threading.Thread(target=kill)
    killing.start()
    try:
        stream(spark, topics, source, topic, tmp_path, maxOffsetsPerTrigger="3000")
    finally:
        ended.set()
        killing.join()
    found = streamed(spark, tmp_path)
    assert len(found) == len(set(found)) == 60_000


def test_spark_is_killed_in_the_middle_of_a_query(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """A driver that gets SIGKILL three times, and goes on from its checkpoint."""
    topics.create("spark-killed", 2)
    for first in range(0, 10_000, 1000):
        topics.number("spark-killed", 2, first, 1000)
    program = (
        "import sys; from e2e.test_spark_kafka_source import copy_in_a_process as copy;"
        " copy(*sys.argv[1:])"
    )
    jars = spark.conf.get("spark.jars") or ""
    for number in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", program, topics.process.bootstrap, str(tmp_path), jars],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            for _ in range(number + 2):
                assert process.stdout.readline().strip().isdigit()
            send_to_group(process.pid, signal.SIGKILL)
    stream(spark, topics, "kafka", "spark-killed", tmp_path)
    found = streamed(spark, tmp_path)
    assert len(found) == len(set(found)) == 20_000


def copy_in_a_process(address: str, place: str, jars: str) -> None:
    """Run the stream of `stream` in small batches until somebody kills this process."""
    from kgw.pipeline.session import session

    spark = session(settings={"spark.jars": jars, "spark.driver.memory": "512m"}, log_level="OFF")
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", "spark-killed")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "500")
        .load()
        .select("value")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{place}/checkpoint")
        .option("path", f"{place}/rows")
        .start()
    )
    told = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != told:
            told = progress["batchId"]
            print(told, flush=True)
        time.sleep(0.05)


def stream(
    spark: SparkSession, topics: Topics, source: str, topic: str, place: Path, **options: str
) -> None:
    """Append what there is of a topic to Parquet files, from where the checkpoint stands."""
    query = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", topics.process.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
        .select("value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(place / "checkpoint"))
        .option("path", str(place / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(250)
    assert not query.isActive, "the stream did not end"


def streamed(spark: SparkSession, place: Path) -> list[bytes]:
    """Return what streams have written, in order."""
    return sorted(bytes(row[0]) for row in spark.read.parquet(str(place / "rows")).collect())
