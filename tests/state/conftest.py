"""The stores that everything about state is tried with."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kgw.clock import SystemClock
from kgw.state.memory import MemoryStateStore
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.state.sql.stores import server_store
from tests.conftest import DATABASES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.state.base import StateStore
    from tests.state.servers import DatabaseServer


@pytest.fixture
def server(database_server: DatabaseServer) -> DatabaseServer:
    """Return each kind of server."""
    return database_server


@pytest.fixture(params=["memory", "sqlite", *DATABASES])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StateStore]:
    """Return each kind of store, open and empty."""
    opened: StateStore
    if request.param == "memory":
        opened = MemoryStateStore()
    elif request.param == "sqlite":
        opened = SqliteStateStore(tmp_path / "meta.sqlite", quick_check=True)
    else:
        server: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
        opened = server_store(server.url(server.new_place()), SystemClock())
    await opened.open()
    yield opened
    await opened.aclose()


STORE_OF_TEST = re.compile(r"tests/state/(test_\w+)\.py::\w+\[(memory|sqlite|postgresql|mysql)\b")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests each store has passed, in the suite of all and in that of the servers."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            found = STORE_OF_TEST.match(report.nodeid)
            if found is not None:
                suite = "servers" if found[1] == "test_servers" else "all stores"
                counts[suite, found[2], outcome] += 1
    if counts:
        terminalreporter.section("state stores")
        for (suite, store, outcome), count in sorted(counts.items()):
            terminalreporter.write_line(f"suite of {suite}: {store} {count} {outcome}")
