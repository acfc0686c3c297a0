"""What holds for every test of the seaweedmq backend."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest


class TakenLocks:
    """Who holds which lock of the loop."""

    def __init__(self) -> None:
        self.count = 0
        """How often one was taken."""
        self._holders: dict[asyncio.Lock, asyncio.Task[object] | None] = {}

    def check(self, lock: asyncio.Lock) -> None:
        """Whoever holds a lock and asks for it would wait for itself."""
        if lock.locked() and self._holders.get(lock) is asyncio.current_task():
            raise AssertionError(f"{lock!r} is taken twice by {asyncio.current_task()!r}")

    def note(self, lock: asyncio.Lock) -> None:
        """Say that it was taken."""
        self.count += 1
        self._holders[lock] = asyncio.current_task()

    def forget(self, lock: asyncio.Lock) -> None:
        """Say that it was let go."""
        self._holders.pop(lock, None)


@pytest.fixture(autouse=True)
def taken_locks(monkeypatch: pytest.MonkeyPatch) -> TakenLocks:
    """Fail at once where a task asks for a lock that it holds, rather than wait for ever."""
    taken = TakenLocks()
    acquire, release = asyncio.Lock.acquire, asyncio.Lock.release

    async def watched_acquire(lock: asyncio.Lock) -> Literal[True]:
        taken.check(lock)
        await acquire(lock)
        taken.note(lock)
        return True

    def watched_release(lock: asyncio.Lock) -> None:
        taken.forget(lock)
        release(lock)

    monkeypatch.setattr(asyncio.Lock, "acquire", watched_acquire)
    monkeypatch.setattr(asyncio.Lock, "release", watched_release)
    return taken
