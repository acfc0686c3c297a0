"""The state of a namespace in a database server (`kgw.state.url`), beside its records on the filer.

The chain on the filer is still opened first, which excludes the previous leader. A row in it has
the URL of the database, and an identity that only the right database has. So a namespace is never
served with another namespace's state. Otherwise clients would create its topics again, from offset
0. docs/decisions/0115-state-of-a-namespace-in-a-database.md has the order of steps, and why.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import DataDirectoryError
from kgw.state.base import Change, Row, StateStore
from kgw.state.binding import BINDING_KEY, new_identity, stored_identity
from kgw.state.kinds import BINDING_KIND, GROUP_OFFSETS, OFFSET_BLOCK
from kgw.state.table import RowTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kgw.backend.seaweedmq.state.store import ChainStateStore
    from kgw.state.base import RowKey, WatchedChange
    from kgw.state.history import LagHistory
    from kgw.state.sql.server import ServerStateStore
    from kgw.state.table import WrittenRows

PLACE_KEY: Final = "place"
"""The row of `BINDING_KIND` in the chain that has the URL of the database."""
_TOLD: Final = (GROUP_OFFSETS, OFFSET_BLOCK)


class StateDatabase(NamedTuple):
    """The database that has the state of a namespace."""

    # The field names are stored: renaming a field changes the stored form.
    url: str
    """The database's URL when the namespace was last opened, without the password."""
    identity: str
    is_bound: bool
    """Whether the database certainly has the identity, too. Until then it has no state."""

    def change(self) -> Change:
        """Return the change that stores these values in the chain."""
        return Change(BINDING_KIND, PLACE_KEY, json.dumps(self._asdict()).encode())


def place_in(rows: Mapping[str, Row]) -> StateDatabase | None:
    """Return the database from the chain's rows of `BINDING_KIND`, None for the filer itself."""
    row = rows.get(PLACE_KEY)
    return None if row is None else StateDatabase(**json.loads(row.value))


def check_in_filer(rows: Mapping[str, Row], namespace: str) -> None:
    """Raise DataDirectoryError unless a namespace's state is on the filer."""
    place = place_in(rows)
    if place is not None and place.is_bound:
        raise DataDirectoryError(
            f"the state of namespace {namespace} is in {place.url}: set kgw.state.url to that"
        )


def check_identity(place: StateDatabase | None, found: str | None) -> None:
    """Raise DataDirectoryError unless a database's identity is right for a namespace."""
    is_bound = place is not None and place.is_bound
    if found == (None if place is None else place.identity) or (found is None and not is_bound):
        return
    raise DataDirectoryError(
        "kgw.state.url leads to a database that is not the state of this namespace"
        + (f"; that was last in {place.url}" if place is not None and is_bound else "")
    )


class PlacedStateStore(StateStore):
    """The state of a namespace, on the filer or in a database. Open the filer first."""

    on_lost: Callable[[], None] | None = None
    """Called once when another gateway has certainly taken over the database. Set before `open`."""
    on_commit: Callable[[WrittenRows, RowTable], None] | None = None
    """Called for each stored commit with the new rows of committed offsets, and with the table
    before the commit. It must be brief and raise nothing. Set before `open`."""

    def __init__(
        self, chain: ChainStateStore, store_at: Callable[[str], ServerStateStore], url: str = ""
    ) -> None:
        """`store_at` makes a store for an address.

        With a `url`, the state must be in that database or not exist yet. Without it, the state
        stays in its present store.
        """
        self._chain = chain
        self._store_at = store_at
        self._url = url
        self._store: StateStore = chain
        self._told = RowTable()
        """The rows after the last call of `on_commit`."""

    @property
    def failure(self) -> str | None:
        return self._store.failure or self._chain.failure

    @property
    def problems(self) -> tuple[str, ...]:
        return self._chain.problems

    @property
    def lag_history(self) -> LagHistory:
        return self._store.lag_history

    async def open(self) -> None:
        """Become the writer of the chain, then of the database.

        Only the leader may call this, because it ends the previous leader's session with the
        database. Raises DataDirectoryError, DamagedStateError, StorageError.
        """
        self._store = self._chain
        await self._chain.open()
        try:
            place = place_in(await self._chain.load(BINDING_KIND))
            url = self._url or (place.url if place is not None and place.is_bound else "")
            if url:
                self._store = await self._open_server(url, place)
            if self.on_commit is not None:
                self._told = RowTable()
                for kind in _TOLD:
                    self._told.rows[kind] = await self._store.load(kind)
        except BaseException:
            await self.aclose()
            raise

    async def _open_server(self, url: str, place: StateDatabase | None) -> ServerStateStore:
        has_rows = bool(set(await self._chain.kinds()) - {BINDING_KIND})
        if has_rows and (place is None or not place.is_bound):
            raise DataDirectoryError(
                "the state of the namespace is in the SeaweedFS, and kgw.state.url is set: a "
                "namespace has its state in a database from its first start, or not at all"
            )
        store = self._store_at(url)
        if place is not None and place.is_bound:
            store.successor_of = place.identity
        store.check_identity = partial(check_identity, place)
        store.on_lost = self.on_lost
        await store.open()
        try:
            if place is None:
                place = StateDatabase(url, new_identity(), is_bound=False)
                await self._chain.apply([place.change()])
            if await stored_identity(store) is None:
                if await store.kinds():
                    check_identity(place, "")
                await store.apply([Change(BINDING_KIND, BINDING_KEY, place.identity.encode(), 0)])
            # Write this even if nothing changes: if another gateway has taken over the chain
            # meanwhile, this raises the error now.
            await self._chain.apply([StateDatabase(url, place.identity, is_bound=True).change()])
        except BaseException:
            await store.aclose()
            raise
        return store

    async def restore(self) -> None:
        await self._chain.restore()

    async def aclose(self) -> None:
        if self._store is not self._chain:
            await self._store.aclose()
        await self._chain.aclose()

    async def kinds(self) -> list[str]:
        return await self._store.kinds()

    async def load(self, kind: str) -> dict[str, Row]:
        return await self._store.load(kind)

    async def apply(self, changes: Sequence[Change]) -> None:
        if self.on_commit is None:
            await self._store.apply(changes)
        else:
            # `on_commit` is called for a stored commit even if the caller was cancelled.
            await asyncio.shield(self._apply_and_tell(changes, self.on_commit))

    async def _apply_and_tell(
        self, changes: Sequence[Change], on_commit: Callable[[WrittenRows, RowTable], None]
    ) -> None:
        await self._store.apply(changes)
        # The store commits and answers in the order of the calls.
        written: dict[RowKey, Row | None] = {
            (one.kind, one.key): None if one.value is None else Row(one.value, 0)
            for one in changes
            if one.kind in _TOLD
        }
        if written:
            on_commit(written, self._told)
            self._told.take(written)

    async def newest_change(self) -> int:
        return await self._store.newest_change()

    async def changes_since(self, version: int) -> list[WatchedChange]:
        return await self._store.changes_since(version)
