"""What starts Spark's Python workers on this machine: PySpark's own, silent where it should be.

A query that has enough, as with `limit`, leaves its workers alone in the middle. They find that out
when they write on, and PySpark prints that as an error of many lines, after a command that has done
all it was to do.
"""

from __future__ import annotations

from pyspark import daemon

from kgw.pipeline.planner import quieten

if __name__ == "__main__":
    quieten(daemon)
    daemon.manager()
