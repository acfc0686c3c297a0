from __future__ import annotations

import subprocess
import sys


def test_the_default_imports_no_database_server() -> None:
    """Who stays with SQLite pays nothing for the others at the start."""
    program = (
        "import sys, kgw.app, kgw.backend.embedded.backend, kgw.state.sql.sqlite\n"
        "print([name for name in ('asyncpg', 'pymysql', 'kgw.state.sql.server',"
        " 'kgw.config.state_url') if name in sys.modules])"
    )
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert "[]" == output.strip()
