"""Watches the free space on the disk of a data directory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kgw.backend.base import DiskRoom
from kgw.problems import DISK_ERROR

if TYPE_CHECKING:
    from kgw.backend.embedded.store import Store
    from kgw.clock import Clock

_HANGS_S: Final = 5.0


class DiskWatch:
    """Queries the free space in a thread, one query at a time.

    If the disk hangs, further queries would only block more threads.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._query: asyncio.Future[DiskRoom | None] | None = None
        self._since_s = 0.0
        """Monotonic time at which the query started."""

    async def look(self) -> None:
        """Update the known free space; report a disk that has not answered for seconds."""
        query = self._begin()
        waited_s = self._clock.monotonic_s() - self._since_s
        if waited_s >= _HANGS_S:
            text = f"the disk has not said for {waited_s:.0f} s how much room it has"
            self._store.directory.refusals.note(DISK_ERROR, text)
        await asyncio.shield(query)

    async def room(self) -> DiskRoom | None:
        """Return the free space of the disk; None if it is unknown."""
        return await asyncio.shield(self._begin())

    def _begin(self) -> asyncio.Future[DiskRoom | None]:
        """Return the running query, or start one."""
        if self._query is None or self._query.done():
            self._query = asyncio.get_running_loop().run_in_executor(None, self._find_room)
            self._since_s = self._clock.monotonic_s()
        return self._query

    def _find_room(self) -> DiskRoom | None:
        self._store.writes.look_for_room()
        directory = self._store.directory
        try:
            free_bytes = directory.fs.free_bytes(directory.root)
            total_bytes = directory.fs.total_bytes(directory.root)
        except OSError:
            return None
        return DiskRoom(free_bytes, directory.options.min_free_bytes, total_bytes)
