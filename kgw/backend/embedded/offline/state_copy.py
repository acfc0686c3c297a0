"""Moves a stopped directory's state into another database, for `kgw state copy`.

The directory uses its old state until the last step, so an interruption does no harm, and the next
copy to the same target starts again. If source or target is a namespace of a SeaweedFS, the state
is copied and not moved, because the records are copied separately and each side keeps its own
state.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.embedded import layout
from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.foreign import refuse_foreign
from kgw.backend.embedded.offline.opening import locked_target, opened_state
from kgw.backend.embedded.state_place import (
    StatePlace,
    read_place,
    write_place,
)
from kgw.backend.embedded.store import is_as_left, look_at_state
from kgw.config.state_url import parse_state_url
from kgw.errors import DataDirectoryError
from kgw.state.base import Change
from kgw.state.binding import BINDING_KEY, new_identity
from kgw.state.history import FOR_EVER_MS, SampleFilter
from kgw.state.kinds import BINDING_KIND, COPYING_KEY
from kgw.state.sql.commit_note import NEW_NOTE_SUFFIX, NOTE_SUFFIX
from kgw.state.sql.sqlite import SqliteStateStore
from kgw.state.sql.stores import store_for_tools

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.state.base import StateStore
    from kgw.state.history import LagHistory

IN_DIRECTORY: Final = "sqlite"
"""Used instead of an address, for SQLite in the data directory."""

COPIED_SUFFIX: Final = ".copied"
"""Suffix of a SQLite database that was the directory's state before the move."""
COPY_SUFFIX: Final = ".copy"
CHANGES_PER_SET: Final = 1_000
SAMPLES_PER_SET: Final = 5_000


class CopyReport(NamedTuple):
    """Number of rows and samples that were copied, read back and compared."""

    source: str
    target: str
    rows: dict[str, int]
    """By kind."""
    samples: int


def _open_namespace(url: str, *, writes: bool = True) -> AbstractAsyncContextManager[StateStore]:
    # Imported late, because it needs the extra `seaweedmq`.
    from kgw.backend.seaweedmq.offline.opening import opened_state as opened_namespace

    return opened_namespace(url, writes=writes)


async def copy_state(
    source: str,
    target: str,
    *,
    open_namespace: Callable[[str], AbstractAsyncContextManager[StateStore]] | None = None,
) -> CopyReport:
    """Move a directory's state to an address or to `IN_DIRECTORY`, or copy it to a namespace.

    From a namespace's address, the state is copied into the directory `target`. Raises
    DataDirectoryError if the target is not empty, if source or target is in use, or if the source
    has no state; StateUrlError or ConfigError for an invalid address; DamagedRowsError for a source
    that lost rows.
    """
    if is_namespace(source):
        reading = partial(_open_namespace, writes=False)
        return await _copy_from_namespace(source, target, open_namespace or reading)
    if is_namespace(target):
        return await _copy_to_namespace(source, target, open_namespace or _open_namespace)
    return await _move_state(source, target)


def is_namespace(place: str) -> bool:
    """Return whether this is the address of a namespace of a SeaweedFS."""
    return place.startswith("seaweedmq:")


async def _copy_to_namespace(
    data_dir: str,
    url: str,
    open_namespace: Callable[[str], AbstractAsyncContextManager[StateStore]],
) -> CopyReport:
    place = await asyncio.to_thread(_find_state, RealFs(), data_dir)
    async with opened_state(data_dir) as source, open_namespace(url) as target:
        rows, samples = await _fill(source, target, url)
        await target.apply([Change(BINDING_KIND, COPYING_KEY, None)])
    return CopyReport(IN_DIRECTORY if place is None else place.url, url, rows, samples)


