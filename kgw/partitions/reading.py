"""Reading several partitions for one Fetch: within its limits, and within one deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kgw.completion import Completion
from kgw.errors import StorageError
from kgw.partitions.fetch_parts import NamedParts
from kgw.partitions.waits import FetchWait
from kgw.turns import Share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.partitions.answer_room import AnswerBudget
    from kgw.partitions.fetch_parts import PartitionRead, SessionParts
    from kgw.partitions.waits import FetchDeadlines

PARTS_PER_TURN: Final = 400
"""More are read some at a time, like what comes from the disk (docs/decisions/0068)."""


class FetchRead(Completion[None]):
    """One Fetch's reads, and its wait for more.

    `start` says whether the parts can be answered at once. If not, they can be when it `is_done`:
    enough bytes have come, an error has, or the deadline. Reads from disk count against the
    deadline, too. Whoever answers calls `read_latest` before and `stop` after.

    It is done in the turn of the loop in which the records have become visible.
    """

    __slots__ = (
        "_budget",
        "_deadline_s",
        "_deadlines",
        "_is_unread",
        "_session",
        "_task",
        "_wait",
        "is_unchanged",
        "parts",
    )

    def __init__(
        self,
        parts: list[PartitionRead],
        budget: AnswerBudget,
        deadline_s: float,
        deadlines: FetchDeadlines,
        session: SessionParts | None = None,
    ) -> None:
        """`parts` are in the order in which the client wants them served.

        With a `session` they are what that collects.
        """
        super().__init__()
        self.result = None
        self.parts = parts
        self.is_unchanged = False
        """Whether it has waited again, and nothing has happened to the partitions."""
        self._budget = budget
        self._deadline_s = deadline_s
        self._deadlines = deadlines
        self._session = session
        self._is_unread = False
        self._wait: FetchWait | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> bool:
        """Read what there is, and wait if that is not enough; whether it is."""
        if self._session is not None:
            self.parts = self._session.collect()
        if len(self.parts) > PARTS_PER_TURN or not self._read_hot():
            self._task = asyncio.ensure_future(self._read_in_turns())
        elif self._is_complete():
            self.is_done = True
        else:
            self._wait_for_more()
        return self.is_done

    def wait_again(self, budget: AnswerBudget, deadline_s: float) -> bool:
        """Wait once more after it has ended empty, for a client that repeats its request.

        False when something has happened to the partitions since: they have to be read then.
        """
        wait = self._wait
        if wait is None or not wait.is_resting or budget.is_enough:
            return False
        self._budget = budget
        self._deadline_s = deadline_s
        self.is_done = False
        self.is_unchanged = True
        self._wait_for_more()
        return True

    def read_latest(self) -> None:
        """Read what has ended the wait: to be called once this is done, before it is answered.

        One flush of the disk is heard of partition by partition, and the first one ends the wait:
        the others have come by the time of the answer. What would have to come from a disk is left
        to the next request. Raises what ended the reading, which is a bug.
        """
        if self.error is not None:
            raise self.error
        session = self._session
        if self._is_unread and (session is None or not session.is_over):
            self._is_unread = False
            if session is not None:
                self.parts = session.collect()
            self._budget.begin()
            self._read_hot()

    @property
    def is_empty(self) -> bool:
        """Whether an answer has neither records nor errors."""
        return not any(part.buffers or part.is_final for part in self.parts)

    def stop(self) -> None:
        """Read and wait no longer: it has been answered, or nobody wants the answer."""
        wait, self._wait = self._wait, None
        if wait is not None:
            # And let go of it: the two know each other, and a thousand such pairs a second would
            # be left to the garbage collector, which stops everything for a while.
            wait.cancel()
        if self._task is not None:
            self._task.cancel()
            self._budget.stop_counting()
        self._callbacks = None

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
        return self._is_late()

    def _is_late(self) -> bool:
        return self._deadlines.clock.monotonic_s() >= self._deadline_s

    def _read_hot(self) -> bool:
        """Read all parts from memory; False when one of them needs the disk."""
        self.is_unchanged = False
        budget = self._budget
        for part in self.parts:
            view = part.examine()
            if view is None:
                continue
            share = budget.share(part.max_bytes)
            if share is None:
                continue
            try:
                result = view.read_hot(part.offset, share, part.bounds.end_offset)
            except StorageError as error:
                part.fail_with(error)
                continue
            if result is None:
                if not budget.is_large:
                    return False
            elif budget.take(result, share, part.max_bytes):
                part.buffers = result.buffers
                part.next_offset = result.next_offset
        if self._session is not None:
            self._session.settle()
        return True

    async def _read_in_turns(self) -> None:
        """Read the parts some at a time, and from the disk where they are not in memory."""
        self.is_unchanged = False
        budget = self._budget
        try:
            budget.begin()
            parts = self.parts
            while parts:
                await self._read_some(parts)
                if self._session is not None:
                    self._session.settle()
                parts = [] if self._is_complete() else self._missed()
                budget.give_back(sum(len(one) for part in parts for one in part.buffers))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the answer
            self.error = error
            budget.stop_counting()
            self._finish()
            return
        if len(self.parts) <= PARTS_PER_TURN:
            # The answer leaves in this turn of the loop: from here on the connection counts it.
            # That of more parts is made in turns, and counts until this is stopped.
            budget.stop_counting()
        if self._is_complete() or (self._wait is not None and self._wait.expired):
            self._finish()
        else:
            budget.stop_counting()
            self._wait_for_more()

    def _missed(self) -> list[PartitionRead]:
        """Return what nobody listened to while others had their turns, and has changed."""
        if self._session is not None:
            self._session.collect_more()
        return [part for part in self.parts if part.is_outdated]

    async def _read_some(self, parts: Sequence[PartitionRead]) -> None:
        budget = self._budget
        budget.count()
        budget.fit()
        turn = Share(PARTS_PER_TURN)
        for part in parts:
            if turn.spend() or budget.batches >= budget.batches_per_turn:
                budget.batches = 0
                budget.count()
                await asyncio.sleep(0)
                budget.fit()
            view = part.examine()
            if view is None:
                continue
            share = budget.share(part.max_bytes)
            if share is None:
                continue
            end_offset = part.bounds.end_offset
            try:
                result = view.read_hot(part.offset, share, end_offset)
                if result is None:
                    if budget.is_large:
                        continue  # the next request: what waits for a disk holds little memory
                    if budget.size_bytes and self._is_late():
                        continue  # the client has waited long enough, and gets something
                    share = budget.reserve(part.max_bytes)
                    result = await view.read(
                        part.offset, share, end_offset, at_least_one=not budget.size_bytes
                    )
            except StorageError as error:
                part.fail_with(error)
                continue
            if part.offset < view.bounds().log_start_offset:
                # Removed meanwhile. Nothing read and no error would say that nothing is there.
                part.examine()
            elif budget.take(result, share, part.max_bytes):
                part.buffers = result.buffers
                part.next_offset = result.next_offset

    def _wait_for_more(self) -> None:
        if self._wait is None:
            heard = NamedParts(self.parts) if self._session is None else self._session
            self._wait = FetchWait(heard, self._deadlines, self._woken)
        budget = self._budget
        self._wait.begin(budget.min_bytes - budget.size_bytes, self._deadline_s)

    def _woken(self) -> None:
        wait = self._wait
        if wait is not None and wait.expired and not wait.has_advanced:
            # The usual end of a long poll: what was read when it began is still the answer.
            self._finish()
        elif len(self.parts) > PARTS_PER_TURN:
            if self._session is not None:
                self.parts = self._session.collect()
            self._task = asyncio.ensure_future(self._read_in_turns())
        else:
            self._is_unread = True
            self._finish()

    def _finish(self) -> None:
        if len(self.parts) > PARTS_PER_TURN and self.error is None:
            self._budget.count()
        self.finish()
