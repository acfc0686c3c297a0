"""The thread that writes, and the way of appends to it and back.

Everything that changes segments runs in this one thread, so that nothing below needs a lock. The
thread takes whatever is queued, writes and syncs it as one group, and has the event loop answer it.
While it syncs, the next group gathers.
"""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections import deque
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

from kgw.logs import EventLogger

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Sequence

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.write.write_path import Append, WritePath
    from kgw.records.batch import RecordBatch

_Result = TypeVar("_Result")
_log = EventLogger(__name__)

ANSWERED_PER_TURN: Final = 400
"""Appends that are answered in one turn of the loop, however many one sync has made durable: others
are served in between (docs/decisions/0081-one-thread-writes.md)."""


class Flusher:
    """The thread, its inbox, and what is to be answered."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        writes: WritePath,
        answer: Callable[[list[Append]], None],
    ) -> None:
        """`answer` is called in the loop, with group after group."""
        self._loop = loop
        self._writes = writes
        self._answer = answer
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
            self._is_awake = True
            self._wakeup.put(True)
        return append

    async def run(self, function: Callable[[], _Result]) -> _Result:
        """Run a function in the thread, between two groups, and return its result."""
        future: Future[_Result] = self._loop.create_future()
        self._jobs.append(partial(self._do, function, future))
        if not self._is_awake:
            self._is_awake = True
            self._wakeup.put(True)
        return await future

    async def aclose(self) -> None:
        """Write and answer what is queued, and let the thread end. A second call does nothing."""
        if not self._thread.is_alive():
            return
        await self.run(_nothing)
        self._wakeup.put(False)
        await to_thread(self._thread.join)
        while self._completed:
            self._complete()
            await sleep(0)

    def _complete(self) -> None:
        """Answer as many appends as one turn may; the rest in later turns."""
        # First: whatever the thread adds from now on makes a call of its own due.
        self._is_completion_due = False
        completed = self._completed
        answered = 0
        while completed:
            one = completed[0]
            if not callable(one):
                answered += len(one)
                if answered > ANSWERED_PER_TURN:
                    # Unless the thread has made one due meanwhile: each of two would go on.
                    if not self._is_completion_due:
                        self._is_completion_due = True
                        self._loop.call_soon(self._complete)
                    return
            completed.popleft()
            if callable(one):
                one()
                continue
            try:
                self._answer(one)
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

    def _do(self, function: Callable[[], _Result], future: Future[_Result]) -> None:
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
            self._completed.append(partial(_set_exception, future, error))
        else:
            self._completed.append(partial(_set_result, future, result))
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


def _set_result(future: Future[_Result], result: _Result) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: Future[_Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _nothing() -> None:
    """Wait for one's turn."""
