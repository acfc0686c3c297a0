"""One queue of everything of a kind that is to be stored: what waits together shares a flush."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WriteT = TypeVar("WriteT")

FLUSH_WRITES = 1_000
"""A flush takes no more writes than this: what they change waits in memory for the disk."""


class WriteQueue(Generic[WriteT]):
    """Writes in the order in which they were submitted, stored flush after flush."""

    def __init__(self, flush: Callable[[list[WriteT]], Awaitable[None]]) -> None:
        """Take what stores a batch, answers who waits for it, and raises nothing."""
        self._flush = flush
        self._task: asyncio.Task[None] | None = None
        self._is_due = False
        """Whether somebody wants what is waiting to be stored."""
        self.waiting: list[WriteT] = []
        """What no flush has taken yet. A flush that fails may take out what follows from it."""

    def submit(self, write: WriteT) -> None:
        """Queue a write, and have everything stored that is waiting."""
        self.waiting.append(write)
        # As `flush` does: requests of groups come through here by the ten thousand a second.
        self._is_due = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def submit_later(self, write: WriteT) -> None:
        """Queue a write that nobody waits for: it is stored with the next one, or by `flush`."""
        self.waiting.append(write)

    def flush(self) -> None:
        """Have everything stored that is waiting."""
        self._is_due = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """Wait until everything that was submitted is stored, or has failed."""
        if self.waiting:
            self.flush()
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self.waiting and self._is_due:
                batch, self.waiting = self.waiting[:FLUSH_WRITES], self.waiting[FLUSH_WRITES:]
                self._is_due = bool(self.waiting)
                await self._flush(batch)
                if self._is_due:
                    await asyncio.sleep(0)  # a store in memory gives nobody else a turn
        finally:
            self._task = None
