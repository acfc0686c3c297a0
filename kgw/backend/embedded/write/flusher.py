"""Who writes: a thread that takes whatever is queued, or the event loop while that thread sleeps.

Whoever holds the pen changes segments, so that nothing below needs a lock. The thread has it while
it is awake. It takes a group, writes and syncs it, and posts it back to the loop: one wake-up each
way for a group, however many appends it has, and while it syncs the next group gathers.

A thread costs 60 us of processor time a round trip, where writing 100 bytes into the page cache
takes one and 16 KB four. So the loop itself writes a small group that waits for nothing, and has
the kernel sync it (docs/decisions/0067-writing-in-the-loop.md).
"""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections import deque
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, TypeVar

from kgw.backend.embedded.failures import SyncFailedError, SyncNotTriedError
from kgw.logs import EventLogger

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable

    from kgw.backend.embedded.files.fs import BackgroundSyncs, File
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.write.append import Append
    from kgw.backend.embedded.write.writer import GroupWriter
    from kgw.backend.embedded.write.written import Written
    from kgw.clock import Clock

_Result = TypeVar("_Result")
_log = EventLogger(__name__)

SLOW_WRITE_S: Final = 0.01
"""A write into the page cache that takes longer has waited for a disk, or a busy core."""
CALM_FACTOR: Final = 20
"""The thread writes everything for so many times as long after one that did: whatever the disk is
like, the loop waits for it one twentieth of the time at most."""
TOGETHER_S: Final = 0.00004
"""Appends that come within that time of the end of the last are written together, at the end of the
turn."""
TOGETHER_ELSEWHERE_S: Final = 0.0001
"""The same for an append to another log: it is another client's, whose socket was ready, too. One
client alone asks again after its answer, 45 us later at the soonest."""
ANSWERED_PER_TURN: Final = 400
"""Appends that are answered in one turn of the loop, however many one sync has made durable: with
what is written in the same turn it took 3 ms, of 3,000 clients with one request each."""


