"""The partitions of one Fetch that are read from storage: a few at a time.

If reads stall, further reads are begun, each for fewer bytes: if a server with fifty of a hundred
partitions hangs, the other fifty are still read.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from kgw.errors import StorageError
from kgw.partitions.read.cold_reads import STALLED_S, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.partitions.read.answer_room import AnswerBudget
    from kgw.partitions.read.cold_reads import ColdRead, ColdReads
    from kgw.partitions.read.fetch_parts import PartitionRead
    from kgw.partitions.view import PartitionView

SIDE_BY_SIDE: Final = 3
"""Concurrent reads of one request: fewer than there are threads, so that other requests get a
thread."""
_PER_STALL: Final = 20
_MOST_SIDE_BY_SIDE: Final = 64
PATIENCE_S: Final = 0.3
"""How long after the last progress a request with enough records waits for its late reads.

Most late reads finish soon, as hanging threads are replaced.
"""


class ColdParts:
    """The storage reads of one request. Its owner calls `collect` when a read may be done."""

    __slots__ = (
        "_carried",
        "_has_fed_first",
        "_own",
        "_parts",
        "_progress_s",
        "_stalls",
        "_tell",
        "budget",
        "given_up",
        "is_incomplete",
        "is_used",
        "late",
        "queue",
        "reads",
        "unfed",
    )

    budget: AnswerBudget

    def __init__(self, reads: ColdReads, tell: Callable[[], object]) -> None:
        """`tell` is called when a read is done."""
        self.reads = reads
        self._tell = tell
        self._parts: Sequence[PartitionRead] = ()
        self.is_used = False
        """Whether records were read from storage, or such a read was begun."""
        self._carried: dict[PartitionRead, tuple[ColdRead, int]] = {}
        """Reads of this request, each with the bytes reserved for it in the answer."""
        self.late: dict[PartitionRead, ColdRead] = {}
        """Late reads, which continue even if this request ends."""
        self.given_up: list[PartitionRead] = []
        """Parts whose read was cancelled, as there was no room to keep it as a late read."""
        self.queue: deque[PartitionRead] = deque()
        """Parts that wait until other reads finish, or return the bytes reserved for them."""
        self.unfed: dict[PartitionRead, int] = {}
        """Parts whose first batch did not fit, each with the bytes that were available."""
        self._has_fed_first = False
        self._stalls = 0
        self._own: set[ColdRead] = set()
        """The late reads of this request."""
        self._progress_s = 0.0
        """Monotonic time at which a read last finished or was begun."""
        self.is_incomplete = False
        """Whether the answer lacks records that are in the log."""

    def begin_again(self, budget: AnswerBudget, parts: Sequence[PartitionRead]) -> None:
        """Read `parts`, in the order of the request, with a new budget. Late reads are kept."""
        self.budget = budget
        self._parts = parts
        self.queue.clear()
        self.unfed.clear()
        self.given_up.clear()
        self._has_fed_first = False
        self.is_incomplete = False

    @property
    def is_idle(self) -> bool:
        """Whether no read is running, except late ones."""
        return not self._carried

    @property
    def is_full(self) -> bool:
        """Whether the limit of concurrent reads is reached."""
        return len(self._carried) >= self._most

    @property
    def _most(self) -> int:
        return min(SIDE_BY_SIDE + _PER_STALL * self._stalls, _MOST_SIDE_BY_SIDE)

    def begin(
        self, part: PartitionRead, view: PartitionView, others: int, *, is_first: bool = False
    ) -> None:
        """Begin to read a part from storage, beside up to `others` concurrent reads."""
        budget = self.budget
        is_first = is_first or (
            not budget.size_bytes
            and not any(read.is_at_least_one for read, _ in self._carried.values())
        )
        share = budget.reserve(part.max_bytes, min(others, self._most - 1))
        read = self.reads.begin(
            view, part.offset, share, part.bounds.end_offset, at_least_one=is_first
        )
        read.followers[self._tell] = None
        self.is_used = True
        self._progress_s = read.begun_s
        self._carried[part] = read, share

    def follow(self, part: PartitionRead, read: ColdRead) -> None:
        """Wait for a late read, even if another request has begun it."""
        read.followers[self._tell] = None
        self.is_used = True
        self.late[part] = read

    def unfollow(self, part: PartitionRead) -> ColdRead | None:
        """Stop waiting for a part. Return its late read, or None."""
        read = self.late.pop(part, None)
        if read is not None:
            read.followers.pop(self._tell, None)
        return read

    @property
    def patient_until_s(self) -> float:
        """Monotonic time until which a request with enough records waits for its late reads."""
        return 0.0 if self._own.isdisjoint(self.late.values()) else self._progress_s + PATIENCE_S

    def next_stall_s(self, now_s: float) -> float | None:
        """Return when the next running read counts as stalled, or None."""
        stalls = (read.begun_s + STALLED_S for read, _ in self._carried.values())
        return min((stall_s for stall_s in stalls if stall_s > now_s), default=None)

    def collect(self, now_s: float) -> None:
        """Add finished reads to the answer; make stalled ones late. Raises errors that are bugs."""
        for part, (read, share) in list(self._carried.items()):
            if read.is_done:
                del self._carried[part]
                self._progress_s = now_s
                room_bytes = self.budget.release(share)
                self.take(part, read, room_bytes, is_first=read.is_at_least_one)
            elif now_s >= read.begun_s + STALLED_S:
                self._stall(part, read, share)
        budget = self.budget
        for part, read in [one for one in self.late.items() if one[1].is_done]:
            if budget.reserved_bytes and read.size_bytes > budget.left_bytes:
                continue  # it may fit later, when reserved bytes are returned
            del self.late[part]
            self._own.discard(read)
            self._progress_s = now_s
            self.take(part, read, budget.left_bytes)

    def _stall(self, part: PartitionRead, read: ColdRead, share: int) -> None:
        """Let a stalled read continue as a late read, so that others are begun."""
        followed = self.reads.leave(read)
        if followed is None and (self.queue or self.budget.size_bytes):
            # Other parts wait for its slot, or the client waits for the answer.
            read.task.cancel()
            self.given_up.append(part)
        else:
            # Without room for another late read, it continues for this request alone.
            followed = followed or read
            self.follow(part, followed)
            self._own.add(followed)
        del self._carried[part]
        self.budget.release(share)
        self._stalls += 1

    def take(
        self, part: PartitionRead, read: ColdRead, room_bytes: int, *, is_first: bool = False
    ) -> None:
        """Add the records of a finished read to a part's answer, as many as fit.

        With `is_first` the answer was empty when the read was begun: it gets at least one batch,
        even if records from memory were added since (KIP-74). Raises errors that are bugs.
        """
        error = read.error
        if error is not None:
            if not isinstance(error, StorageError):
                raise error
            part.fail_with(error)
            return
        result, view = read.result, part.view
        if result is None or view is None or view.presence.gone_code is not None:
            part.examine()
            return
        if part.offset < view.bounds().log_start_offset:
            # The records were deleted meanwhile. An empty answer without an error would mean that
            # there are no more records.
            part.examine()
            return
        budget = self.budget
        is_first = is_first or not budget.size_bytes
        room_bytes = min(room_bytes, part.max_bytes)
        fitting = cut(result, room_bytes, at_least_one=is_first)
        if fitting.buffers or not result.buffers:
            self.reads.forget(read)
        if fitting.buffers:
            if budget.size_bytes + fitting.size_bytes > budget.max_bytes:
                self._give_way(fitting.size_bytes)
            budget.accept(fitting)
            self.is_used = True
            part.take(fitting, read.aborted_from)
            if read.max_bytes < part.max_bytes and fitting.next_offset < part.bounds.end_offset:
                # The read had a lower limit, as it ran beside others or for another request.
                budget.leave_rest()
        elif part.offset < part.bounds.end_offset:
            self.unfed[part] = room_bytes

    def feed(self) -> bool:
        """Read again a part whose first batch did not fit. Return whether there was one.

        No other read may be running.
        """
        part, is_first = self._next_unfed()
        if part is None:
            return False
        view = part.examine()
        if view is None:
            return True
        late = self.reads.find(view, part.offset, part.bounds.end_offset)
        if late is None:
            self.begin(part, view, 0, is_first=is_first)
        elif late.is_done:
            self.take(part, late, self.budget.left_bytes, is_first=is_first)
        else:
            self.follow(part, late)
        return True

    def _next_unfed(self) -> tuple[PartitionRead | None, bool]:
        """Return a part whose first batch must be read again, and whether it comes first.

        If it comes first in the answer, it gets a batch of any size (KIP-74): the answer is empty,
        or the parts before it have no records because their reads hang. Other parts get the bytes
        that are left.
        """
        budget, unfed = self.budget, self.unfed
        if unfed and budget.size_bytes and not self._has_fed_first:
            self._has_fed_first = True
            first = next((one for one in self._parts if one.buffers or one in unfed), None)
            if first is not None and not first.buffers:
                del unfed[first]
                return first, True
        while unfed:
            part = next(iter(unfed))
            room_bytes = unfed.pop(part)
            if not budget.size_bytes:
                return part, True
            if not budget.is_large and min(part.max_bytes, budget.left_bytes) > room_bytes:
                return part, False
        return None, False

    def _give_way(self, size_bytes: int) -> None:
        """Remove parts from the end of the answer until a first batch fits.

        The next request reads them. So an answer exceeds its limit only with a single batch.
        """
        budget = self.budget
        for part in reversed(self._parts):
            if budget.size_bytes + size_bytes <= budget.max_bytes:
                break
            budget.give_back(sum(map(len, part.buffers)))
            part.buffers = []
        budget.leave_rest()

    def stop_waiting(self) -> list[PartitionRead]:
        """End the wait at the deadline. Return the parts whose reads have not finished."""
        given_up = [part for part in self.given_up if not part.buffers]
        left = [*self._carried, *self.late, *given_up, *self.queue]
        self.leave()
        self.is_incomplete = self.is_incomplete or bool(left)
        return left

    def leave(self) -> None:
        """Let running reads continue after this request."""
        for read, _ in self._carried.values():
            read.followers.pop(self._tell, None)
            self.reads.leave(read)
            self.reads.give_up(read)
        for read in self.late.values():
            read.followers.pop(self._tell, None)
            self.reads.give_up(read)
        self._carried.clear()
        self._own.clear()
        self.late.clear()
        self.given_up.clear()
        self.queue.clear()
        self.unfed.clear()
        self.budget.reserved_bytes = 0
