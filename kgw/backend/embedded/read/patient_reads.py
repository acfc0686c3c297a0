"""What the I/O threads do: reads and other work, in more threads while some of the reads hang.

A disk that hangs for some files must not keep others from being read: a thread that waits for it is
lost for as long. So more threads take what is queued, as many as it takes, and end when nothing is.
On a disk that answers there are never more, or its producers' syncs would wait behind them.
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
"""A read that takes longer has its thread replaced. A busy disk needs less."""
_PER_STALL: Final = 16
MOST_THREADS: Final = 96
"""Beside the usual ones."""


class _Job:
    __slots__ = ("begun_s", "function", "future", "is_read")

    def __init__(self, function: Callable[[], Any], *, is_read: bool) -> None:
        self.function = function
        self.is_read = is_read
        self.future: Future[Any] = Future()
        self.begun_s = 0.0


class PatientReads:
    """Hands reads and other work to threads, which take what is queued by themselves.

    Used in the loop.
    """

    def __init__(self, usual: ThreadPoolExecutor, clock: Clock, most: int = MOST_THREADS) -> None:
        self._usual = usual
        self._clock = clock
        self._most = most
        # A deque's ends are safe to use from several threads, and so is the set's membership.
        self._jobs: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._calls: deque[None] = deque()
        """One for each time that a usual thread is still to look at what is queued."""
        self._more: ThreadPoolExecutor | None = None
        self._helping: set[Future[None]] = set()
        """What the further threads do: each goes on until nothing is queued."""
        self._timer: Timer | None = None

    @property
    def helpers(self) -> int:
        """How many further threads there are."""
        return sum(not one.done() for one in self._helping)

    @property
    def queued(self) -> int:
        """How many jobs no thread has begun yet."""
        return len(self._jobs)

    async def run(self, function: Callable[[], _Result], *, is_read: bool = True) -> _Result:
        """Run a function in one of the threads. Raises what it raises.

        Other work than reads may take long: that does not count as a disk that hangs, and begins
        no thread. It is queued with the reads, so that the threads that reads have begun take it.
        """
        job = _Job(function, is_read=is_read)
        self._jobs.append(job)
        if len(self._calls) < len(self._jobs):
            # Not for each read: what others have taken meanwhile leaves its call behind, and while
            # the usual threads hang nobody takes those.
            self._calls.append(None)
            self._usual.submit(self._answer_call)
        if self._more is not None:
            # The usual threads hang, as far as is known.
            self._begin(1)
        if is_read and self._timer is None:
            self._arm(self._clock.monotonic_s())
        try:
            result: _Result = await wrap_future(job.future)
        except CancelledError:
            with suppress(ValueError, IndexError):  # it is under way, or others take theirs
                self._jobs.remove(job)
            raise
        return result

    def close(self) -> None:
        """Begin no more threads, and wait for those that there are."""
        if self._timer is not None:
            self._timer.cancel()
        if self._more is not None:
            self._more.shutdown()

    def _answer_call(self) -> None:
        self._calls.pop()
        self._work()

    def _work(self) -> bool:
        """Do what has been queued for longest; whether there was anything. In a thread."""
        try:
            job = self._jobs.popleft()
        except IndexError:
            return False
        if not job.future.set_running_or_notify_cancel():
            return True
        job.begun_s = self._clock.monotonic_s()
        if job.is_read:
            self._running.add(job)
        try:
            result = job.function()
        except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
            job.future.set_exception(error)
        else:
            job.future.set_result(result)
        finally:
            self._running.discard(job)
        return True

    def _help(self) -> None:
        while self._work():
            pass

    def _arm(self, begun_s: float) -> None:
        self._timer = self._clock.call_at(begun_s + STALLED_S, self._look)

    def _look(self) -> None:
        """Begin threads in place of those that hang, where something waits for them."""
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
            # They are idle: their stacks go with them.
            self._more.shutdown(wait=False)
            self._more = None
        if self._jobs or begun_s or self._more is not None:
            self._arm(min(later_s, default=now_s))

    def _begin(self, count: int) -> None:
        """Have up to so many more threads take what is queued."""
        self._helping = {one for one in self._helping if not one.done()}
        for _ in range(min(count, self._most - len(self._helping))):
            if self._more is not None:
                try:
                    self._helping.add(self._more.submit(self._help))
                except RuntimeError:
                    return  # the system has no more threads, or the backend is being closed
