"""The stores that everything about state is tried with."""

from __future__ import annotations

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
