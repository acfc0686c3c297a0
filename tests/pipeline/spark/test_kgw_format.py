"""`format("kgw")` in Spark: what is read is what was produced, and what is written is read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

from kgw.client import NewRecord
from kgw.client.partitioner import partition_for_key
from kgw.pipeline.planner import with_lookup
from kgw.records.batch import Compression
from tests.pipeline.serving import numbered
from tests.pipeline.spark.streams import run_to_the_end

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.pipeline.serving import ServedTopics

pytestmark = pytest.mark.slow


def read(spark: SparkSession, served: ServedTopics, topic: str, **options: str) -> DataFrame:
    """Return a batch of the topic."""
    return (
        spark.read.format("kgw")
        .option("kafka.bootstrap.servers", served.address)
        .option("subscribe", topic)
        .options(**options)
        .load()
    )


def run_stream(
    spark: SparkSession, served: ServedTopics, topic: str, place: Path, **options: str
) -> StreamingQuery:
    """Append what there is of a topic to Parquet files, from where the checkpoint stands."""
    writer = (
        spark.readStream.format("kgw")
        .option("kafka.bootstrap.servers", served.address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(place / "checkpoint"))
        .option("path", str(place / "rows"))
        .trigger(availableNow=True)
    )
    return run_to_the_end(writer.start)


def streamed(spark: SparkSession, place: Path) -> list[tuple[int, int, bytes]]:
    """Return what streams have written: partition, offset, value, in order."""
    rows = spark.read.parquet(str(place / "rows")).select("partition", "offset", "value").collect()
    return sorted((row[0], row[1], bytes(row[2])) for row in rows)


def numbers(counts: dict[int, int], first: int = 0) -> list[tuple[int, int, bytes]]:
    """Return partition, offset and value of the records that `ServedTopics.number` stores."""
    return [
        (partition, index, numbered(partition, index).value or b"")
        for partition, count in sorted(counts.items())
        for index in range(first, count)
    ]


def test_the_planner_of_a_session_says_nothing_of_hang_ups(spark: SparkSession) -> None:
    """What the worker that looks for data sources loads is on its search path."""
    assert "local[2,4]" == spark.sparkContext.master
    assert os.environ["PYTHONPATH"] == with_lookup(os.environ["PYTHONPATH"])


def test_a_batch_has_what_was_produced(spark: SparkSession, served: ServedTopics) -> None:
    """Every codec, nulls, headers, times: each row is the record that was stored."""
    served.create("every", 2)
    expected = []
    for codec in Compression:
        records = [
            NewRecord(None, b"no key", 1_700_000_000_000 + codec),
            NewRecord(b"deleted", None, 1_700_000_000_001),
            NewRecord(b"", b"", 1_700_000_000_002),
            NewRecord(b"k", b"v" * 5000, 1_700_000_000_003, [("a", b"1"), ("a", None)]),
        ]
        served.produce("every", {0: records, 1: records}, codec)
        for partition in 0, 1:
            expected += [
                (
                    one.key,
                    one.value,
                    "every",
                    partition,
                    codec * len(records) + index,
                    one.timestamp_ms,
                    0,
                    list(one.headers) or None,
                )
                for index, one in enumerate(records)
            ]
    frame = read(spark, served, "every", includeHeaders="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows: list[Any] = frame.selectExpr(
        "key", "value", "topic", "partition", "offset", "unix_millis(timestamp)", "timestampType",
        "headers",
    ).collect()  # fmt: skip
    found = [
        (
            None if row[0] is None else bytes(row[0]),
            None if row[1] is None else bytes(row[1]),
            *row[2:7],
            row[7] and [(one.key, one.value and bytes(one.value)) for one in row[7]],
        )
        for row in rows
    ]
    assert sorted(found, key=lambda row: row[3:5]) == sorted(expected, key=lambda row: row[3:5])


async def _abort_and_commit(address: str, topic: str) -> None:
    """Store five records in a transaction that is aborted, and five in one that is committed."""
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="spark-test")
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


async def test_only_what_is_committed_is_read(spark: SparkSession, served: ServedTopics) -> None:
    """Aborted records and markers are holes for read_committed; markers for everybody."""
    served.create("transactions")
    await _abort_and_commit(served.address, "transactions")
    committed = read(
        spark, served, "transactions", **{"kafka.isolation.level": "read_committed"}
    ).collect()
    assert [(row.offset, bytes(row.value)) for row in committed] == [
        (offset, b"committed") for offset in range(6, 11)
    ]
    assert [row.offset for row in read(spark, served, "transactions").collect()] == [
        *range(5),
        *range(6, 11),
    ]


def test_a_frame_is_read_whole_after_it_was_filtered(
    spark: SparkSession, served: ServedTopics
) -> None:
    """What one plan leaves out is not left out of the next: Spark 4.2's push-down would do that."""
    served.create("filtered", 3)
    served.number("filtered", {0: 50, 1: 50, 2: 50})
    frame = read(spark, served, "filtered", columns="partition,offset,timestamp")
    assert frame.columns == ["partition", "offset", "timestamp"]
    whole = {(row[0], row[1]) for row in frame.collect()}
    assert whole == {(partition, offset) for partition in range(3) for offset in range(50)}
    for condition, expected in (
        ("partition = 1 and offset >= 40", {(1, offset) for offset in range(40, 50)}),
        ("partition in (0, 2) and offset in (3, 7)", {(0, 3), (0, 7), (2, 3), (2, 7)}),
        ("timestamp >= timestamp_millis(48)", {(one, at) for one in range(3) for at in (48, 49)}),
        ("offset < 1 or partition = 9", {(0, 0), (1, 0), (2, 0)}),
        ("partition = 9", set()),
    ):
        assert {(row[0], row[1]) for row in frame.where(condition).collect()} == expected


