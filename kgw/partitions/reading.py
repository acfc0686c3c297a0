"""Reading several partitions for one Fetch: within its limits, and within one deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from kgw.completion import Completion
from kgw.errors import CorruptionError, ErrorCode, KafkaError, StorageError
from kgw.partitions.view import Bounds
from kgw.partitions.waits import FetchWait
from kgw.turns import Share
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import EpochEnd
    from kgw.partitions.answer_room import AnswerBudget
    from kgw.partitions.view import PartitionView
    from kgw.partitions.waits import FetchDeadlines
    from kgw.types import Buffer

PARTS_PER_TURN: Final = 400
"""More are read some at a time, like what comes from the disk (docs/decisions/0068)."""

_NO_BOUNDS: Final = Bounds(NO_OFFSET, NO_OFFSET, NO_OFFSET, NO_OFFSET)


class PartitionRead:
    """One partition of a Fetch: what is asked of it, and what came of it.

    `gone_code` answers when the partition does not exist, or no longer.
    """

    __slots__ = (
        "bounds",
        "buffers",
        "current_leader_epoch",
        "diverging",
        "error_code",
        "gone_code",
        "last_fetched_epoch",
        "max_bytes",
        "next_offset",
        "offset",
        "view",
    )

    def __init__(
        self,
        view: PartitionView | None,
        offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        gone_code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ) -> None:
        self.view = view
        self.offset = offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.gone_code = gone_code
        self.error_code = ErrorCode.NONE
        self.bounds = _NO_BOUNDS
        self.diverging: EpochEnd | None = None
        self.buffers: list[Buffer] = []
        self.next_offset = offset
        """The offset behind what was read."""

    def fail(self, code: ErrorCode) -> None:
        self.bounds = _NO_BOUNDS
        self.diverging = None
        self.buffers = []
        self.error_code = code

    def fail_with(self, error: StorageError) -> None:
        """Answer with what a failed read means.

        CORRUPT_MESSAGE makes clients tell their application, which can seek past the damage. After
        KAFKA_STORAGE_ERROR they would ask again for ever, and say nothing.
        """
        if self.view is not None and self.view.topic.is_deleted:
            self.fail(self.gone_code)
        elif isinstance(error, CorruptionError):
            self.fail(ErrorCode.CORRUPT_MESSAGE)
        else:
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)

    @property
    def is_final(self) -> bool:
        """Whether waiting longer could not make this answer better."""
        return self.error_code is not ErrorCode.NONE or self.diverging is not None

    @property
    def is_examined(self) -> bool:
        """Whether anything is known of the partition."""
        return self.bounds is not _NO_BOUNDS or self.error_code is not ErrorCode.NONE

    @property
    def is_outdated(self) -> bool:
        """Whether the partition is not, or no longer, what was found when it was examined."""
        view = self.view
        if view is None or view.topic.is_deleted:
            return self.error_code is ErrorCode.NONE
        return view.bounds() != self.bounds

    def examine(self) -> PartitionView | None:
        """Look at where the partition stands; return it when there is something to read.

        Sets bounds, error and divergence. An offset at the visible end has nothing to read yet.
        """
        view = self.view
        if view is None or view.topic.is_deleted:
            self.fail(self.gone_code)
            return None
        self.error_code = ErrorCode.NONE
        self.diverging = None
        self.buffers = []
        offset = self.offset
        if self.current_leader_epoch >= 0:
            try:
                view.check_leader_epoch(self.current_leader_epoch)
            except KafkaError as error:
                self.fail(error.code)
                return None
        bounds = self.bounds = view.bounds()
        if self.last_fetched_epoch >= 0 and self._diverges(view):
            return None
        if not view.is_readable(offset, bounds):
            self.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return None
        return view if offset < bounds.end_offset else None

    def _diverges(self, view: PartitionView) -> bool:
        """Whether the client has records that are not in this log (KIP-595's check, for Fetch)."""
        end = view.epoch_end(self.last_fetched_epoch)
        if end is None:
            self.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return True
        if end.leader_epoch < self.last_fetched_epoch or end.end_offset < self.offset:
            self.diverging = end
            return True
        return False


class SessionRequest(Protocol):
    """One request of a fetch session: which partitions it reads, and how it hears of them."""

    @property
    def is_over(self) -> bool:
        """Whether waiting is of no use, whatever comes."""

    def collect(self) -> list[PartitionRead]:
        """Return the partitions that are to be read now."""

    def settle(self) -> None:
        """Take in that all of them have been read."""

    def collect_more(self) -> None:
        """Add what has something to say since."""

    def listen(self, wait: FetchWait) -> None:
        """Have a wait told of what changes."""

    def ignore(self, wait: FetchWait) -> None:
        """Tell a wait nothing more."""


class NamedParts:
    """What a request without a session waits for: the partitions that it names."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[PartitionRead]) -> None:
        self._parts = parts

    def listen(self, wait: FetchWait) -> None:
        for part in self._parts:
            if part.view is not None:
                part.view.listen(wait)

    def ignore(self, wait: FetchWait) -> None:
        for part in self._parts:
            if part.view is not None:
                part.view.ignore(wait)


class FetchRead(Completion[None]):
    """One Fetch's reads, and its wait for more.

    `start` says whether the parts can be answered at once. If not, they can be when it `is_done`:
    enough bytes have come, an error has, or the deadline. Reads from disk count against the
    deadline, too. Whoever answers calls `take` before and `stop` after.

    It is done in the turn of the loop in which the records have become durable.
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
        session: SessionRequest | None = None,
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

    def take(self) -> None:
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
