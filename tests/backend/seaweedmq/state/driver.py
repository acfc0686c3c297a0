"""State stores over a filer in memory, and how they are killed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kgw.backend.seaweedmq.state.store import ChainStateStore, StateOptions
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, FilerStore, MemoryFiler

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kgw.state.base import Row, StateStore
    from kgw.testing.filer import FilerRequest

DIRECTORY: Final = "/topics/.kgw/kafka/state"
SNAPSHOTS: Final = f"{DIRECTORY}-snapshots"
SMALL: Final = StateOptions(
    commit_bytes=150,
    file_bytes=500,
    snapshot_bytes=300,
    commit_cost_bytes=20,
    part_bytes=100,
    reads_at_once=2,
)
"""So small that a few commits fill files and make snapshots of several parts."""
_TURNS: Final = 100
"""Of the loop, after which nothing more comes of itself."""


class Gateway:
    """A filer of one process, and the state store on it."""

    def __init__(self, filers: FilerStore, options: StateOptions = SMALL) -> None:
        self.filer = MemoryFiler(filers)
        self.clock = ManualClock()
        self.store = ChainStateStore(self.filer, self.clock, DIRECTORY, options)

    async def open(self) -> ChainStateStore:
        """Open both."""
        await self.filer.open()
        await self.store.open()
        return self.store

    async def aclose(self) -> None:
        """Close both."""
        await self.store.aclose()
        await self.filer.aclose()

    async def answer(self, task: asyncio.Task[None], calls: int) -> FilerRequest | None:
        """Answer so many calls, one after the other, and return the next one, unanswered.

        None when the task, and what it leaves behind, makes no more of them.
        """
        self.filer.hold_all(*CallKind)
        while True:
            request = await self._next_request()
            if request is None or calls == 0:
                assert request is not None or task.done(), "it waits for what nobody does"
                return request
            calls -= 1
            request.answer()

    async def _next_request(self) -> FilerRequest | None:
        for _ in range(_TURNS):
            for request in self.filer.held:
                if not request.is_answered:
                    return request
            await asyncio.sleep(0)
        return None


async def end_others() -> None:
    """End everything that runs but the test itself, as the end of a process does."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def killed_at(
    gateway: Gateway, work: Coroutine[None, None, None], calls: int, *, is_done: bool
) -> bool:
    """Do work and kill the process at a call of its filer, which the filer does or never gets.

    Returns whether it came so far: otherwise all of the work is done.
    """
    task = asyncio.ensure_future(work)
    request = await gateway.answer(task, calls)
    if request is not None and is_done:
        request.deliver()
    gateway.filer.is_away = True  # nobody hears what a process asks for that is not there
    await end_others()
    return request is not None


async def rows_of(store: StateStore) -> dict[str, dict[str, Row]]:
    """Return every row of a store."""
    return {kind: await store.load(kind) for kind in await store.kinds()}


async def reopened(filers: FilerStore) -> dict[str, dict[str, Row]]:
    """Return every row that another process finds."""
    gateway = Gateway(filers)
    rows = await rows_of(await gateway.open())
    await gateway.aclose()
    return rows
