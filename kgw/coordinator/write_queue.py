"""A queue of writes to the state store: writes that wait at the same time share a flush."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WriteT = TypeVar("WriteT")

FLUSH_WRITES = 1_000
"""A flush takes no more writes than this: their changes wait in memory for the disk."""


class WriteQueue(Generic[WriteT]):
    """Writes in the order in which they were submitted, stored flush after flush."""

    def __init__(self, flush: Callable[[list[WriteT]], Awaitable[None]]) -> None:
        """Take the function that stores a batch and answers its waiters. It raises nothing."""
        self._flush = flush
        self._task: asyncio.Task[None] | None = None
        self._is_due = False
        """Whether a flush of the waiting writes was asked for."""
        self.waiting: list[WriteT] = []
        """Writes that no flush has taken yet. A flush that fails may remove some of them."""

    def submit(self, write: WriteT) -> None:
        """Queue a write, and have all waiting writes stored."""
        self.waiting.append(write)
        self._is_due = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def flush(self) -> None:
        """Have all waiting writes stored."""
        if self.waiting:
            self.submit(self.waiting.pop())

    async def aclose(self) -> None:
        """Wait until every submitted write is stored, or has failed."""
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
                    await asyncio.sleep(0)  # a store in memory never suspends
        finally:
            self._task = None
