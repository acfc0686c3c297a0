"""Delta and Iceberg tables over the files of an archive, published from its commit log.

The commit log stays the only truth. A table says in its own commits up to which version of the
log it has come, and `publish` applies what follows; so a publisher that was killed is made up for
by the next one. `changes` has the rules, `registered` which tables an archive publishes, `delta`
and `iceberg` what only they know.
"""

from __future__ import annotations

from kgw.pipeline.archive.tables.publishing import check, publish
from kgw.pipeline.archive.tables.registered import KINDS, TableSettings, register

__all__ = ["KINDS", "TableSettings", "check", "publish", "register"]
