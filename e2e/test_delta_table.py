"""Delta's own reader, in Java, over the table that an archive publishes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kgw.pipeline.archive.tables import publish
from tests.pipeline.archive.tables.archives import TOPIC_ID, Archived, decoded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session with Delta."""
    jars = sorted(Path(os.environ.get("KGW_SPARK_JARS", ".cache/spark-jars")).glob("*.jar"))
    if not any(one.name.startswith("delta-spark") for one in jars):
        pytest.fail(
            "the jars of Delta are missing: kgw pipeline jars --delta --to .cache/spark-jars"
        )
    from kgw.pipeline.session import session

    made = session(
        "delta tables",
        master="local[2,4]",
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            # Fifty tasks for each look at a table, unless this is set.
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.jars": ",".join(str(one.resolve()) for one in jars),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
        log_level="OFF",
    )
    yield made
    made.stop()


def test_every_row_in_all_columns(spark: SparkSession, tmp_path: Path) -> None:
    """After appends, a merge, a compaction and retention, with and without a checkpoint."""
    archived = Archived(tmp_path, "delta")
    path = str(archived.generation)
    archived.append(10, 25)
    archived.append(25, 40)
    publish(archived.generation, TOPIC_ID)
    before = archived.rows()
    assert before == decoded(spark.read.format("delta").load(path).toArrow())

    archived.replace(2, "merged")
    archived.append(40, 55)
    publish(archived.generation, TOPIC_ID)
    assert archived.rows() == decoded(spark.read.format("delta").load(path).toArrow())
    DeltaTable(path).create_checkpoint()
    archived.expire(1)
    archived.append(55, 60)
    publish(archived.generation, TOPIC_ID)
    found = spark.read.format("delta").load(path)
    assert archived.rows() == decoded(found.toArrow())

    # Answered by statistics.
    offsets = [one["offset"] for one in archived.rows()]
    told = found.selectExpr("count(*)", "min(_offset)", "max(_offset)").collect()[0]
    assert (len(offsets), offsets[0], offsets[-1]) == tuple(told)
    some = found.where("_offset between 50 and 56")
    assert [one for one in archived.rows() if 50 <= one["offset"] <= 56] == decoded(some.toArrow())
    # The published versions, and what is removed of files: as long as they are there.
    assert 4 == found.sparkSession.sql(f"describe history delta.`{path}`").count()


def test_a_stream_reads_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """A merge is no change of rows, so that a stream goes on over it."""
    archived = Archived(tmp_path / "archive", "delta")
    out = str(tmp_path / "out")

    def follow() -> None:
        publish(archived.generation, TOPIC_ID)
        query = (
            spark.readStream.format("delta")
            .load(str(archived.generation))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
        )
        query.awaitTermination()

    archived.append(10, 25)
    publish(archived.generation, TOPIC_ID)
    archived.append(25, 40)
    follow()
    archived.replace(2, "merged")
    publish(archived.generation, TOPIC_ID)
    archived.append(40, 55)
    follow()
    assert archived.rows() == decoded(spark.read.parquet(out).toArrow())
