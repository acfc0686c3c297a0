"""Spark reads published tables with its own Parquet reader, by the list of files, without a jar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kgw.pipeline.archive.tables import publish
from tests.pipeline.archive.tables.archives import TOPIC_ID, Archived, decoded, iceberg

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_spark_reads_the_files_that_a_table_names(spark: SparkSession, tmp_path: Path) -> None:
    """All columns of all rows are those of the archive, after a merge, by either kind of table."""
    archived = Archived(tmp_path, "delta", "iceberg")
    archived.append(10, 25)
    archived.append(25, 40)
    archived.replace(2, "merged")
    archived.append(40, 50)
    publish(archived.generation, TOPIC_ID)
    expected = archived.rows()

    by_delta = spark.read.parquet(*DeltaTable(str(archived.generation)).file_uris())
    assert expected == decoded(by_delta.toArrow())

    catalog, table = iceberg(archived.generation)
    with catalog:
        files = [one.file.file_path for one in table.scan().plan_files()]
        later = [one.file.file_path for one in table.scan("_offset >= 40").plan_files()]
    assert expected == decoded(spark.read.parquet(*files).toArrow())
    assert expected[-9:] == decoded(spark.read.parquet(*later).toArrow())
