from __future__ import annotations

import subprocess
import sys

DEFAULT = "kgw.app, kgw.gateway, kgw.backend.embedded.backend, kgw.state.sql.sqlite"


def imported(*names: str) -> str:
    """Return which of some modules the default path imports."""
    program = f"import sys, {DEFAULT}\nprint(*(one for one in {names!r} if one in sys.modules))"
    return subprocess.check_output([sys.executable, "-c", program], text=True).strip()


def test_the_default_imports_no_database_server() -> None:
    """Who stays with SQLite pays nothing for the others at the start."""
    assert not imported("asyncpg", "pymysql", "kgw.state.sql.server", "kgw.config.state_url")


def test_what_has_its_time_later_is_not_imported() -> None:
    """Compaction, lag, its history and the admin side cost no start anything."""
    assert not imported(
        "kgw.admin",
        "kgw.lag.monitor",
        "kgw.partitions.compactor",
        "kgw.state.history",
        "kgw.state.sql.misplaced",
        "prometheus_client",
        "starlette",
        "uvicorn",
    )
