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
async def opened_state(data_dir: str) -> AsyncIterator[StateStore]:
    """Hold a directory and open its database, which is created when it is gone.

    Raises DataDirectoryError when there is no data directory or a process uses it.
    """
    from kgw.state.sql.sqlite import SqliteStateStore

    fs = RealFs()
    if not fs.exists(f"{data_dir}/{layout.FORMAT_NAME}"):
        raise DataDirectoryError(f"{data_dir} is not a data directory: no {layout.FORMAT_NAME}")
    lock = DirectoryLock(fs, data_dir)
    lock.acquire()
    try:
        state = SqliteStateStore(f"{data_dir}/{layout.STATE_NAME}", quick_check=True)
        await state.open()
        try:
            yield state
        finally:
            await state.aclose()
    finally:
        lock.release()
