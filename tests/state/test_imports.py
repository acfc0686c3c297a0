from __future__ import annotations

import subprocess
import sys

DEFAULT = "kgw.app, kgw.gateway, kgw.backend.embedded.backend, kgw.state.sql.sqlite"


NOT_AT_A_START = (
    "asyncpg",
    "kgw.admin",
    "kgw.config.state_url",
    "kgw.lag.monitor",
    "kgw.partitions.maintain.compactor",
    "kgw.state.history",
    "kgw.state.sql.misplaced",
    "kgw.state.sql.server",
    "prometheus_client",
    "pymysql",
    "starlette",
    "uvicorn",
)


def test_what_has_its_time_later_or_never_is_not_imported() -> None:
    """Database servers, compaction, lag and the admin side cost a start with SQLite nothing."""
    program = (
        f"import sys, {DEFAULT}\nprint(*(one for one in {NOT_AT_A_START} if one in sys.modules))"
    )
    imported = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert "" == imported.strip()
