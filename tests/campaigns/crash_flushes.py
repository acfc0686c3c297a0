"""The time of relaxed partitions in a crash campaign: when they are synced, and what may be lost.

Time is simulated. It passes between the steps of a machine, and while a disk takes its time over a
flush; rounds begin exactly when they are due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.embedded.relaxed import FlushSchedule
from kgw.backend.embedded.segment_syncs import sync_segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from random import Random

    from kgw.backend.embedded.log import SegmentedLog
    from kgw.backend.embedded.store import Store
    from kgw.types import PartitionKey

FLUSH_INTERVAL_MS = 100
MOST_STEP_S = 0.12
MOST_SYNC_S = 0.03


class Flushes:
    """The timer of a machine."""

    has_timer = True
    """A control has none."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.now_s = 0.0
        self.schedule = FlushSchedule()
        self._longest_s = 0.0
        self._began_s: float | None = None
        self.rounds = 0

    def begin_life(self) -> None:
        """A new process knows of nothing that is not durable."""
        self.schedule = FlushSchedule()
        self._began_s = None

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
        if store.failure is not None:
            # What was not durable when a sync failed never will be, and that has been said: a power
            # loss takes no more of it for coming later.
            return
        while self.has_timer and store.failure is None:
            due_s = self.schedule.next_due_s()
            if due_s is None or due_s > until_s:
                break
            self.now_s = max(self.now_s, due_s)
            self._round(store, beside, durable)
        self.now_s = max(self.now_s, until_s)

    def _round(
        self,
        store: Store,
        beside: Callable[[], AbstractContextManager[None]],
        durable: Callable[[PartitionKey, int], None],
    ) -> None:
        self.rounds += 1
        self._began_s = self.now_s
        flushes = store.relaxed.begin_flush(self.schedule.begin(self.now_s))
        outcomes = []
        with beside():
            for flush in flushes:
                self.now_s += self._random.uniform(0, MOST_SYNC_S)
                outcomes.append(sync_segment(flush.mark.segment))
        for log, end_offset in store.relaxed.finish_flush(flushes, outcomes):
            if end_offset > log.offsets.durable_end:
                log.offsets.advance_durable(end_offset)
            durable(log.key, end_offset)
        self._longest_s = max(self._longest_s, self.now_s - self._began_s)
        self._began_s = None
        self.schedule.finish()

    def note(self, log: SegmentedLog) -> None:
        """Note that a partition has answered what is not durable."""
        self.schedule.note(log, self.now_s)

    def window_s(self) -> float:
        """Return how old at most what a power loss takes now may be, as it is declared.

        kgw.flush.ms and one flush; where a flush takes longer than that, two of them.
        """
        elapsed_s = 0.0 if self._began_s is None else self.now_s - self._began_s
        flush_s = max(self._longest_s, elapsed_s)
        return max(FLUSH_INTERVAL_MS / 1000, flush_s) + flush_s