class Flusher:
    """The thread, its inbox, and what has been written."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        store: GroupWriter,
        clock: Clock,
        is_disk_calm: Callable[[], bool],
        complete: Callable[[list[Append]], None],
    ) -> None:
        """`is_disk_calm` tells whether no long sync is under way, which makes writers wait.

        `complete` is called in the loop, with group after group.
        """
        self._loop = loop
        self._store = store
        self._clock = clock
        self._is_disk_calm = is_disk_calm
        self._complete = complete
        self.kernel_syncs: BackgroundSyncs | None = None
        """Where the loop has what it wrote synced; nothing strict is written there without it."""
        self._pen = Lock()
        # A deque's ends are safe to use from two threads.
        self._jobs: deque[Callable[[], None]] = deque()
        self._wakeup: SimpleQueue[bool] = SimpleQueue()
        self._is_awake = False
        self._completed: deque[list[Append] | Callable[[], None]] = deque()
        """What is to be answered, each no more than a turn has; and what came of jobs."""
        self._is_completion_due = False
        self._is_rest_due = False
        """Whether a callback goes on with `_completed`: not twice in one turn."""
        # Of the loop's own writing.
        self._is_syncing = False
        self._is_turn_due = False
        self._comes_alone = True
        self._last_append_s = 0.0
        self._last_log: SegmentedLog | None = None
        self._calm_again_s = 0.0
        self._thread = Thread(target=self._run, name="kgw-flusher", daemon=True)
        self._thread.start()

    def take(self, append: Append) -> None:
        """Have an append written that has been submitted: now, at the end of the turn or later."""
        if self._is_awake or self._is_turn_due or self._is_syncing:
            # Whoever writes now looks once more when that is done.
            return
        if self.kernel_syncs is None and not append.log.settings.is_relaxed:
            self._kick()
            return
        now_s = self._clock.monotonic_s()
        together_s = TOGETHER_S if append.log is self._last_log else TOGETHER_ELSEWHERE_S
        is_alone = self._comes_alone and now_s - self._last_append_s > together_s
        self._last_log = append.log
        self._last_append_s = now_s
        if is_alone and not self._completed and append.log.settings.is_relaxed:
            self._write_here()
        else:
            self._is_turn_due = True
            self._loop.call_soon(self._write_turn)

    def _write_turn(self) -> None:
        self._is_turn_due = False
        if not self._is_awake and not self._is_syncing and self._store.has_pending:
            self._write_here()

    def _write_here(self) -> None:
        """Write what is queued in the loop, or have the thread do it."""
        began_s = self._clock.monotonic_s()
        if began_s < self._calm_again_s or not self._is_disk_calm() or not self._try_here():
            self._kick()
            return
        # Without the answers: how long they take says nothing of the disk.
        written_s = self._clock.monotonic_s()
        if written_s - began_s > SLOW_WRITE_S:
            self._calm_again_s = written_s + CALM_FACTOR * (written_s - began_s)
        self.complete()
        if self._store.has_pending and not self._is_syncing and not self._is_turn_due:
            # The rest of what was too much for one turn.
            self._is_turn_due = True
            self._loop.call_soon(self._write_turn)
        # What comes within that time of this one's end was there already: it has been cut and
        # checked meanwhile, a connection's requests of one read together.
        self._last_append_s = self._clock.monotonic_s()

    def _try_here(self) -> bool:
        """Write what is queued; what needs no sync is in `_completed` then. False for nothing."""
        store, pen = self._store, self._pen
        if not pen.acquire(blocking=False):
            return False
        group: list[Append] = []
        try:
            taken = store.take_quick_group(may_sync=self.kernel_syncs is not None)
            if taken is None:
                pen.release()
                return False
            group = taken
            self._comes_alone = len(group) == 1
            written = store.write(group, store.failure)
            if written.failed:
                # To take back what is there of it is to truncate and to sync.
                self._leave_to_thread(group, written)
                return True
            if written.needs_sync:
                self._begin_syncs(group, written)
                return True
            store.settle(written, ())
        except Exception as error:  # noqa: BLE001 - a bug must not leave callers waiting for ever
            self._give_up(group, error)
        if group:
            # While it has the pen: the thread may be done with the next group in a moment.
            self._note_written(group)
        pen.release()
        # Else what is queued gets its error from the thread.
        return bool(group)

    def _begin_syncs(self, group: list[Append], written: Written) -> None:
        """Have the kernel sync a group; the pen is held until that is done."""
        syncs = self.kernel_syncs
        if syncs is None:
            # It was to be answered unsynced, and too many others are unsynced by now.
            self._leave_to_thread(group, written)
            return
        self._is_syncing = True
        try:
            files = self._store.begin_syncs(written)
            if files is None:
                self._store.give_up_syncs(written)
                self._leave_to_thread(group, written)
                return
            syncs.sync(files, partial(self._synced, group, written, files))
        except Exception as error:  # noqa: BLE001 - a bug must not leave callers waiting for ever
            # Not one sync was tried.
            self._do_without_kernel(error)
            self._store.give_up_syncs(written)
            self._leave_to_thread(group, written)

    def _do_without_kernel(self, error: Exception | None) -> None:
        self._store.report(f"the kernel syncs no files by itself: {error}; threads do it")
        syncs, self.kernel_syncs = self.kernel_syncs, None
        if syncs is not None:
            with suppress(OSError):
                syncs.close()

    def _leave_to_thread(self, group: list[Append], written: Written) -> None:
        """Have the thread finish what has been written, before all else; the pen goes there."""
        self._jobs.appendleft(partial(self._flush, group, partial(self._store.finish, written)))
        self._kick()
        self._is_syncing = False
        self._pen.release()

    def _synced(
        self,
        group: list[Append],
        written: Written,
        files: list[File],
        outcomes: list[OSError | None],
    ) -> None:
        if _was_left_out(outcomes):
            self._do_without_kernel(next(filter(None, outcomes)))
            self._store.give_up_syncs(written)
            self._leave_to_thread(group, written)
            return
        self._settle(group, written, files, outcomes)
        self._note_written(group)
        self._is_syncing = False
        self._pen.release()
        # The disk has work again before the callers are told.
        if not self._is_awake and self._store.has_pending:
            self._write_here()
        self.complete()

    def _settle(
        self,
        group: list[Append],
        written: Written,
        files: list[File],
        outcomes: list[OSError | None],
    ) -> None:
        store = self._store
        failures = [
            None if error is None else SyncFailedError(f"{file.path}: {error}")
            for file, error in zip(files, outcomes, strict=True)
        ]
        try:
            store.end_syncs(written, failures)
            store.settle(written, failures)
        except Exception as error:  # noqa: BLE001 - a bug must not leave callers waiting for ever
            self._give_up(group, error)

    def _give_up(self, group: list[Append], error: Exception) -> None:
        self._store.fail(error)
        for append in group:
            append.error = append.error or self._store.failure

    def _note_written(self, group: list[Append]) -> None:
        """Have a group answered; before the pen is given back, as the next may be written then."""
        for start in range(0, len(group), ANSWERED_PER_TURN):
            self._completed.append(group[start : start + ANSWERED_PER_TURN])

    def complete(self) -> None:
        """Answer what has been written, in its order: some of it now, the rest in later turns."""
        self._is_completion_due = False
        if not self._is_rest_due:
            self._complete_some()

    def _complete_rest(self) -> None:
        self._is_rest_due = False
        self._complete_some()

    def _complete_some(self) -> None:
        """Answer as many as one turn has; what is left is due then."""
        completed = self._completed
        answered = 0
        while completed:
            one = completed[0]
            if callable(one):
                completed.popleft()
                one()
                continue
            answered += len(one)
            if answered > ANSWERED_PER_TURN:
                self._is_rest_due = True
                self._loop.call_soon(self._complete_rest)
                return
            completed.popleft()
            self._answer(one)

    def _answer(self, group: list[Append]) -> None:
        try:
            self._complete(group)
        except Exception as error:  # noqa: BLE001 - a bug must not leave callers waiting
            _log.error("a group of appends could not be answered", error=error)
            self._give_up([append for append in group if not append.is_done], error)
            for append in group:
                if not append.is_done:
                    append.finish()

    def _tell(self, tell: Callable[[], None]) -> None:
        """Tell what came of a job, behind what was written before it: it may move the same ends."""
        if self._completed:
            self._completed.append(tell)
        else:
            tell()

    # --- the thread ------------------------------------------------------------------------------

    def _kick(self) -> None:
        """Let the thread look at what is queued."""
        if not self._is_awake:
            self._is_awake = True
            self._wakeup.put(True)

    async def run(self, function: Callable[[], _Result]) -> _Result:
        """Run a function in the thread, between two groups, and return its result."""
        loop = self._loop
        future: Future[_Result] = loop.create_future()

        def run() -> None:
            try:
                result = function()
            except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
                told = partial(_set_exception, future, error)
            else:
                told = partial(_set_result, future, result)
            loop.call_soon_threadsafe(self._tell, told)

        self._jobs.append(run)
        self._kick()
        return await future

    def _run(self) -> None:
        store, jobs, wakeup = self._store, self._jobs, self._wakeup
        while wakeup.get():
            with self._pen:
                while True:
                    # In turn: a thousand partitions to create must not keep appends waiting.
                    if jobs:
                        jobs.popleft()()
                    group = store.take_group()
                    if group:
                        self._flush(group, partial(store.write_group, group))
                        continue
                    if jobs:
                        continue
                    self._is_awake = False
                    # Whoever came in between has not put a token: look once more.
                    if not store.has_pending and not jobs:
                        break
                    self._is_awake = True

    def _flush(self, group: list[Append], write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:  # noqa: BLE001 - a bug must not leave callers waiting for ever
            self._give_up(group, error)
        self._note_written(group)
        if not self._is_completion_due:
            self._is_completion_due = True
            self._loop.call_soon_threadsafe(self.complete)

    async def aend(self) -> None:
        """Write what is queued, and let the thread end."""
        # It has the pen when it runs something: nothing is under way in the loop then.
        await self.run(_nothing)
        self._wakeup.put(False)
        await to_thread(self._thread.join)
        if self.kernel_syncs is not None:
            self.kernel_syncs.close()
            self.kernel_syncs = None
        while self._completed:
            self.complete()
            await sleep(0)


def _set_result(future: Future[_Result], result: _Result) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: Future[_Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _was_left_out(outcomes: list[OSError | None]) -> bool:
    """Whether no sync has failed, and some were not tried: another may sync the files then."""
    left_out = [one for one in outcomes if isinstance(one, SyncNotTriedError)]
    return bool(left_out) and len(left_out) == len(outcomes) - outcomes.count(None)


def _nothing() -> None:
    """Wait for one's turn."""
