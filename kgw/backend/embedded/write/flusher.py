"""The thread that writes segments, and its queues to and from the event loop.

All changes of segments run in this one thread, so writing needs no lock. The thread takes the
queued appends and writes and syncs them as one group. Then the event loop answers them. During the
sync, the event loop queues appends for the next group.
"""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections import deque
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

from kgw.completion import Completion
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Sequence

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.write.write_path import DiskAppend, WritePath
    from kgw.records.batch import RecordBatch

_Result = TypeVar("_Result")
_log = EventLogger(__name__)

ANSWERED_PER_TURN: Final = 400
"""The most appends that are answered in one iteration of the event loop, so that other work runs in
between (docs/decisions/0081-one-thread-writes.md)."""


def nothing() -> None:
    """Do nothing. A caller that waits for this job waits for all earlier jobs."""


class Flusher:
    """The thread, its queues of appends and jobs, and the queue of results for the event loop."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        writes: WritePath,
        show: Callable[[list[DiskAppend], list[SegmentedLog]], None],
    ) -> None:
        """`show` is called in the event loop with each group, before the group's appends succeed.

        The second argument of `show` is the list of logs whose high watermark has moved.
        """
        self._loop = loop
        self._writes = writes
        self._show = show
        # Both ends of a deque may be used from two threads.
        self._jobs: deque[Callable[[], None]] = deque()
        self._wakeup: SimpleQueue[bool] = SimpleQueue()
        self._is_awake = False
        self._completed: deque[list[DiskAppend] | Callable[[], None]] = deque()
        """Groups to answer and results of jobs, in the order in which the thread finished them."""
        self._is_completion_due = False
        self._thread = Thread(target=self._run, name="kgw-flusher", daemon=True)
        self._thread.start()

    # --- the event loop --------------------------------------------------------------------------

    def append(self, log: SegmentedLog, batches: Sequence[RecordBatch]) -> DiskAppend:
        """Queue batches for writing, as `WritePath.submit` does, and wake the thread."""
        append = self._writes.submit(log, batches)
        if not self._is_awake:
            self._wake()
        return append

    def run(self, function: Callable[[], _Result]) -> Completion[_Result]:
        """Run a function in the thread, between two groups."""
        done: Completion[_Result] = Completion()
        self._jobs.append(partial(self._do, function, done))
        if not self._is_awake:
            self._wake()
        return done

    def _wake(self) -> None:
        """Wake the thread at the end of this iteration of the loop.

        If the thread woke at once, it would compete for the interpreter with the loop, which is
        still receiving appends. Each switch would cost both of them time.
        """
        self._is_awake = True
        self._loop.call_soon(self._wakeup.put, True)

    async def aclose(self) -> None:
        """Write and answer the queued appends, and end the thread. A second call does nothing."""
        if not self._thread.is_alive():
            return
        await self.run(nothing)
        self._wakeup.put(False)
        await to_thread(self._thread.join)
        while self._completed:
            self._complete()
            await sleep(0)

    def _complete(self) -> None:
        """Answer one group or deliver the result of one job; schedule the next one."""
        # Reset this first, so that results that the thread adds from now on schedule another call.
        self._is_completion_due = False
        if not self._completed:
            return
        one = self._completed.popleft()
        if self._completed:
            self._have_completed()
        if callable(one):
            one()
            return
        try:
            self._show(one, self._writes.complete_group(one))
            for append in one:
                append.finish()
        except Exception as error:  # noqa: BLE001 - a bug must not leave callers waiting
            _log.error("a group of appends could not be answered", error=error)
            left = [append for append in one if not append.is_done]
            self._give_up(left, error)
            for append in left:
                append.finish()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        pending, jobs, wakeup = self._writes.pending, self._jobs, self._wakeup
        while wakeup.get():
            while True:
                # Alternate, so that the creation of a thousand partitions does not delay appends.
                if jobs:
                    jobs.popleft()()
                if pending:
                    self._write(self._writes.take_group())
                elif not jobs:
                    self._is_awake = False
                    # Check the queues again, because the loop put no token for work that it queued
                    # before `_is_awake` was reset.
                    if not pending and not jobs:
                        break
                    self._is_awake = True

    def _write(self, group: list[DiskAppend]) -> None:
        try:
            self._writes.write_group(group)
        except Exception as error:  # noqa: BLE001 - a bug must not leave callers waiting for ever
            self._give_up(group, error)
        for start in range(0, len(group), ANSWERED_PER_TURN):
            self._completed.append(group[start : start + ANSWERED_PER_TURN])
        self._have_completed()

    def _do(self, function: Callable[[], _Result], done: Completion[_Result]) -> None:
        try:
            done.result = function()
        except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
            done.error = error
        self._completed.append(done.finish)
        self._have_completed()

    def _have_completed(self) -> None:
        """Schedule a call of `_complete` in the loop, unless one is scheduled already."""
        if not self._is_completion_due:
            self._is_completion_due = True
            self._loop.call_soon_threadsafe(self._complete)

    def _give_up(self, group: list[DiskAppend], error: Exception) -> None:
        directory = self._writes.directory
        directory.fail(error)
        for append in group:
            append.error = append.error or directory.failure