async def _copy_from_namespace(
    url: str,
    data_dir: str,
    open_namespace: Callable[[str], AbstractAsyncContextManager[StateStore]],
) -> CopyReport:
    if "://" in data_dir or data_dir == IN_DIRECTORY:
        raise DataDirectoryError(
            f"the state of a namespace is copied into a data directory: {data_dir} is none"
        )
    fs = RealFs()
    path = f"{data_dir}/{layout.STATE_NAME}"
    async with locked_target(fs, data_dir):
        if fs.exists(path) or await asyncio.to_thread(read_place, fs, data_dir) is not None:
            raise DataDirectoryError(f"{data_dir} has a state already")
        async with open_namespace(url) as source:
            if not await source.kinds():
                raise DataDirectoryError(f"{url} has no state")
            copied = await _copy_to_file(fs, path, source)
        await asyncio.to_thread(_begin_directory, fs, data_dir, path)
    return CopyReport(url, data_dir, *copied)


async def _move_state(data_dir: str, target: str) -> CopyReport:
    if target != IN_DIRECTORY:
        # Reject a wrong address before anything is changed.
        parse_state_url(target)
    fs = RealFs()
    place = await asyncio.to_thread(_find_state, fs, data_dir)
    path = f"{data_dir}/{layout.STATE_NAME}"
    is_clean = await asyncio.to_thread(is_as_left, fs, data_dir)
    source_name = IN_DIRECTORY if place is None else place.url
    if target == source_name:
        raise DataDirectoryError(f"the state of {data_dir} is in {target} already")
    async with opened_state(data_dir) as source:
        if target == IN_DIRECTORY:
            rows, samples = await _copy_into_directory(fs, data_dir, source)
        else:
            rows, samples = await _copy_to_server(fs, data_dir, source, target)
    if is_clean:
        # The old clean-stop marker would not match the new database.
        marker = layout.encode_clean(
            look_at_state(fs, data_dir) if target == IN_DIRECTORY else None
        )
        await asyncio.to_thread(fs.replace_durably, f"{data_dir}/{layout.CLEAN_NAME}", marker)
    if place is None:
        # The database has no write-ahead log any more: closing the last connection removed it.
        await asyncio.to_thread(_rename, fs, path, path + COPIED_SUFFIX)
    return CopyReport(source_name, target, rows, samples)


def _find_state(fs: FileSystem, data_dir: str) -> StatePlace | None:
    """Return the location of a directory's state, as `read_place` does.

    Raises DataDirectoryError if it has none.
    """
    place = read_place(fs, data_dir)
    if place is None and not fs.exists(f"{data_dir}/{layout.STATE_NAME}"):
        refuse_foreign(fs, data_dir)
        raise DataDirectoryError(f"{data_dir} has no state: there is no {layout.STATE_NAME}")
    return place


async def _copy_to_server(
    fs: FileSystem, data_dir: str, source: StateStore, url: str
) -> tuple[dict[str, int], int]:
    async with store_for_tools(url) as target:
        copied = await _fill(source, target, url)
        identity = new_identity()
        await target.apply(
            [
                Change(BINDING_KIND, BINDING_KEY, identity.encode()),
                Change(BINDING_KIND, COPYING_KEY, None),
            ]
        )
    # From here on the server's database is the directory's state.
    await asyncio.to_thread(write_place, fs, data_dir, StatePlace(url, identity))
    return copied


async def _fill(source: StateStore, target: StateStore, url: str) -> tuple[dict[str, int], int]:
    """Copy everything into an empty store, with the row `COPYING_KEY` until that is done."""
    await _check_empty(target, url)
    await target.apply([Change(BINDING_KIND, COPYING_KEY, b"")])
    return await _copy(source, target)


async def _copy_into_directory(
    fs: FileSystem, data_dir: str, source: StateStore
) -> tuple[dict[str, int], int]:
    path = f"{data_dir}/{layout.STATE_NAME}"
    if fs.exists(path):
        raise DataDirectoryError(f"{path} exists, though the state is elsewhere: move it away")
    copied = await _copy_to_file(fs, path, source)
    await asyncio.to_thread(_take_in, fs, data_dir, path)
    return copied


async def _copy_to_file(
    fs: FileSystem, path: str, source: StateStore
) -> tuple[dict[str, int], int]:
    """Copy everything into a new database, beside the database that it will replace."""
    await asyncio.to_thread(_clear, fs, path + COPY_SUFFIX)
    async with SqliteStateStore(path + COPY_SUFFIX) as target:
        return await _copy(source, target)


