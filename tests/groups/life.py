"""What a coordinator lives on in tests: a store that fails, a clock that ends with its process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kgw.clock import Clock
from kgw.errors import StorageError
from kgw.state.memory import MemoryStateStore

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Sequence

    from kgw.clock import Timer
    from kgw.coordinator.entry import Reply
    from kgw.state.base import Change
    from kgw.testing.clock import ManualClock

ResultT = TypeVar("ResultT")


class FlakyStore(MemoryStateStore):
    """A store that fails, is slow, or fails after having stored."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0
        self.outcome = "stored"
        self.gate: Future[None] | None = None
        self.held: Sequence[Change] = ()
        self.written: list[Change] = []
        """Everything that was ever stored."""

    def hold(self) -> None:
        """Store nothing until `release`."""
        self.gate = asyncio.get_running_loop().create_future()

    def release(self) -> None:
        """Go on, if the store was held."""
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.set_result(None)

    async def apply(self, changes: Sequence[Change]) -> None:
        self.held = changes
        if self.gate is not None:
            await self.gate
        self.held = ()
        outcome, self.outcome = self.outcome, "stored"
        if outcome != "refused":
            await super().apply(changes)
            self.written += changes
        if outcome != "stored":
            self.failures += 1
            raise StorageError(f"the disk says {outcome}")


class OneLife(Clock):
    """A clock as one process knows it: when that ends, nothing that it has planned comes about."""

    def __init__(self, clock: ManualClock, when_due: Callable[[], object] = lambda: None) -> None:
        """Take the clock of the world, and what is called after whatever was due."""
        self._clock = clock
        self._when_due = when_due
        self._is_over = False
        self.jump_ms = 0
        """What somebody has set the wall clock ahead (I9)."""

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    def cpu_s(self) -> float:
        return self._clock.cpu_s()

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.jump_ms

    async def sleep_until(self, monotonic_s: float) -> None:
        await self._clock.sleep_until(monotonic_s)

    def call_at(self, monotonic_s: float, callback: Callable[[], object]) -> Timer:
        def call() -> None:
            if not self._is_over:
                callback()
                self._when_due()

        return self._clock.call_at(monotonic_s, call)

    def end(self) -> None:
        """The process dies, and all that it was doing."""
        self._is_over = True
        current = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not current:
                task.cancel()


def at_once(reply: Reply[ResultT]) -> ResultT:
    """Return an answer that must be there already."""
    assert reply.is_done, "not answered at once"
    return reply.result
