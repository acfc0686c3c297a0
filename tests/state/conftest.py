"""The stores that everything about state is tried with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import DATABASES
from tests.state.support import (
    FilerDatabase,
    MemoryDatabase,
    ServerDatabase,
    SqliteDatabase,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.state.base import StateStore
    from tests.state.servers import DatabaseServer
    from tests.state.support import Database


@pytest.fixture
def server(database_server: DatabaseServer) -> DatabaseServer:
    """Return each kind of server."""
    return database_server


@pytest.fixture(params=["memory", "sqlite", "filer", *DATABASES])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Return an empty database of each kind."""
    if request.param == "memory":
        return MemoryDatabase()
    if request.param == "sqlite":
        return SqliteDatabase(tmp_path / "meta.sqlite")
    if request.param == "filer":
        return FilerDatabase()
    return ServerDatabase(request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture
async def store(database: Database) -> AsyncIterator[StateStore]:
    """Return each kind of store, open and empty."""
    async with opened(database.store()) as store:
        yield store
