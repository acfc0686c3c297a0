"""Locks a stopped data directory for a command, and opens its state."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.files.lock import DirectoryLock
from kgw.backend.embedded.foreign import refuse_foreign, refuse_no_directory, refuse_others
from kgw.backend.embedded.state_place import read_place
from kgw.backend.embedded.store import is_as_left, look_at_state
from kgw.errors import DataDirectoryError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.state.base import StateStore


@asynccontextmanager
async def opened_state(data_dir: str, *, may_create: bool = False) -> AsyncIterator[StateStore]:
    """Lock a directory and open its state, which may be in another database.

    A missing database in the directory is created with `may_create`; without it, an empty store in
    memory is used. If the state was changed, the clean-stop marker is updated. Raises
    DataDirectoryError if there is no data directory, if a process uses it, or if its state cannot
    be opened.
    """
    from kgw.state.binding import stored_identity
    from kgw.state.memory import MemoryStateStore
    from kgw.state.sql.sqlite import SqliteStateStore
    from kgw.state.sql.stores import store_for_tools

    fs = RealFs()
    await asyncio.to_thread(refuse_no_directory, fs, data_dir, data_dir)
    with DirectoryLock(fs, data_dir):
        was_as_left = await asyncio.to_thread(is_as_left, fs, data_dir)
        place = read_place(fs, data_dir)
        path = f"{data_dir}/{layout.STATE_NAME}"
        state: StateStore
        if place is not None:
            state = store_for_tools(place.url)
        elif may_create or fs.exists(path):
            state = SqliteStateStore(path, quick_check=True)
        else:
            state = MemoryStateStore()
        async with state:
            if place is not None and await stored_identity(state) != place.identity:
                raise DataDirectoryError(
                    f"the database at {place.url} is not the state of {data_dir}"
                )
            yield state
        if was_as_left:
            await asyncio.to_thread(_mark_again, fs, data_dir)


@asynccontextmanager
async def locked_target(fs: FileSystem, data_dir: str) -> AsyncIterator[None]:
    """Lock a directory that a command writes to; it is created if it is missing.

    Raises DataDirectoryError for a directory with other files or of another program.
    """
    await asyncio.to_thread(refuse_foreign, fs, data_dir)
    await asyncio.to_thread(refuse_others, fs, data_dir, is_served=False)
    await asyncio.to_thread(fs.make_directories_durably, data_dir)
    with DirectoryLock(fs, data_dir):
        yield


def _mark_again(fs: FileSystem, data_dir: str) -> None:
    """Update the marker of an orderly stop with the database's present size and checksum.

    Otherwise the next start would mistake a command's changes for damage, and recover as after a
    crash.
    """
    if not is_as_left(fs, data_dir):
        marker = layout.encode_clean(look_at_state(fs, data_dir))
        fs.replace_durably(f"{data_dir}/{layout.CLEAN_NAME}", marker)
