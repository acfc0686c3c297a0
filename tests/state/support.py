"""Stores that are opened, refused, looked into and damaged."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, TypeVar

import pytest

from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import ChannelOptions
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.clock import SystemClock
from kgw.errors import DataDirectoryError, StorageError
from kgw.metrics import Metrics
from kgw.state.memory import MemoryStateStore
from kgw.state.sql.migrations import MIGRATIONS
from kgw.state.sql.server import Options
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.state.sql.stores import server_store
from kgw.testing.filer import FilerStore, MemoryFiler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from kgw.backend.seaweedmq.filer import Filer
    from kgw.state.base import StateStore
    from kgw.state.sql.migrations import Migration
    from kgw.state.sql.server import ServerStateStore
    from tests.seaweedfs.cluster import Cluster
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
    """A directory of a filer."""

    def __init__(self, kind: str, make_filer: Callable[[], Filer], namespace: str) -> None:
        self.kind = kind
        self._make_filer = make_filer
        self._directory = f"/topics/.kgw/{namespace}/state"

    def store(self, migrations: tuple[Migration, ...] = MIGRATIONS) -> StateStore:
        return OnFiler(self._make_filer(), self._directory)


class OnFiler(ChainStateStore):
    """A state store that opens and closes a filer of its own, as a backend does."""

    def __init__(self, filer: Filer, directory: str) -> None:
        super().__init__(filer, SystemClock(), directory)
        self._own_filer = filer

    async def open(self) -> None:
        await self._own_filer.open()
        await super().open()

    async def aclose(self) -> None:
        await super().aclose()
        await self._own_filer.aclose()


def memory_filer_database() -> FilerDatabase:
    """Return one on a filer that this process remembers."""
    entries = FilerStore()
    return FilerDatabase("filer", lambda: MemoryFiler(entries), "kafka")


def seaweedfs_database(cluster: Cluster) -> FilerDatabase:
    """Return one on a real SeaweedFS."""
    options = ChannelOptions(cluster.address("filer"))
    return FilerDatabase(
        "seaweedfs",
        lambda: FilerChannel(options, SystemClock(), Metrics()),
        cluster.new_namespace(),
    )


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
