"""Holding a stopped data directory, for tools."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.files.lock import DirectoryLock
from kgw.backend.embedded.state_place import read_place
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.state.base import StateStore


@asynccontextmanager
async def opened_state(data_dir: str, *, may_create: bool = False) -> AsyncIterator[StateStore]:
    """Hold a directory and open its state, wherever that is.

    A database in the directory that is gone is created with `may_create`, else an empty store in
    memory takes its place. Raises DataDirectoryError when there is no data directory, a process
    uses it, or its state cannot be opened.
    """
    from kgw.state.binding import stored_identity
    from kgw.state.memory import MemoryStateStore
    from kgw.state.sql.sqlite import SqliteStateStore
    from kgw.state.sql.stores import store_for_tools

    fs = RealFs()
    if not fs.exists(f"{data_dir}/{layout.FORMAT_NAME}"):
        raise DataDirectoryError(f"{data_dir} is not a data directory: no {layout.FORMAT_NAME}")
    lock = DirectoryLock(fs, data_dir)
    lock.acquire()
    try:
        place = read_place(fs, data_dir)
        path = f"{data_dir}/{layout.STATE_NAME}"
        state: StateStore
        if place is not None:
            state = store_for_tools(place.url)
        elif may_create or fs.exists(path):
            state = SqliteStateStore(path, quick_check=True)
        else:
            state = MemoryStateStore()
        await state.open()
        async with aclosing(state):
            if place is not None and await stored_identity(state) != place.identity:
                raise DataDirectoryError(
                    f"the database at {place.url} is not the state of {data_dir}"
                )
            yield state
    finally:
        lock.release()
