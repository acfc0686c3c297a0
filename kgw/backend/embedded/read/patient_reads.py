"""Runs reads and other work in the I/O threads, and in more threads while reads hang.

If a disk hangs for some files, each read of them blocks a thread, but reads of other files must
continue. So further threads are started while jobs wait, and end when no jobs are queued. While the
disk answers in time, there are no further threads, because more concurrent reads would delay the
syncs of appends.
"""

from __future__ import annotations

from asyncio import CancelledError, wrap_future
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.clock import Clock, Timer

_Result = TypeVar("_Result")

STALLED_S: Final = 0.1
"""A read that takes longer counts as hanging, and another thread is started. Even reads of a busy
disk take less time."""
_PER_STALL: Final = 16
MOST_THREADS: Final = 96
"""The most threads in addition to the usual ones."""


class _Job:
    __slots__ = ("begun_s", "function", "future", "is_read")

    def __init__(self, function: Callable[[], Any], *, is_read: bool) -> None:
        self.function = function
        self.is_read = is_read
        self.future: Future[Any] = Future()
        self.begun_s = 0.0


class PatientReads:
    """Queues reads and other work, which threads take from the queue.

    Its methods are called in the event loop.
    """

    def __init__(self, usual: ThreadPoolExecutor, clock: Clock, most: int = MOST_THREADS) -> None:
        self._usual = usual
        self._clock = clock
        self._most = most
        # Several threads may use both ends of a deque, and add to or remove from a set.
        self._jobs: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._calls: deque[None] = deque()
        """One item for each submitted call of `_answer_call` that no usual thread has begun yet."""
        self._more: ThreadPoolExecutor | None = None
        self._helping: set[Future[None]] = set()
        """The running `_help` calls of further threads, which end when no jobs are queued."""
        self._timer: Timer | None = None

    @property
    def helpers(self) -> int:
        """Number of further threads."""
        return sum(not one.done() for one in self._helping)

    @property
    def queued(self) -> int:
        """Number of jobs that no thread has begun yet."""
        return len(self._jobs)

    async def run(self, function: Callable[[], _Result], *, is_read: bool = True) -> _Result:
        """Run a function in one of the threads. Raises the errors of the function.

        If `is_read` is False, the function may take long, so it starts no further thread. But it is
        in the same queue, so further threads that were started for reads may run it.
        """
        job = _Job(function, is_read=is_read)
        self._jobs.append(job)
        if len(self._calls) < len(self._jobs):
            # Do not submit a call for each job. If a further thread takes a job, the job's call
            # remains in the executor, and such calls would pile up while the usual threads hang.
            self._calls.append(None)
            self._usual.submit(self._answer_call)
        if self._more is not None:
            # Further threads exist, so the usual threads probably hang.
            self._begin(1)
        if is_read and self._timer is None:
            self._arm(self._clock.monotonic_s())
        try:
            result: _Result = await wrap_future(job.future)
        except CancelledError:
            with suppress(ValueError, IndexError):  # it runs, or the queue changes
                self._jobs.remove(job)
            raise
        return result

    def close(self) -> None:
        """Start no more threads, and wait for the running ones."""
        if self._timer is not None:
            self._timer.cancel()
        if self._more is not None:
            self._more.shutdown()

    def _answer_call(self) -> None:
        self._calls.pop()
        self._work()

    def _work(self) -> bool:
        """Run the oldest queued job; return whether there was one. Runs in a thread."""
        try:
            job = self._jobs.popleft()
        except IndexError:
            return False
        if not job.future.set_running_or_notify_cancel():
            return True
        job.begun_s = self._clock.monotonic_s()
        if job.is_read:
            self._running.add(job)
        # Remove the job from the running ones before its caller gets the result.
        try:
            result = job.function()
        except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
            self._running.discard(job)
            job.future.set_exception(error)
        else:
            self._running.discard(job)
            job.future.set_result(result)
        return True

    def _help(self) -> None:
        while self._work():
            pass

    def _arm(self, begun_s: float) -> None:
        self._timer = self._clock.call_at(begun_s + STALLED_S, self._look)

    def _look(self) -> None:
        """Start further threads if reads hang while jobs are queued; end idle ones."""
        self._timer = None
        now_s = self._clock.monotonic_s()
        begun_s = [job.begun_s for job in self._running.copy()]
        later_s = [one for one in begun_s if one + STALLED_S > now_s]
        stalled = len(begun_s) - len(later_s)
        if stalled and self._jobs:
            if self._more is None:
                self._more = ThreadPoolExecutor(self._most, "kgw-io-more")
            self._begin(min(_PER_STALL * stalled, len(self._jobs)))
        elif not self.helpers and self._more is not None:
            # All further threads are idle: end them, which frees their stacks.
            self._more.shutdown(wait=False)
            self._more = None
        if self._jobs or begun_s or self._more is not None:
            self._arm(min(later_s, default=now_s))

    def _begin(self, count: int) -> None:
        """Let up to `count` more threads take jobs from the queue."""
        self._helping = {one for one in self._helping if not one.done()}
        for _ in range(min(count, self._most - len(self._helping))):
            if self._more is not None:
                try:
                    self._helping.add(self._more.submit(self._help))
                except RuntimeError:
                    return  # the system allows no more threads, or the backend is being closed