def test_a_frame_ends_where_it_ended_at_first(spark: SparkSession, served: ServedTopics) -> None:
    """Spark 4.2 plans a frame's ranges once; `load` again reads what has come since."""
    served.create("grown")
    served.number("grown", {0: 5})
    frame = read(spark, served, "grown", columns="offset")
    assert 5 == frame.count()
    served.number("grown", {0: 3}, first=5)
    assert (5, 8) == (frame.count(), read(spark, served, "grown", columns="offset").count())


def test_a_stream_goes_on_where_it_stood(
    spark: SparkSession, served: ServedTopics, tmp_path: Path
) -> None:
    """Runs over one checkpoint give each record once, those of a new partition too."""
    served.create("streamed", 2)
    served.number("streamed", {0: 70, 1: 30})
    first = run_stream(spark, served, "streamed", tmp_path, maxOffsetsPerTrigger="40")
    assert len([one for one in first.recentProgress if one["numInputRows"]]) == 3
    assert streamed(spark, tmp_path) == numbers({0: 70, 1: 30})
    served.add_partitions("streamed", 3)
    served.number("streamed", {0: 10}, first=70)
    served.number("streamed", {2: 20})
    run_stream(spark, served, "streamed", tmp_path)
    assert streamed(spark, tmp_path) == numbers({0: 80, 1: 30, 2: 20})


def test_lost_records_are_named_or_skipped(
    spark: SparkSession, served: ServedTopics, tmp_path: Path
) -> None:
    """Records removed before they were read end the query, unless loss is allowed."""
    served.create("lossy")
    served.number("lossy", {0: 10})
    run_stream(spark, served, "lossy", tmp_path)
    served.number("lossy", {0: 10}, first=10)
    served.wire.call(served.admin.delete_records("lossy", {0: 15}))
    failed = run_stream_failing(spark, served, "lossy", tmp_path)
    assert "topic lossy partition 0: offsets 10 to 14 cannot be read" in failed
    run_stream(spark, served, "lossy", tmp_path, failOnDataLoss="false")
    assert streamed(spark, tmp_path) == numbers({0: 10}) + numbers({0: 20}, first=15)


