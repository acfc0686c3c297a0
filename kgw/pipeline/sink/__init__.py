"""The sink of `format("kgw")`: writes rows as record batches, partitioned like Java's clients.

Rows are written at least once, as by Spark's own `kafka` sink: each batch is stored once, however
often it is sent, but a task that Spark repeats writes its rows again.
"""

from kgw.pipeline.sink.writers import KgwStreamWriter, KgwWriter

__all__ = ["KgwStreamWriter", "KgwWriter"]
