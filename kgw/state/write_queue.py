"""Queues of entries that are stored together: entries that wait at the same time share a write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


class Awaited(Protocol):
    """An entry whose caller awaits `done`."""

    @property
    def done(self) -> asyncio.Future[None]: ...


WriteT = TypeVar("WriteT")
EntryT = TypeVar("EntryT", bound=Awaited)

FLUSH_WRITES = 1_000
"""The most writes in one flush: their changes are held in memory until it is done."""


class WriteQueue(Generic[WriteT]):
    """Stores writes in the order of their submission, several in one flush."""

    def __init__(
        self, flush: Callable[[list[WriteT]], Awaitable[None]], at_once: int = FLUSH_WRITES
    ) -> None:
        """`flush` stores at most `at_once` writes, answers their callers, and raises nothing."""
        self._flush = flush
        self._at_once = at_once
        self._task: asyncio.Task[None] | None = None
        self._is_due = False
        """Whether a flush of the waiting writes was requested."""
        self.waiting: list[WriteT] = []
        """Writes that are in no flush yet. A flush that fails may remove dependent writes."""

    def submit(self, write: WriteT) -> None:
        """Queue a write, and request a flush of all waiting writes."""
        self.waiting.append(write)
        # The same code as `flush`, without a call: groups submit ten thousand writes a second.
        self._is_due = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def submit_later(self, write: WriteT) -> None:
        """Queue a write for which nobody waits. The next flush stores it."""
        self.waiting.append(write)

    def flush(self) -> None:
        """Request a flush of all waiting writes."""
        self._is_due = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """Wait until every submitted write is stored or has failed."""
        if self.waiting:
            self.flush()
        while (task := self._task) is not None:
            await asyncio.wait([task])
            if task is self._task:
                # The task was cancelled before its first step, as all tasks are when a loop ends.
                self._task = None
                if self.waiting:
                    self.flush()

    async def _run(self) -> None:
        try:
            while self.waiting and self._is_due:
                batch, self.waiting = self.waiting[: self._at_once], self.waiting[self._at_once :]
                self._is_due = bool(self.waiting)
                await self._flush(batch)
                if self._is_due:
                    await asyncio.sleep(0)  # a flush to memory never yields to the event loop
        finally:
            self._task = None


class CommitQueue(WriteQueue[EntryT]):
    """Stores entries in the order of their submission, several in one commit.

    A caller that gives up cancels only its own future: its entry is stored all the same.
    """

    def __init__(
        self,
        commit: Callable[[list[EntryT]], Awaitable[Mapping[int, Exception]]],
        *,
        when_stored: Callable[[], Awaitable[None]] | None = None,
        at_once: int = FLUSH_WRITES,
    ) -> None:
        """`commit` stores entries together; if it raises, all of them have failed.

        It returns an error for each refused entry, by the entry's number. An entry that it removes
        from the end of its list belongs to the next commit. After a successful commit, when the
        futures of its entries are done, `when_stored` runs before the next commit.
        """
        super().__init__(self._store, at_once)
        self._commit = commit
        self._when_stored = when_stored

    async def _store(self, batch: list[EntryT]) -> None:
        entries = batch.copy()
        failure: Exception | None = None
        refused: Mapping[int, Exception] = {}
        try:
            refused = await self._commit(entries)
        except Exception as error:  # noqa: BLE001 - the callers raise it
            failure = error
        for number, entry in enumerate(entries):
            refusal = failure or refused.get(number)
            if entry.done.done():
                continue  # its caller has given up
            if refusal is None:
                entry.done.set_result(None)
            else:
                entry.done.set_exception(refusal)
        if len(entries) < len(batch):
            self.waiting[:0] = batch[len(entries) :]
            self.flush()
        if failure is None and self._when_stored is not None:
            await self._when_stored()
