"""Reads several partitions for one Fetch, within its size limits and its deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.completion import Completion
from kgw.errors import ErrorCode, StorageError
from kgw.partitions.read.answer_room import LEAST_PART_BYTES
from kgw.partitions.read.cold_parts import ColdParts
from kgw.partitions.read.fetch_parts import NamedParts
from kgw.partitions.waits import STORAGE_S, FetchWait
from kgw.turns import StepBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.partitions.read.answer_room import AnswerBudget
    from kgw.partitions.read.cold_reads import ColdRead, ColdReads
    from kgw.partitions.read.fetch_parts import PartitionRead, SessionParts
    from kgw.partitions.view import PartitionView
    from kgw.partitions.waits import RequestDeadlines

PARTS_PER_TURN: Final = 400
"""A Fetch of more partitions is read in a task, which yields to the event loop after this number of
partitions (docs/decisions/0068)."""


class FetchTimes(NamedTuple):
    """The deadlines of a request, in monotonic time."""

    deadline_s: float
    """When the wait for more records ends."""
    storage_by_s: float
    """When the wait for reads from storage ends."""


def fetch_times(asked_s: float, max_wait_ms: int) -> FetchTimes:
    """Return the deadlines of a request. `max_wait_ms` limits the sum of its waits.

    A request with 0 fetches the records that are available, and an empty answer would mean that
    there are none. So it waits for the storage for the usual time, and then gets an error.
    """
    if max_wait_ms <= 0:
        return FetchTimes(asked_s, asked_s + STORAGE_S)
    deadline_s = asked_s + max_wait_ms / 1000
    return FetchTimes(deadline_s, deadline_s)


class FetchRead(Completion[None]):
    """One Fetch's reads, and its wait for more records.

    It reads the available records at once, and waits if they are too few. The parts can be answered
    when it `is_done`: there are enough bytes, or there is an error, or the deadline has passed. The
    deadline limits reads from storage, too: reads that have not finished by then go on, and a later
    request gets their records. The caller calls `read_latest` before the answer and `stop` after.

    It is done in the same turn of the event loop in which the records become visible.
    """

    __slots__ = (
        "_budget",
        "_cold",
        "_cold_reads",
        "_deadlines",
        "_is_unread",
        "_session",
        "_task",
        "_times",
        "_told",
        "_wait",
        "is_unchanged",
        "look_again",
        "parts",
    )

    def __init__(
        self,
        parts: list[PartitionRead],
        budget: AnswerBudget,
        times: FetchTimes,
        deadlines: RequestDeadlines,
        cold_reads: ColdReads,
        session: SessionParts | None = None,
    ) -> None:
        """`parts` are in the order of the request.

        With a `session`, its `collect` replaces them.
        """
        super().__init__()
        self.result = None
        self.parts = parts
        self.is_unchanged = False
        """Whether the read has waited again and the partitions have not changed."""
        self.look_again: Callable[[Sequence[PartitionRead]], object] | None = None
        """Called before the parts are read after a wait, if they have no session."""
        self._budget = budget
        self._times = times
        self._deadlines = deadlines
        self._cold_reads = cold_reads
        self._cold: ColdParts | None = None
        """The reads from storage; None before the first one."""
        self._session = session
        self._is_unread = False
        self._wait: FetchWait | None = None
        self._task: asyncio.Task[None] | None = None
        self._told: asyncio.Event | None = None
        """Set when a read from the storage is done, while the task waits for some."""
        if session is not None:
            self.parts = session.collect()
        if len(self.parts) > PARTS_PER_TURN or not self._read_hot():
            self._task = asyncio.ensure_future(self._read_in_turns())
        elif self._is_complete():
            self.is_done = True
        else:
            self._wait_for_more()

    def wait_again(self, budget: AnswerBudget, times: FetchTimes) -> bool:
        """Wait once more after an empty answer, for a client that repeats its request.

        Return False if the partitions have changed since then: they must be read.
        """
        wait = self._wait
        if wait is None or not wait.is_resting or budget.is_enough:
            return False
        self._budget = budget
        self._times = times
        self.is_done = False
        self.is_unchanged = True
        self._wait_for_more()
        return True

    def read_latest(self) -> None:
        """Read the records that ended the wait. Call this when it is done, before the answer.

        A flush to disk notifies one partition after the other, and the first notification ends the
        wait. By the time of the answer the other partitions have their new records, too. Records on
        disk are left to the next request. Raises the error that ended the read, which is a bug.
        """
        if self.error is not None:
            raise self.error
        session = self._session
        if self._is_unread and (session is None or not session.is_over):
            self._is_unread = False
            self._collect()
            self._budget.begin()
            if self._cold is not None or not self._read_hot():
                self._budget.begin()
                self._read_hot(self._cold_parts())

    @property
    def is_all_read(self) -> bool:
        """Whether no available records were left to a later request."""
        cold = self._cold
        return cold is None or not (cold.is_incomplete or cold.late or cold.given_up)

    @property
    def is_empty(self) -> bool:
        """Whether an answer has neither records nor errors."""
        return not any(part.buffers or part.is_final for part in self.parts)

    def stop(self) -> None:
        """Stop reading and waiting: the request is answered, or its answer is not needed."""
        wait, self._wait = self._wait, None
        if wait is not None:
            # Drop the reference, too: otherwise the two objects refer to each other, and the
            # garbage collector has to free a thousand such pairs a second, while nothing else runs.
            wait.cancel()
        if self._task is not None:
            self._task.cancel()
            self._budget.stop_counting()
        cold, self._cold = self._cold, None
        if cold is not None:
            cold.leave()
        self._callbacks = self.look_again = None

    def _is_complete(self) -> bool:
        budget, session = self._budget, self._session
        if budget.size_bytes >= budget.min_bytes:
            return True
        if session is None:
            if not self.parts:
                return True
        elif session.is_over:
            return True
        for part in self.parts:
            if part.is_final:
                return True
        return self._deadlines.clock.monotonic_s() >= self._times.deadline_s

    def _read_hot(self, cold: ColdParts | None = None) -> bool:
        """Read all parts from memory. Return False if one of them needs the disk.

        A part that is no longer in memory keeps its records. With `cold`, a part gets the result of
        its late read from storage, or is left to the next request.
        """
        budget = self._budget
        for part in self.parts:
            had = part.had if part.buffers else None
            view = part.examine()
            if view is None:
                continue
            share = budget.share(part.max_bytes)
            if share is None:
                continue
            aborted_from = None
            try:
                result = view.read_hot(part.offset, share, part.bounds.end_offset)
            except StorageError as error:
                part.fail_with(error)
                continue
            if result is None and had is not None:
                result, aborted_from = had
            if result is not None:
                if budget.take(result, share, part.max_bytes):
                    part.take(result, aborted_from)
            elif cold is not None:
                late = cold.late.get(part) or self._cold_reads.find(
                    view, part.offset, part.bounds.end_offset
                )
                if late is not None and late.is_done:
                    cold.late.pop(part, None)
                    cold.take(part, late, share)
                else:
                    cold.is_incomplete = True
            elif not budget.is_large:
                return False
        if self._session is not None:
            self._session.settle()
        return True

    def _collect(self) -> None:
        """Collect the partitions that must be read again, or look again at those that are there."""
        session = self._session
        if session is None:
            if self.look_again is not None:
                self.look_again(self.parts)
            return
        if self._cold is not None and self._cold.is_used:
            # Keep the parts, which have records and running reads from storage.
            session.collect_more()
        else:
            self.parts = session.collect()

    def _cold_parts(self) -> ColdParts:
        """Return the object for reads from storage, prepared to read all parts."""
        cold = self._cold
        if cold is None:
            cold = self._cold = ColdParts(self._cold_reads, self._storage_came)
        cold.begin_again(self._budget, self.parts)
        return cold

    async def _read_in_turns(self) -> None:
        """Read some parts in each turn of the event loop, from memory or else from storage."""
        budget = self._budget
        cold = self._cold_parts()
        try:
            budget.begin()
            parts = self.parts
            while parts:
                await self._read_some(parts, cold)
                if self._session is not None:
                    self._session.settle()
                parts = [] if self._is_complete() else self._missed()
                budget.give_back(sum(len(one) for part in parts for one in part.buffers))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            self.error = error
            cold.leave()
            budget.stop_counting()
            self._finish()
            return
        if len(self.parts) <= PARTS_PER_TURN:
            # The answer is sent in this turn of the event loop, and then the connection counts its
            # bytes. An answer with more parts takes several turns, and is counted here until
            # `stop`.
            budget.stop_counting()
        if self._is_complete() or (self._wait is not None and self._wait.expired):
            self._finish()
        else:
            budget.stop_counting()
            self._wait_for_more()

    def _missed(self) -> list[PartitionRead]:
        """Return the parts that changed while other requests ran, before the listeners were set."""
        if self._session is not None:
            self._session.collect_more()
        return [part for part in self.parts if part.is_outdated]

    async def _read_some(self, parts: Sequence[PartitionRead], cold: ColdParts) -> None:
        budget = self._budget
        budget.count()
        budget.fit()
        turn = StepBudget(PARTS_PER_TURN)
        for number, part in enumerate(parts):
            if turn.spend() or budget.batches >= budget.batches_per_turn:
                budget.batches = 0
                budget.count()
                await asyncio.sleep(0)
                budget.fit()
            late = cold.unfollow(part)
            self._read_part(part, cold, len(parts) - number - 1, late)
            if late is not None and part not in cold.late:
                self._cold_reads.give_up(late)
        await self._storage(cold)

    def _read_part(
        self, part: PartitionRead, cold: ColdParts, others: int, late: ColdRead | None = None
    ) -> None:
        """Read a part from memory, begin to read it from storage, or put it into the queue.

        `late` is its unfinished read from storage. If the part is not in memory, it keeps the
        records that it has from storage.
        """
        had = part.had if part.buffers else None
        view = part.examine()
        if view is None:
            return
        budget = self._budget
        share = budget.share(part.max_bytes)
        if share is None:
            if late is not None:
                cold.follow(part, late)
            elif budget.reserved_bytes:
                cold.queue.append(part)
            return
        aborted_from = None
        try:
            result = view.read_hot(part.offset, share, part.bounds.end_offset)
        except StorageError as error:
            part.fail_with(error)
            return
        if result is None and had is not None:
            result, aborted_from = had
        if result is None:
            self._read_cold(part, view, share, cold, others, late)
        elif budget.take(result, share, part.max_bytes):
            part.take(result, aborted_from)
        elif not budget.size_bytes:
            cold.queue.append(part)

    def _read_cold(
        self,
        part: PartitionRead,
        view: PartitionView,
        share: int,
        cold: ColdParts,
        others: int,
        late: ColdRead | None,
    ) -> None:
        if late is None:
            late = self._cold_reads.find(view, part.offset, part.bounds.end_offset)
        if late is not None:
            if late.is_done:
                cold.take(part, late, share)
            else:
                cold.follow(part, late)
        elif self._budget.is_large:
            # Left to the next request, as a Fetch that waits for storage should keep little in
            # memory.
            cold.is_incomplete = True
        elif cold.is_full or (not cold.is_idle and share < min(part.max_bytes, LEAST_PART_BYTES)):
            cold.queue.append(part)
        else:
            cold.begin(part, view, others)

    async def _storage(self, cold: ColdParts) -> None:
        """Wait for reads from storage, except late reads that may finish after the answer."""
        clock = self._deadlines.clock
        deadline_s, storage_by_s = self._times
        budget = self._budget
        while True:
            now_s = clock.monotonic_s()
            cold.collect(now_s)
            self._serve_queue(cold)
            until_s = storage_by_s
            if cold.is_idle:
                if cold.feed():
                    continue
                if not cold.late:
                    break
                if budget.size_bytes or now_s < deadline_s:
                    # There are records for the answer, or `FetchWait` is notified of late reads.
                    until_s = min(until_s, cold.patient_until_s)
                    if now_s >= until_s:
                        break
            if now_s >= storage_by_s:
                break
            await self._until_told(cold, until_s)
        if clock.monotonic_s() >= storage_by_s:
            for part in cold.stop_waiting():
                if storage_by_s > deadline_s:
                    # With a `max_wait_ms` of 0, an answer without records would be wrong.
                    part.fail(ErrorCode.KAFKA_STORAGE_ERROR)

    def _serve_queue(self, cold: ColdParts) -> None:
        """Read the queued parts for which there is room now."""
        queue = cold.queue
        while queue and not cold.is_full:
            part = queue.popleft()
            length = len(queue)
            self._read_part(part, cold, length)
            if len(queue) > length:
                queue.rotate(1)  # it still waits, at the front of the queue
                return

    async def _until_told(self, cold: ColdParts, until_s: float) -> None:
        """Wait until a read from storage is done or stalls, at most until `until_s`."""
        clock = self._deadlines.clock
        stall_s = cold.next_stall_s(clock.monotonic_s())
        self._told = told = asyncio.Event()
        timer = clock.call_at(until_s if stall_s is None else min(until_s, stall_s), told.set)
        try:
            await told.wait()
        finally:
            self._told = None
            timer.cancel()

    def _storage_came(self) -> None:
        """Handle that a read from storage is done."""
        if self._told is not None:
            self._told.set()
        elif self._wait is not None:
            self._wait.fire()

    def _wait_for_more(self) -> None:
        if self._wait is None:
            heard = NamedParts(self.parts) if self._session is None else self._session
            self._wait = FetchWait(heard, self._deadlines, self._woken)
        budget = self._budget
        self._wait.begin(budget.min_bytes - budget.size_bytes, self._times.deadline_s)

    def _woken(self) -> None:
        wait = self._wait
        if wait is not None and wait.expired and not wait.has_advanced:
            # The usual end of a long poll: nothing has changed since the parts were read.
            self._finish()
            return
        self.is_unchanged = False
        if len(self.parts) > PARTS_PER_TURN:
            self._collect()
            self._task = asyncio.ensure_future(self._read_in_turns())
        else:
            self._is_unread = True
            self._finish()

    def _finish(self) -> None:
        if len(self.parts) > PARTS_PER_TURN and self.error is None:
            self._budget.count()
        self.finish()