def test_a_topic_that_was_made_anew_is_not_read_on(
    spark: SparkSession, served: ServedTopics, tmp_path: Path
) -> None:
    """Offsets of a deleted topic mean nothing in another one of its name."""
    served.create("anew")
    served.number("anew", {0: 10})
    run_stream(spark, served, "anew", tmp_path)
    served.wire.call(served.admin.delete_topic("anew"))
    served.create("anew")
    served.number("anew", {0: 20})
    assert "topic anew has been deleted and created again" in run_stream_failing(
        spark, served, "anew", tmp_path
    )


def run_stream_failing(spark: SparkSession, served: ServedTopics, topic: str, place: Path) -> str:
    """Return what a stream's failure says."""
    with pytest.raises(Exception, match="STREAM_FAILED") as caught:
        run_stream(spark, served, topic, place)
    return str(caught.value)


def test_rows_are_written_where_java_writes_them(spark: SparkSession, served: ServedTopics) -> None:
    """Keys choose the partition as Java's clients do; a partition column goes before them."""
    served.create("written", 3)
    frame = spark.sql(
        """select 'written' as topic, cast(id as string) as key, concat('v', id) as value,
           if(id < 10, cast(2 as int), null) as partition,
           array(struct('h' as key, cast('x' as binary) as value)) as headers,
           timestamp_millis(id) as timestamp
           from range(0, 2000, 1, 2)"""
    )
    to = {"kafka.bootstrap.servers": served.address, "kafka.compression.type": "zstd"}
    frame.write.format("kgw").options(**to).mode("append").save()
    rows = read(spark, served, "written", includeHeaders="true").collect()
    assert len(rows) == 2000
    for row in rows:
        number = int(row.key)
        assert bytes(row.value) == b"v%d" % number
        assert row.partition == (2 if number < 10 else partition_for_key(bytes(row.key), 3))
        assert row.timestamp.timestamp() * 1000 == pytest.approx(number)
        assert [(one.key, bytes(one.value)) for one in row.headers] == [("h", b"x")]


def test_a_batch_that_spark_writes_again_is_there_once(
    spark: SparkSession, served: ServedTopics, tmp_path: Path
) -> None:
    """A query that ended after the decision, before Spark's checkpoint had taken note of it."""
    served.create("source", 2)
    served.create("once", 2)
    for run in range(3):
        served.number("source", {0: 20, 1: 20}, first=20 * run)
        writer = (
            spark.readStream.format("kgw")
            .option("kafka.bootstrap.servers", served.address)
            .option("subscribe", "source")
            .option("startingOffsets", "earliest")
            .load()
            .select("key", "value", "partition")
            .writeStream.format("kgw")
            .option("kafka.bootstrap.servers", served.address)
            .option("topic", "once")
            .option("exactlyOnce", "true")
            .option("kafka.transactional.id", "spark-once")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
        )
        run_to_the_end(writer.start)
        for noted in (tmp_path / "commits").glob(f"*{run}*"):
            noted.unlink()
    options = {"kafka.isolation.level": "read_committed"}
    rows = read(spark, served, "once", **options).select("partition", "value").collect()
    assert sorted((row.partition, bytes(row.value)) for row in rows) == sorted(
        (partition, value) for partition, _, value in numbers({0: 60, 1: 60})
    )


def test_a_stream_is_written(spark: SparkSession, served: ServedTopics, tmp_path: Path) -> None:
    """A stream from one topic to another gives it each record, over two runs."""
    served.create("from", 2)
    served.create("to", 2)
    for run in range(2):
        served.number("from", {0: 20, 1: 20}, first=20 * run)
        writer = (
            spark.readStream.format("kgw")
            .option("kafka.bootstrap.servers", served.address)
            .option("subscribe", "from")
            .option("startingOffsets", "earliest")
            .load()
            .select("key", "value", "partition")
            .writeStream.format("kgw")
            .option("kafka.bootstrap.servers", served.address)
            .option("topic", "to")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
        )
        run_to_the_end(writer.start)
    rows = read(spark, served, "to").collect()
    found = sorted((row.partition, row.offset, bytes(row.value)) for row in rows)
    assert found == numbers({0: 40, 1: 40})
