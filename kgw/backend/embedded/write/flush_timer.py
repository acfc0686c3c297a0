"""Syncs the acknowledged records of relaxed logs after `kgw.flush.ms`.

The interval begins when the event loop acknowledges a record. Only one round of syncs runs at a
time. If a round takes longer than the interval, new records wait for the next round.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kgw.backend.embedded.write.segment_syncs import sync_segments

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.write.relaxed import Flush, RelaxedLogs


class FlushTimer:
    """Syncs each relaxed log when its interval has passed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        relaxed: RelaxedLogs,
        run_in_flusher: Callable[[Callable[[], Any]], Awaitable[Any]],
        executor: Executor,
    ) -> None:
        """`executor` only syncs relaxed logs, so strict appends do not wait for its threads."""
        self._loop = loop
        self._relaxed = relaxed
        self._run_in_flusher = run_in_flusher
        self._executor = executor
        self._since_s: dict[SegmentedLog, float] = {}
        """For each log, the event loop's time at which its oldest record without a sync was
        acknowledged."""
        self._flushing: dict[SegmentedLog, float] = {}
        # The timer's time is stored separately, because uvloop's handle has no `when` if the time
        # is nearly now.
        self._timer: asyncio.Handle | None = None
        self._timer_due_s = 0.0
        self._is_rescheduling = False
        self._round: asyncio.Task[None] | None = None
        self._is_closed = False

    def note(self, log: SegmentedLog) -> None:
        """Schedule a sync of a log that has records that are not durable."""
        due_s = self._since_s.setdefault(log, self._loop.time()) + _interval_s(log)
        if self._timer is None or due_s < self._timer_due_s:
            self._arm(due_s)

    def reschedule(self) -> None:
        """Apply changed settings of logs, once for all changes in this iteration of the loop."""
        if not self._is_rescheduling:
            self._is_rescheduling = True
            self._loop.call_soon(self._reschedule)

    def _reschedule(self) -> None:
        self._is_rescheduling = False
        if self._since_s:
            self._arm(min(since_s + _interval_s(log) for log, since_s in self._since_s.items()))

    def age_s(self) -> float:
        """Return the age of the oldest acknowledged record that is not durable."""
        now_s = self._loop.time()
        return now_s - min((*self._since_s.values(), *self._flushing.values()), default=now_s)

    def _arm(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._round is None and not self._is_closed:
            self._timer = self._loop.call_at(due_s, self._begin)
            self._timer_due_s = due_s

    def _begin(self) -> None:
        self._timer = None
        self._round = self._loop.create_task(self._flush())

    async def _flush(self) -> None:
        try:
            await self._flush_due()
        except Exception as error:  # noqa: BLE001 - a bug must not leave records unsynced in silence
            self._relaxed.directory.fail(error)
            self._is_closed = True
        self._round = None
        self._reschedule()

    async def _flush_due(self) -> None:
        now_s = self._loop.time()
        for log, since_s in list(self._since_s.items()):
            # Logs whose interval is at least half over are synced in this round, too.
            if now_s - since_s >= _interval_s(log) / 2:
                self._flushing[log] = self._since_s.pop(log)
        begin = partial(self._relaxed.begin_flush, list(self._flushing))
        flushes: list[Flush] = await self._run_in_flusher(begin)
        segments = [flush.mark.segment for flush in flushes]
        outcomes = await self._loop.run_in_executor(self._executor, sync_segments, segments)
        moved = await self._run_in_flusher(partial(self._relaxed.finish_flush, flushes, outcomes))
        for log, end_offset in moved:
            if end_offset > log.offsets.durable_end:
                log.offsets.advance_durable(end_offset)
        if any(outcome is not None for outcome in outcomes):
            # After a failed sync no later sync can be trusted, so make no more syncs.
            self._is_closed = True
        else:
            self._flushing.clear()

    async def aclose(self) -> None:
        """Begin no more rounds of syncs, and wait for the running round."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._round is not None:
            await self._round


def _interval_s(log: SegmentedLog) -> float:
    """Return how long a log may keep records that are not durable; 0 for a strict log."""
    return log.settings.flush_interval_ms / 1000 if log.settings.is_relaxed else 0.0
