"""Fills a stage while the server keeps running: the code in the event loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kgw.backend.embedded import layout
from kgw.backend.embedded.backup.control import NotYetError
from kgw.backend.embedded.backup.cut import count_partitions, take_cut, write_stage
from kgw.errors import StorageError
from kgw.state.kinds import TOPIC
from kgw.state.sql.sqlite import SqliteStateStore

if TYPE_CHECKING:
    from kgw.backend.embedded.backup.cut import Cut
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.shell import EmbeddedShell
    from kgw.backend.embedded.store import Store
    from kgw.state.base import StateStore


async def fill_stage(
    fs: FileSystem, root: str, store: Store, state: StateStore, backend: EmbeddedShell, stage: str
) -> None:
    """Fill a stage as `EmbeddedBackend.fill_stage` does.

    Raises NotYetError before anything is copied if partitions are still being opened.
    """
    if not isinstance(state, SqliteStateStore):
        raise StorageError(
            f"the state of {root} is not in the directory: back up its database with that one's "
            "own tools, or bring it back with `kgw state copy` (docs/backup.md)"
        )
    await _check_opened(root, store, state)
    threads = backend.threads
    # While files are being linked, no checkpoint may write them and no compaction may replace them.
    async with threads.sealed_segments:
        try:
            cut = await state.copy_to(
                f"{stage}/{layout.STATE_NAME}",
                partial(threads.run_in_flusher, partial(_hold_and_cut, store)),
            )
            await threads.run_in_io(partial(write_stage, fs, root, stage, cut))
        finally:
            # Do this even if the backup failed: otherwise only the next start would remove these
            # files.
            aside, directories = await threads.run_in_flusher(store.trimmer.release_removals)
            for log, paths in aside:
                backend.remove_later(paths, log.settings.delete_delay_ms)
            for path in directories:
                await threads.run_in_io(partial(store.trimmer.remove_directory, path))


async def _check_opened(root: str, store: Store, state: StateStore) -> None:
    unopened = store.unclaimed
    if not unopened:
        return
    counts = count_partitions(await state.load(TOPIC))
    waiting = [key for key in unopened if key.partition < counts.get(key.topic_id, 0)]
    for key in waiting:
        if key in store.unopenable:
            raise StorageError(
                f"a backup of {root} would lack partition {key}, which is not open: "
                f"{store.unopenable[key]}"
            )
    if waiting:
        raise NotYetError(
            f"the server of {root} has not opened {len(waiting)} partitions yet: try again"
        )


def _hold_and_cut(store: Store) -> Cut:
    if store.directory.failure is not None:
        # After a failed write, segments may contain records whose appends were refused.
        raise StorageError(
            f"nothing is written to {store.directory.root} any more: start the server again, and "
            f"back it up then ({store.directory.failure})"
        )
    store.trimmer.hold_removals()
    return take_cut(store)
