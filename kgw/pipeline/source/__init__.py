"""`format("kgw")`: topics as Spark reads and writes them, without a jar.

`spark.dataSource.register(KgwDataSource)`, which `kgw.pipeline.session` does, makes it known. The
options and the schema are those of Spark's own `kafka` source.
"""

from kgw.pipeline.source.data_source import KgwDataSource

__all__ = ["KgwDataSource"]
