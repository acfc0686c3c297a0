"""`format("kgw")`: a Spark data source for Kafka topics that needs no jar.

`spark.dataSource.register(KgwDataSource)`, which `kgw.pipeline.session` calls, registers it. Its
options and schema are those of Spark's own `kafka` source.
"""

from kgw.pipeline.source.data_source import KgwDataSource

__all__ = ["KgwDataSource"]
