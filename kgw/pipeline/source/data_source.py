"""KgwDataSource: what Spark makes of `format("kgw")` and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kgw.pipeline.options import read_sink_options, read_source_options
from kgw.pipeline.planner import say_nothing_of_hang_ups
from kgw.pipeline.sink import KgwStreamWriter, KgwWriter
from kgw.pipeline.source.readers import KgwReader, KgwStreamReader
from kgw.pipeline.source.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Workers of Spark's planner that ask this source load this module.
say_nothing_of_hang_ups()


class KgwDataSource(DataSource):
    """Topics of a gateway, or of any other Kafka server. Raises OptionError."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in `format(...)`."""
        return "kgw"

    def schema(self) -> StructType:
        """Return the columns that are read."""
        return spark_schema(read_source_options(self.options).columns)

    def reader(self, schema: StructType) -> KgwReader:
        """Return what reads a batch."""
        return KgwReader(read_source_options(self.options), schema)

    def streamReader(self, schema: StructType) -> KgwStreamReader:  # noqa: N802 - Spark's name
        """Return what reads a stream."""
        return KgwStreamReader(read_source_options(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> KgwWriter:
        """Return what writes a batch."""
        return KgwWriter(read_sink_options(self.options), schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,
    ) -> KgwStreamWriter:
        """Return what writes a stream."""
        return KgwStreamWriter(read_sink_options(self.options), schema)
