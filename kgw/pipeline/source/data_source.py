"""Register it with `spark.dataSource.register(KgwDataSource)`, as `kgw.pipeline.session` does."""

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

# Workers of Spark's planner load this module, too, to plan a read or write.
say_nothing_of_hang_ups()


class KgwDataSource(DataSource):
    """The topics of a gateway or any other Kafka broker, as a Spark data source.

    Methods raise OptionError.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "kgw"

    def schema(self) -> StructType:
        """Return the schema of the columns to read."""
        return spark_schema(read_source_options(self.options).columns)

    def reader(self, schema: StructType) -> KgwReader:
        """Return the reader of a batch query."""
        return KgwReader(read_source_options(self.options), schema)

    def streamReader(self, schema: StructType) -> KgwStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query."""
        return KgwStreamReader(read_source_options(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> KgwWriter:
        """Return the writer of a batch query."""
        return KgwWriter(read_sink_options(self.options), schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,
    ) -> KgwStreamWriter:
        """Return the writer of a streaming query."""
        return KgwStreamWriter(read_sink_options(self.options), schema)
