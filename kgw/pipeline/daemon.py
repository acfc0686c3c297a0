"""Starts Spark's local Python workers with PySpark's daemon, without its harmless errors.

A query with `limit` stops reading from its workers once it has enough rows. A worker then fails at
its next write, and PySpark prints a long error although the query succeeded.
"""

from __future__ import annotations

from pyspark import daemon

from kgw.pipeline.planner import quieten

if __name__ == "__main__":
    quieten(daemon)
    daemon.manager()
