"""Why `KgwReader` takes no filters: Spark reads too little with a source that does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter

pytestmark = pytest.mark.slow


class ThreeReader(DataSourceReader):
    """Reads 50 rows of each of three partitions, or of the one that a filter asks for."""

    def __init__(self) -> None:
        self.only: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what says which partition it must be."""
        for one in filters:
            if isinstance(one, EqualTo) and one.attribute == ("p",):
                self.only = one.value
            else:
                yield one

    def partitions(self) -> list[InputPartition]:
        """Return what is not filtered out."""
        return [InputPartition(one) for one in range(3) if self.only in (None, one)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        """Yield a partition's rows."""
        yield from ((partition.value, row) for row in range(50))


class Three(DataSource):
    """Three partitions that can be told apart by a filter."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in `format(...)`."""
        return "three"

    def schema(self) -> str:
        """Return the columns."""
        return "p int, row int"

    def reader(self, schema: Any) -> ThreeReader:
        """Return what reads a batch."""
        return ThreeReader()


def test_spark_keeps_the_ranges_of_a_filtered_plan(spark: SparkSession) -> None:
    """When this fails, Spark has mended it, and filters may be taken (decision 117)."""
    spark.dataSource.register(Three)
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        frame = spark.read.format("three").load()
        assert frame.count() == 150
        assert frame.where("p = 1").count() == 50
        assert frame.count() == 50, "150 are right"
    finally:
        spark.conf.unset(setting)
