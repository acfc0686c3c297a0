"""Delta and Iceberg tables over the files of an archive, published from its commit log.

The commit log remains the only record of progress. A table stores in its own commits which version
of the log it shows, and `publish` applies the later versions; so if a publisher is killed, the next
one catches up. `changes` has the rules, `registered` the tables that an archive publishes, `delta`
and `iceberg` the code for each format.
"""

from __future__ import annotations

from kgw.pipeline.archive.tables.publishing import check, publish
from kgw.pipeline.archive.tables.registered import KINDS, TableSettings, register

__all__ = ["KINDS", "TableSettings", "check", "publish", "register"]
