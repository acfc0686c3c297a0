"""The thread that writes, and the way of appends to it and back.

Everything that changes segments runs in this one thread, so that writing needs no lock. The thread
takes whatever is queued, writes and syncs it as one group, and has the event loop answer it.
While it syncs, the next group gathers.
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
    from kgw.backend.embedded.write.write_path import Append, WritePath
    from kgw.records.batch import RecordBatch

_Result = TypeVar("_Result")
_log = EventLogger(__name__)

ANSWERED_PER_TURN: Final = 400
"""Appends that are answered in one turn of the loop, however many one sync has made durable: others
are served in between (docs/decisions/0081-one-thread-writes.md)."""


def nothing() -> None:
    """Do nothing: whoever waits for it has waited for all earlier jobs."""


class Flusher:
    """The thread, its inbox, and what is to be answered."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        writes: WritePath,
        show: Callable[[list[Append], list[SegmentedLog]], None],
    ) -> None:
        """`show` is called in the loop, with group after group, before its appends succeed.

        And with the logs whose high watermark the group has moved.
        """
        self._loop = loop
        self._writes = writes
        self._show = show
        # A deque's ends are safe to use from two threads.
        self._jobs: deque[Callable[[], None]] = deque()
        self._wakeup: SimpleQueue[bool] = SimpleQueue()
        self._is_awake = False
        self._completed: deque[list[Append] | Callable[[], None]] = deque()
        """Groups to be answered, and outcomes of jobs, in the order in which they came about."""
        self._is_completion_due = False
        self._thread = Thread(target=self._run, name="kgw-flusher", daemon=True)
        self._thread.start()

    # --- the event loop --------------------------------------------------------------------------

    def append(self, log: SegmentedLog, batches: Sequence[RecordBatch]) -> Append:
        """Have batches written, as `WritePath.submit`."""
        append = self._writes.submit(log, batches)
        if not self._is_awake:
            self._wake()
        return append

    def run(self, function: Callable[[], _Result]) -> Completion[_Result]:
        """Have a function run in the thread, between two groups."""
        done: Completion[_Result] = Completion()
        self._jobs.append(partial(self._do, function, done))
        if not self._is_awake:
            self._wake()
        return done

    def _wake(self) -> None:
        """Wake the thread at the end of this turn of the loop.

        Woken at once, it would wait for the interpreter until the loop has taken in what else has
        come, and take turns with it: each costs both of them a switch.
        """
        self._is_awake = True
        self._loop.call_soon(self._wakeup.put, True)

    async def aclose(self) -> None:
        """Write and answer what is queued, and let the thread end. A second call does nothing."""
        if not self._thread.is_alive():
            return
        await self.run(nothing)
        self._wakeup.put(False)
        await to_thread(self._thread.join)
        while self._completed:
            self._complete()
            await sleep(0)

    def _complete(self) -> None:
        """Answer one group, or tell what came of a job; the next one in a later turn."""
        # First: whatever the thread adds from now on makes a call of its own due.
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
                # In turn: a thousand partitions to create must not keep appends waiting.
                if jobs:
                    jobs.popleft()()
                if pending:
                    self._write(self._writes.take_group())
                elif not jobs:
                    self._is_awake = False
                    # Whoever came in between has not put a token: look once more.
                    if not pending and not jobs:
                        break
                    self._is_awake = True

    def _write(self, group: list[Append]) -> None:
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
        """Have the loop look at `_completed`, unless it is about to."""
        if not self._is_completion_due:
            self._is_completion_due = True
            self._loop.call_soon_threadsafe(self._complete)

    def _give_up(self, group: list[Append], error: Exception) -> None:
        directory = self._writes.directory
        directory.fail(error)
        for append in group:
            append.error = append.error or directory.failure
