"""A memory budget that many tasks share, in bytes."""

from __future__ import annotations

from asyncio import get_running_loop
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import Future


class ByteBudget:
    """Grants bytes up to a limit, in order of arrival. A larger request gets the whole budget.

    Used in one event loop.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, Future[None]]] = deque()

    def take(self, size_bytes: int) -> bool:
        """Take bytes; return False if too few are free or other tasks wait."""
        if self._waiting or not self._has(size_bytes):
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Give bytes back, and grant them to waiting tasks in order of arrival."""
        self.used_bytes -= size_bytes
        while self._waiting and self._has(self._waiting[0][0]):
            wanted_bytes, granted = self._waiting.popleft()
            if not granted.cancelled():
                self.used_bytes += wanted_bytes
                granted.set_result(None)

    async def take_later(self, size_bytes: int) -> None:
        """Wait until bytes are free, then take them; the caller must give them back."""
        if self.take(size_bytes):
            return
        granted: Future[None] = get_running_loop().create_future()
        self._waiting.append((size_bytes, granted))
        try:
            await granted
        except BaseException:
            if granted.done() and not granted.cancelled():
                self.give_back(size_bytes)
            else:
                # The next request may now be granted.
                with suppress(ValueError):  # it is not queued any more
                    self._waiting.remove((size_bytes, granted))
                self.give_back(0)
            raise

    def _has(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self.limit_bytes
