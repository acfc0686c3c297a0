"""The sink of `format("kgw")`: writes rows as record batches, partitioned as by Java's clients.

Delivery is at least once, as with Spark's own `kafka` sink: a batch that is sent again is stored
once, but a task that Spark retries writes its rows again.
"""

from kgw.pipeline.sink.writers import KgwStreamWriter, KgwWriter

__all__ = ["KgwStreamWriter", "KgwWriter"]
