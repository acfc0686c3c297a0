"""Opens a data directory's state: in SQLite beside the records, or on a database server.

If a directory were served with the state of another directory, clients would create its topics
again, from offset 0. So if the state is on a database server, `state.json` has the server's address
and an identity that is also stored in the database. Opening fails if the identities differ.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded import layout
from kgw.errors import DataDirectoryError
from kgw.state.base import Change
from kgw.state.binding import BINDING_KEY, new_identity, stored_identity
from kgw.state.kinds import BINDING_KIND

if TYPE_CHECKING:
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.state.base import StateStore
    from kgw.state.sql.server import ServerStateStore


class ServerState(NamedTuple):
    """An unopened store on a database server, and its address."""

    url: str
    store: ServerStateStore


class StatePlace(NamedTuple):
    """The content of `state.json`."""

    # The field names are stored: renaming a field changes the stored form.
    url: str
    """Address of the state when the directory was last opened, without the password."""
    identity: str


def read_place(fs: FileSystem, root: str) -> StatePlace | None:
    """Return the location of a directory's state; None if the state is in the directory.

    Raises DataDirectoryError if `state.json` is damaged.
    """
    path = f"{root}/{layout.STATE_PLACE_NAME}"
    if not fs.exists(path):
        return None
    try:
        fields = layout.decode_small(fs.read_bytes(path))
        return StatePlace(str(fields["url"]), str(fields["identity"]))
    except (OSError, KeyError, layout.SmallFileError) as error:
        raise DataDirectoryError(
            f"{path}, which says where the state is, cannot be read ({error}); restore it, or give "
            f"it the identity that the database has as row {BINDING_KEY!r} of {BINDING_KIND!r}"
        ) from error


def write_place(fs: FileSystem, root: str, place: StatePlace) -> None:
    """Durably store a new location of a directory's state. Raises OSError."""
    fs.replace_durably(f"{root}/{layout.STATE_PLACE_NAME}", layout.encode_small(place._asdict()))


async def open_state(
    fs: FileSystem,
    root: str,
    given: ServerState | None,
    *,
    partitions: int,
    is_clean: bool,
) -> StateStore:
    """Open the state that belongs to a directory with this number of partitions.

    Raises DataDirectoryError if the state is not available, or if `given` is the state of another
    directory.
    """
    place = await asyncio.to_thread(read_place, fs, root)
    if given is None:
        if place is not None:
            raise DataDirectoryError(
                f"the state of {root} is in {place.url}: set kgw.state.url to that, or bring it "
                "back into the directory with `kgw state copy`"
            )
        store = _sqlite(fs, root, partitions=partitions, is_clean=is_clean)
        await store.open()
        return store
    store = given.store
    if place is not None:
        # The identity is checked before anything is written to the database, so a wrong address
        # does no harm.
        store.check_identity = partial(_check_identity, root, place)
    await store.open()
    try:
        if place is None:
            place = StatePlace(given.url, await _bind(fs, root, store, partitions))
            await asyncio.to_thread(write_place, fs, root, place)
        elif place.url != given.url:
            await asyncio.to_thread(write_place, fs, root, place._replace(url=given.url))
    except BaseException as error:
        await store.aclose()
        if isinstance(error, OSError):
            raise DataDirectoryError(f"{root}: {error}") from error
        raise
    return store


def _check_identity(root: str, place: StatePlace, found: str | None) -> None:
    if found != place.identity:
        raise DataDirectoryError(
            f"kgw.state.url leads to a database that is not the state of {root}; that was last in "
            f"{place.url}"
        )


def _sqlite(fs: FileSystem, root: str, *, partitions: int, is_clean: bool) -> StateStore:
    from kgw.state.sql.sqlite import SqliteStateStore

    # With an empty database, clients would create the topics again, from offset 0, beside the old
    # partition directories.
    if partitions and not fs.exists(f"{root}/{layout.STATE_NAME}"):
        raise DataDirectoryError(
            f"{root} has {partitions} partitions, but {layout.STATE_NAME} "
            "is missing: restore it, or bring the topics back with `kgw log adopt`"
        )
    return SqliteStateStore(f"{root}/{layout.STATE_NAME}", quick_check=not is_clean)


async def _bind(fs: FileSystem, root: str, store: StateStore, partitions: int) -> str:
    """Store a new identity in an empty store and in a new directory; return the identity."""
    if partitions or fs.exists(f"{root}/{layout.STATE_NAME}"):
        raise DataDirectoryError(
            f"the state of {root} is in its {layout.STATE_NAME}: move it with `kgw state copy` "
            "before kgw.state.url is set"
        )
    kinds = await store.kinds()
    identity = await stored_identity(store)
    if kinds not in ([], [BINDING_KIND]):
        raise DataDirectoryError(
            f"kgw.state.url leads to a database that has another data directory's state ({root} is "
            "new)"
        )
    if identity is None:
        identity = new_identity()
        await store.apply([Change(BINDING_KIND, BINDING_KEY, identity.encode(), 0)])
    return identity
