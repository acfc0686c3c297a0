"""Stores that are opened, refused, looked into and damaged."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from kgw.backend.seaweedmq.state_store import ChainStateStore
from kgw.clock import SystemClock
from kgw.errors import DataDirectoryError, StorageError
from kgw.state.memory import MemoryStateStore
from kgw.state.sql.migrations import MIGRATIONS
from kgw.state.sql.server import Options
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.state.sql.stores import server_store
from kgw.testing.clock import ManualClock
from kgw.testing.filer import FilerStore, MemoryFiler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kgw.backend.seaweedmq.state_store import StateOptions
    from kgw.state.base import StateStore
    from kgw.state.sql.migrations import Migration
    from kgw.state.sql.server import ServerStateStore
    from tests.state.servers import DatabaseServer

STATE_DIRECTORY: Final = "/topics/.kgw/kafka/state"

StoreT = TypeVar("StoreT", bound="StateStore")


@asynccontextmanager
async def opened(store: StoreT) -> AsyncIterator[StoreT]:
    """Open a store and close it again, whatever happens."""
    try:
        await store.open()
        yield store
    finally:
        await store.aclose()


def beside(path: Path, suffix: str) -> Path:
    """Return a file that belongs to a database of SQLite's."""
    return path.with_name(path.name + suffix)


async def refusal(store: StateStore) -> str:
    """Return why a store is not opened."""
    with pytest.raises(DataDirectoryError) as caught:
        await store.open()
    await store.aclose()
    with pytest.raises(StorageError, match="not open"):
        await store.load("topic")
    return str(caught.value)


class Database(ABC):
    """Where one store is kept: empty at first, and opened as often as a test likes."""

    kind: str

    @abstractmethod
    def store(self, migrations: tuple[Migration, ...] = MIGRATIONS) -> StateStore:
        """Return a store over it, of a program that knows these steps."""

    def execute(self, statement: str) -> None:
        """Change something behind the store's back, which cannot be done in memory."""
        raise NotImplementedError

    @asynccontextmanager
    async def both(self) -> AsyncIterator[tuple[StateStore, StateStore]]:
        """Open the store twice, to write and to read: in another session, where that can be."""
        async with opened(self.store()) as store:
            yield store, store


class MemoryDatabase(Database):
    """One that this process remembers."""

    kind = "memory"

    def __init__(self) -> None:
        self._store = MemoryStateStore()

    def store(self, migrations: tuple[Migration, ...] = MIGRATIONS) -> StateStore:
        return self._store


class SqliteDatabase(Database):
    """A file."""

    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path

    def store(self, migrations: tuple[Migration, ...] = MIGRATIONS) -> StateStore:
        return SqliteStateStore(self.path, migrations=migrations)

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(statement)


class FilerDatabase(Database):
    """A directory of a filer in memory."""

    kind = "filer"

    def __init__(self, options: StateOptions | None = None) -> None:
        self.filers = FilerStore()
        self._options = options

    def store(self, migrations: tuple[Migration, ...] = MIGRATIONS) -> StateStore:
        return OnFiler(MemoryFiler(self.filers), self._options)


class OnFiler(ChainStateStore):
    """A state store that opens and closes a filer of its own, as a backend does."""

    def __init__(self, filer: MemoryFiler, options: StateOptions | None = None) -> None:
        super().__init__(filer, ManualClock(), STATE_DIRECTORY, options)
        self.filer = filer

    async def open(self) -> None:
        await self.filer.open()
        await super().open()

    async def aclose(self) -> None:
        await super().aclose()
        await self.filer.aclose()


class ServerDatabase(Database):
    """A place on a server."""

    def __init__(self, server: DatabaseServer) -> None:
        self.kind = server.kind
        self._server = server
        self._place = server.new_place()

    def store(self, migrations: tuple[Migration, ...] = MIGRATIONS) -> ServerStateStore:
        return self._store(Options(migrations=migrations))

    def reader(self) -> ServerStateStore:
        """Return a store that only reads, beside its owner."""
        return self._store(Options(reads_only=True))

    def _store(self, options: Options) -> ServerStateStore:
        return server_store(self._server.url(self._place), SystemClock(), options)

    def execute(self, statement: str) -> None:
        self._server.execute(statement, self._place)

    @asynccontextmanager
    async def both(self) -> AsyncIterator[tuple[StateStore, StateStore]]:
        async with opened(self.store()) as store, opened(self.reader()) as reader:
            yield store, reader
