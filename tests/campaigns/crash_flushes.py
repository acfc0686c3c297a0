"""The time of relaxed partitions in a crash campaign: when they are synced, and what may be lost.

The timer is the one that a gateway has, in a loop whose time is simulated. It passes between the
steps of a machine, and while a disk takes its time over a flush.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from kgw.backend.embedded.write.flush_timer import FlushTimer

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager
    from random import Random

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.store import Store
    from kgw.types import PartitionKey
    from tests.campaigns.simulated_loop import SimulatedLoop
    from tests.simulated_fs import SimulatedFs

_Result = TypeVar("_Result")

FLUSH_INTERVAL_MS = 100
MOST_STEP_S = 0.12
MOST_SYNC_S = 0.03


class Flushes:
    """The timer of a machine, and the threads that it has sync."""

    has_timer = True
    """A control has none."""

    def __init__(self, random: Random, loop: SimulatedLoop) -> None:
        self._random = random
        self._loop = loop
        self._timer: FlushTimer
        self._store: Store
        self._beside: Callable[[], AbstractContextManager[None]]
        self._longest_s = 0.0
        self._began_s: float | None = None
        self._failed_s: float | None = None
        self.rounds = 0

    @property
    def now_s(self) -> float:
        """The time; it never goes back."""
        return self._loop.now_s

    @property
    def lost_s(self) -> float:
        """When it was lost what a power loss finds not to be durable: now, or as a sync failed.

        What was not durable then never will be, and that has been said.
        """
        return self.now_s if self._failed_s is None else self._failed_s

    def begin_life(self, store: Store) -> None:
        """A new process knows of nothing that is not durable, and nothing of the old one runs."""
        self._loop.forget_all()
        self._store = store
        self._began_s = None
        self._failed_s = None
        self._timer = FlushTimer(
            self._loop, store.writes.relaxed, self._run_in_flusher, cast("Executor", self)
        )

    def pass_time(
        self,
        store: Store,
        beside: Callable[[], AbstractContextManager[None]],
        durable: Callable[[PartitionKey, int], None],
    ) -> None:
        """Let some time go by, with the rounds that are due in it.

        `beside` lets others work meanwhile; `durable` is told of each partition's new durable end.
        """
        until_s = self.now_s + self._random.uniform(0, MOST_STEP_S)
        if store.directory.failure is not None:
            return
        self._beside = beside
        rounds = self.rounds
        self._loop.run_until(until_s)
        if self.rounds > rounds:
            for log in store.logs.values():
                durable(log.key, log.offsets.durable_end)

    async def _run_in_flusher(self, function: Callable[[], _Result]) -> _Result:
        """Run something between two groups: the first and the last thing of a round."""
        if self._began_s is None:
            self.rounds += 1
            self._began_s = self.now_s
            return function()
        result = function()
        if self._store.directory.failure is not None and self._failed_s is None:
            self._failed_s = self.now_s
        self._longest_s = max(self._longest_s, self.now_s - self._began_s)
        self._began_s = None
        return result

    def submit(self, function: Callable[..., _Result], *arguments: object) -> Future[_Result]:
        """Run the syncs of a round; each takes its time, and others work meanwhile."""
        fs = cast("SimulatedFs", self._store.fs)
        observer = fs.on_operation

        def observe(call: str, path: str) -> None:
            if call == "fdatasync":
                self._loop.now_s += self._random.uniform(0, MOST_SYNC_S)
            if observer is not None:
                observer(call, path)

        future: Future[_Result] = self._loop.create_future()
        fs.on_operation = observe
        try:
            with self._beside():
                future.set_result(function(*arguments))
        finally:
            fs.on_operation = observer
        return future

    def note(self, log: SegmentedLog) -> None:
        """Note that a partition has answered what is not durable."""
        if self.has_timer:
            self._timer.note(log)

    def reschedule(self) -> None:
        """Obey settings that have changed."""
        self._timer.reschedule()

    def window_s(self) -> float:
        """Return how old at most what a power loss takes now may be, as it is declared.

        kgw.flush.ms and one flush; where a flush takes longer than that, two of them.
        """
        elapsed_s = 0.0 if self._began_s is None else self.now_s - self._began_s
        flush_s = max(self._longest_s, elapsed_s)
        return max(FLUSH_INTERVAL_MS / 1000, flush_s) + flush_s
