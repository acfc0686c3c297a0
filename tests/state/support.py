"""Stores that are opened, refused, looked into and damaged."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, TypeVar

import pytest

from kgw.clock import SystemClock
from kgw.errors import DataDirectoryError, StorageError
from kgw.state.sql.migrations import MIGRATIONS
from kgw.state.sql.server import Options
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.state.sql.stores import server_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.state.base import StateStore
    from kgw.state.sql.migrations import Migration
    from kgw.state.sql.store import SqlStateStore
    from tests.state.servers import DatabaseServer

StoreT = TypeVar("StoreT", bound="StateStore")


@asynccontextmanager
async def opened(store: StoreT) -> AsyncIterator[StoreT]:
    """Open a store and close it again, whatever happens."""
    try:
        await store.open()
        yield store
    finally:
        await store.aclose()


async def refusal(store: StateStore) -> str:
    """Return why a store is not opened."""
    with pytest.raises(DataDirectoryError) as caught:
        await store.open()
    await store.aclose()
    with pytest.raises(StorageError, match="not open"):
        await store.load("topic")
    return str(caught.value)


class Database(ABC):
    """A database that is empty at first."""

    kind: str

    @abstractmethod
    def store(self, migrations: tuple[Migration, ...] = MIGRATIONS) -> SqlStateStore:
        """Return a store over it, of a program that knows these steps."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Change something behind the store's back."""


class SqliteDatabase(Database):
    """A file."""

    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path

    def store(self, migrations: tuple[Migration, ...] = MIGRATIONS) -> SqlStateStore:
        return SqliteStateStore(self._path, migrations=migrations)

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute(statement)


class ServerDatabase(Database):
    """A place on a server."""

    def __init__(self, server: DatabaseServer) -> None:
        self.kind = server.kind
        self._server = server
        self._place = server.new_place()

    def store(self, migrations: tuple[Migration, ...] = MIGRATIONS) -> SqlStateStore:
        url = self._server.url(self._place)
        return server_store(url, SystemClock(), Options(migrations=migrations))

    def execute(self, statement: str) -> None:
        self._server.execute(statement, self._place)