def _clear(fs: FileSystem, path: str) -> None:
    """Remove a database that an interrupted copy left."""
    for suffix in ("", "-wal", NOTE_SUFFIX, NEW_NOTE_SUFFIX):
        with suppress(FileNotFoundError):
            fs.unlink(path + suffix)


def _rename(fs: FileSystem, path: str, target: str) -> None:
    """Rename a closed database and its file of commit counts, which matches only this database."""
    with suppress(FileNotFoundError):
        fs.unlink(target + NOTE_SUFFIX)
    fs.rename(path, target)
    with suppress(FileNotFoundError):
        fs.rename(path + NOTE_SUFFIX, target + NOTE_SUFFIX)


def _take_in(fs: FileSystem, data_dir: str, path: str) -> None:
    """Make a finished copy the directory's state."""
    _rename(fs, path + COPY_SUFFIX, path)
    fs.sync_directory(data_dir)
    # From here on `state.json` is not needed any more.
    fs.unlink(f"{data_dir}/{layout.STATE_PLACE_NAME}")
    fs.sync_directory(data_dir)


def _begin_directory(fs: FileSystem, data_dir: str, path: str) -> None:
    """Make a finished copy the state of a directory that has none, perhaps a new directory."""
    _rename(fs, path + COPY_SUFFIX, path)
    format_path = f"{data_dir}/{layout.FORMAT_NAME}"
    if not fs.exists(format_path):
        fs.replace_durably(format_path, layout.encode_small({"format": layout.FORMAT_VERSION}))
    fs.sync_directory(data_dir)


async def _check_empty(target: StateStore, url: str) -> None:
    """Raise DataDirectoryError if the store has state; delete the state of an interrupted copy."""
    kinds = await target.kinds()
    if not kinds:
        return
    if COPYING_KEY not in await target.load(BINDING_KIND):
        raise DataDirectoryError(f"{url} is not empty: it has {', '.join(kinds)}")
    for kind in kinds:
        if kind != BINDING_KIND:
            await _apply_in_sets(
                target, [Change(kind, key, None) for key in await target.load(kind)]
            )


async def _copy(source: StateStore, target: StateStore) -> tuple[dict[str, int], int]:
    """Copy everything but the identity, read it back and compare it.

    The versions of the rows start anew. This is harmless, because every process loads the versions
    when it starts.
    """
    counts: dict[str, int] = {}
    for kind in await source.kinds():
        if kind == BINDING_KIND:
            continue
        rows = await source.load(kind)
        await _apply_in_sets(target, [Change(kind, key, row.value) for key, row in rows.items()])
        stored = await target.load(kind)
        if {key: row.value for key, row in rows.items()} != {
            key: row.value for key, row in stored.items()
        }:
            raise DataDirectoryError(f"the copy differs from its source in {kind}")
        counts[kind] = len(rows)
    return counts, await _copy_samples(source.lag_history, target.lag_history)


async def _apply_in_sets(target: StateStore, changes: list[Change]) -> None:
    for start in range(0, len(changes), CHANGES_PER_SET):
        await target.apply(changes[start : start + CHANGES_PER_SET])


async def _copy_samples(source: LagHistory, target: LagHistory) -> int:
    """Copy the lag history, the newest samples first; return the number of samples."""
    until_ms, limit, count = FOR_EVER_MS, SAMPLES_PER_SET, 0
    while True:
        samples = await source.load(SampleFilter(until_ms=until_ms), limit=limit)
        is_last = len(samples) < limit
        if not is_last:
            # More samples may have the oldest timestamp, so leave all samples with this timestamp
            # for the next set.
            oldest_ms = samples[0].sampled_at_ms
            samples = [sample for sample in samples if sample.sampled_at_ms > oldest_ms]
            if not samples:
                limit *= 2
                continue
            until_ms = oldest_ms + 1
        await target.append(samples)
        count += len(samples)
        if is_last:
            return count
