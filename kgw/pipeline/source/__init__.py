"""`format("kgw")`: a Spark data source for topics that needs no jar.

`spark.dataSource.register(KgwDataSource)`, which `kgw.pipeline.session` calls, registers it. It has
the options and the schema of Spark's own `kafka` source.
"""

from kgw.pipeline.source.data_source import KgwDataSource

__all__ = ["KgwDataSource"]
