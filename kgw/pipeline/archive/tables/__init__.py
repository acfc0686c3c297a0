"""Delta and Iceberg tables over the files of an archive, published from its commit log.

The commit log remains the only record of progress. Each commit of a table stores the version of the
log that it shows, and `publish` applies the later versions; if a publisher is killed, the next call
catches up. `changes` computes the changes, `registered` lists the tables that an archive publishes,
and `delta` and `iceberg` write the formats.
"""

from __future__ import annotations

from kgw.pipeline.archive.tables.publishing import check, publish
from kgw.pipeline.archive.tables.registered import KINDS, TableSettings, register

__all__ = ["KINDS", "TableSettings", "check", "publish", "register"]
