"""What a user would write: each program is started by itself, as `programs NAME JSON`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.jobs.backfill import Backfill, run
from kgw.pipeline.jobs.running import SparkRunner
from kgw.pipeline.session import session
from kgw.pipeline.wire import WireClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRANSACTIONAL_ID = "exactness-copy"


def _read(reader: Any, given: dict[str, Any]) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": given["address"],
        "subscribe": given["topic"],
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        **given["options"],
    }
    found: DataFrame = reader.format("kgw").options(**options).load()
    return found


def _written(frame: DataFrame) -> DataFrame:
    return frame.select("key", "value", "headers", "timestamp", "partition")


def read_batch(spark: SparkSession, given: dict[str, Any]) -> None:
    """Write a topic to Parquet."""
    _read(spark.read, given).write.mode("overwrite").parquet(given["out"])


def read_stream(spark: SparkSession, given: dict[str, Any]) -> None:
    """Write a topic to Parquet, in micro-batches, up to its end."""
    query = (
        _read(spark.readStream, given)
        .writeStream.format("parquet")
        .option("path", given["out"])
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def copy_stream(spark: SparkSession, given: dict[str, Any]) -> None:
    """Copy a topic to another one exactly once, up to its end."""
    query = (
        _written(_read(spark.readStream, given))
        .writeStream.format("kgw")
        .option("kafka.bootstrap.servers", given["address"])
        .option("topic", given["target"])
        .option("exactlyOnce", "true")
        .option("kafka.transactional.id", f"{TRANSACTIONAL_ID}-{given['target']}")
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def copy_batch(spark: SparkSession, given: dict[str, Any]) -> None:
    """Copy a topic to another one at least once."""
    frame = _written(_read(spark.read, given))
    writer = frame.write.format("kgw").option("kafka.bootstrap.servers", given["address"])
    writer.option("topic", given["target"]).mode("append").save()


def backfill(spark: SparkSession, given: dict[str, Any]) -> None:
    """Append an archive to a topic, in small transactions."""
    topic_id = UUID(given["topic_id"])
    job = Backfill(
        Cluster(given["address"]),
        given["target"],
        Path(generation_directory(given["archive"], given["topic"], topic_id)),
        topic_id,
        given["target"],
        transaction_bytes=given["transaction_bytes"],
    )
    with WireClient(given["address"]) as wire:
        run(wire, job, SparkRunner(spark, "backfill"))


PROGRAMS = {
    one.__name__: one for one in (read_batch, read_stream, copy_stream, copy_batch, backfill)
}


def main(name: str, given: str) -> None:
    """Run a program."""
    asked = json.loads(given)
    spark = session(
        f"exactness {name}",
        master=asked["master"],
        settings={"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"},
        log_level="ERROR",
    )
    PROGRAMS[name](spark, asked)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
