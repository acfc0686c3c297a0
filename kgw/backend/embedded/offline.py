"""Holding a stopped data directory, for tools."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.fs import RealFs
from kgw.backend.embedded.lock import DirectoryLock
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.state.base import StateStore


@asynccontextmanager
async def opened_state(data_dir: str, *, may_create: bool = False) -> AsyncIterator[StateStore]:
    """Hold a directory and open its database.

    One that is gone is created with `may_create`, else an empty store in memory takes its place.
    Raises DataDirectoryError when there is no data directory or a process uses it.
    """
    from kgw.state.memory import MemoryStateStore
    from kgw.state.sql.sqlite import SqliteStateStore

    fs = RealFs()
    if not fs.exists(f"{data_dir}/{layout.FORMAT_NAME}"):
        raise DataDirectoryError(f"{data_dir} is not a data directory: no {layout.FORMAT_NAME}")
    lock = DirectoryLock(fs, data_dir)
    lock.acquire()
    try:
        path = f"{data_dir}/{layout.STATE_NAME}"
        state: StateStore = (
            SqliteStateStore(path, quick_check=True)
            if may_create or fs.exists(path)
            else MemoryStateStore()
        )
        await state.open()
        try:
            yield state
        finally:
            await state.aclose()
    finally:
        lock.release()
