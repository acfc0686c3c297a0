"""The stores that everything about state is tried with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kgw.clock import SystemClock
from kgw.state.memory import MemoryStateStore
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.state.sql.stores import server_store
from tests.state.servers import DatabaseServer, MariadbServer, NoServerError, PostgresqlServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from kgw.state.base import StateStore


def _serve(server: type[DatabaseServer]) -> Iterator[DatabaseServer]:
    try:
        started = server()
    except NoServerError as error:
        if os.environ.get("DATABASES") == "required":
            raise
        pytest.skip(str(error))
    yield started
    started.remove()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[DatabaseServer]:
    """Return a PostgreSQL server that all tests share."""
    yield from _serve(PostgresqlServer)


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[DatabaseServer]:
    """Return a MariaDB server that all tests share."""
    yield from _serve(MariadbServer)


# The first test of a server waits for its start.
SERVERS = [pytest.param(name, marks=pytest.mark.timeout(60)) for name in ("postgresql", "mysql")]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """Return each kind of server."""
    started: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    return started


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
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
