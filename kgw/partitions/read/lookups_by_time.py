"""The look-ups by time of one request: a few at a time, and all of them within one time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kgw.errors import StorageError
from kgw.partitions.waits import STORAGE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kgw.clock import Clock

_ResultT = TypeVar("_ResultT")

LOOKUPS_AT_ONCE = 3
"""Look-ups by time that one request runs at the same time: fewer than there are I/O threads, so
that a request for ten thousand partitions, or topics, leaves a thread to other requests."""
_STALLED_S = 0.1
"""After this time a running lookup frees its slot for the next: the storage may hang for its
partition alone."""
_MORE_WHILE_STALLED = 9
"""Slots added when the first look-up stalls: the next ones may stall as well, and a partition that
can be read should be reached in time even behind some hundreds of them."""


class Lookups:
    """The look-ups by time of one request: a few at a time, and all of them within one time."""

    def __init__(self, clock: Clock, limit_s: float = STORAGE_S) -> None:
        """The time begins now."""
        self.clock = clock
        self.limit_s = limit_s
        self.deadline_s = clock.monotonic_s() + limit_s
        self._turns = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self._has_stalled = False

    async def run(self, find: Callable[[], Coroutine[None, None, _ResultT]]) -> _ResultT:
        """Run a coroutine in one of the slots, which becomes free early if the storage stalls.

        Raises StorageError if the storage has not answered in time.
        """
        # Each look-up leaves its slot soon, even if the storage hangs.
        await self._turns.acquire()
        has_turn = True
        is_over = False

        def leave() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                self._turns.release()

        now_s = self.clock.monotonic_s()
        if now_s >= self.deadline_s:
            leave()
            raise self._late()
        looking = asyncio.ensure_future(find())

        def stall() -> None:
            if not self._has_stalled:
                self._has_stalled = True
                for _ in range(_MORE_WHILE_STALLED):
                    self._turns.release()
            leave()

        def end() -> None:
            nonlocal is_over
            is_over = True
            looking.cancel()

        timers = (
            self.clock.call_at(now_s + _STALLED_S, stall),
            self.clock.call_at(self.deadline_s, end),
        )
        try:
            return await looking
        except asyncio.CancelledError:
            if not is_over:
                raise
            raise self._late() from None
        finally:
            for timer in timers:
                timer.cancel()
            leave()

    def _late(self) -> StorageError:
        return StorageError(f"the storage has not answered within {self.limit_s:g} s")
