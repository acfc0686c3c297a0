"""A Spark data source that reads ranges of offsets from the log, in the archive's columns.

`format("kgw")` cannot do this: it looks up topics and offsets when Spark plans the query, long
after the table was fixed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from kgw.pipeline.archive.columns import encode
from kgw.pipeline.cluster import Cluster
from kgw.pipeline.ranges import LEAST_PIECE, OffsetRange, cut_ranges
from kgw.pipeline.source.schema import HEADERS_TYPE, slices
from kgw.pipeline.wire import Reading
from kgw.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

SPARK_SCHEMA: Final = StructType(
    [
        StructField("_partition", IntegerType()),
        StructField("_offset", LongType()),
        StructField("_ts_ns", LongType()),
        StructField("_ts_ms", LongType()),
        StructField("_ts_type", ByteType()),
        StructField("_key", BinaryType()),
        StructField("_value", BinaryType()),
        StructField("_headers", HEADERS_TYPE),
        StructField("_epoch", IntegerType()),
    ]
)
"""The columns of an archive's files as Spark's types."""
_PROPERTIES: Final = "secret.properties"
"""The option with the cluster's properties. Spark shows no option with `secret` in its name."""
_ARROW_SCHEMA: Final = to_arrow_schema(SPARK_SCHEMA)


def tail_frame(spark: SparkSession, cluster: Cluster, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return the committed records of these ranges."""
    spark.dataSource.register(RangesDataSource)
    pieces = cut_ranges(ranges, pieces=spark.sparkContext.defaultParallelism, least=LEAST_PIECE)
    told = [[*one[:4], one.topic_id.hex()] for one in pieces]
    return (
        spark.read.format(RangesDataSource.name())
        .option("bootstrap", cluster.bootstrap)
        .option(_PROPERTIES, json.dumps(dict(cluster.properties)))
        .option("ranges", json.dumps(told))
        .load()
    )


class RangesDataSource(DataSource):
    """Reads the ranges in the option `ranges` from a cluster."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "kgw-ranges"

    def schema(self) -> StructType:
        """Return the archive's columns."""
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> RangesReader:
        """Return the reader of the ranges."""
        properties = json.loads(self.options[_PROPERTIES])
        cluster = Cluster(self.options["bootstrap"], properties)
        return RangesReader(cluster, json.loads(self.options["ranges"]))


class RangesReader(DataSourceReader):
    """Reads each range in a task of its own."""

    def __init__(self, cluster: Cluster, ranges: list[list[Any]]) -> None:
        self._cluster = cluster
        self._ranges = ranges

    def partitions(self) -> list[InputPartition]:
        """Return the ranges."""
        return [InputPartition(one) for one in self._ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one range's records. Raises ClientError, and the errors of `WireClient.decoded`."""
        topic, index, first, end, topic_id = partition.value
        wanted = OffsetRange(topic, index, first, end, TopicId(UUID(topic_id).bytes))
        with self._cluster.client(client_id="kgw-pipeline-sql") as wire:
            for decoded in wire.decoded(wanted, reading=Reading(read_committed=True)):
                batch = encode(decoded.batch, index)
                arrays = [
                    column.cast(field.type)
                    for column, field in zip(batch.columns, _ARROW_SCHEMA, strict=True)
                ]
                yield from slices(pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA))
