"""What `format("kgw")` writes: rows as record batches, partitioned as by Java's clients.

At least once, as Spark's own `kafka` sink: each batch is stored once however often it is sent, but
a task that Spark runs again writes its rows again.
"""

from kgw.pipeline.sink.writers import KgwStreamWriter, KgwWriter

__all__ = ["KgwStreamWriter", "KgwWriter"]
