"""Starts Spark's Python workers on this machine: PySpark's daemon, without its needless errors.

A query with `limit` stops reading from its workers when it has enough rows. They notice that at
their next write, and PySpark prints an error of many lines, after a command that was successful.
"""

from __future__ import annotations

from pyspark import daemon

from kgw.pipeline.planner import quieten

if __name__ == "__main__":
    quieten(daemon)
    daemon.manager()
