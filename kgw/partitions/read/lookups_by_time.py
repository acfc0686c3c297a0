"""The lookups by time of one request: a few at a time, within one time limit."""

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
"""How many lookups by time one request runs at the same time: fewer than there are I/O threads, so
that a request for ten thousand partitions leaves threads for other requests."""
_STALLED_S = 0.1
"""After this time a running lookup frees its slot for the next one: the storage may hang for one
partition only."""
_MORE_WHILE_STALLED = 9
"""Slots that are added when the first lookup stalls.

The next lookups may stall, too, and a readable partition should be reached in time even behind
hundreds of them.
"""


class Lookups:
    """The lookups by time of one request: a few at a time, within one time limit."""

    def __init__(self, clock: Clock, limit_s: float = STORAGE_S) -> None:
        """The time limit begins now."""
        self.clock = clock
        self.limit_s = limit_s
        self.deadline_s = clock.monotonic_s() + limit_s
        self._turns = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        self._has_stalled = False

    async def run(self, find: Callable[[], Coroutine[None, None, _ResultT]]) -> _ResultT:
        """Run a coroutine in a slot, which becomes free early if the storage stalls.

        Raises StorageError if the storage has not answered in time.
        """
        # Each lookup frees its slot soon, even if the storage hangs.
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
