"""The parts of one Fetch that come from the storage: a few side by side, and none holds up others.

At first few are read at a time. Once reads stall more are begun, each for fewer bytes: of a hundred
partitions fifty may be on a server that hangs, and the others are to be read meanwhile.
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
"""Reads of one request at a time: there are more threads, and one is left to others."""
_PER_STALL: Final = 20
_MOST_SIDE_BY_SIDE: Final = 64
PATIENCE_S: Final = 0.3
"""A request that has enough waits for so long, since something came last, for what it has begun to
read. Most reads that are late come soon: threads that hang are replaced first."""


class ColdParts:
    """What one request waits for. Whoever drives it calls `collect` again and again."""

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
        """`tell` is called whenever a read is done."""
        self.reads = reads
        self._tell = tell
        self._parts: Sequence[PartitionRead] = ()
        self.is_used = False
        """Whether anything has come from the storage, or may come."""
        self._carried: dict[PartitionRead, tuple[ColdRead, int]] = {}
        """Reads that this request has begun, with what is reserved for each of its answer."""
        self.late: dict[PartitionRead, ColdRead] = {}
        """Reads that go on without this request, if need be."""
        self.given_up: list[PartitionRead] = []
        """Parts whose read had no room to be late."""
        self.queue: deque[PartitionRead] = deque()
        """Parts that wait until others are read, or their room is given back."""
        self.unfed: dict[PartitionRead, int] = {}
        """Parts whose first batch had no room, and what that was."""
        self._has_fed_first = False
        self._stalls = 0
        self._own: set[ColdRead] = set()
        """The late ones that this request has begun."""
        self._progress_s = 0.0
        """When something came, or was begun, last."""
        self.is_incomplete = False
        """Whether something that is there was not waited for."""

    def begin_again(self, budget: AnswerBudget, parts: Sequence[PartitionRead]) -> None:
        """Take what `parts`, in the order of the request, are to be read within from now on.

        What is late is not begun again.
        """
        self.budget = budget
        self._parts = parts
        self.queue.clear()
        self.unfed.clear()
        self.given_up.clear()
        self._has_fed_first = False
        self.is_incomplete = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way but what is late."""
        return not self._carried

    @property
    def is_full(self) -> bool:
        """Whether others have to be read first."""
        return len(self._carried) >= self._most

    @property
    def _most(self) -> int:
        return min(SIDE_BY_SIDE + _PER_STALL * self._stalls, _MOST_SIDE_BY_SIDE)

    def begin(
        self, part: PartitionRead, view: PartitionView, others: int, *, is_first: bool = False
    ) -> None:
        """Begin to read a part; up to so many others are read beside it."""
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
        """Wait for a read that another request has begun."""
        read.followers[self._tell] = None
        self.is_used = True
        self.late[part] = read

    def unfollow(self, part: PartitionRead) -> ColdRead | None:
        """Wait for a part no more; return the read of it that was late, if one was."""
        read = self.late.pop(part, None)
        if read is not None:
            read.followers.pop(self._tell, None)
        return read

    @property
    def patient_until_s(self) -> float:
        """Until when what is late is waited for by a request that has enough without it."""
        return 0.0 if self._own.isdisjoint(self.late.values()) else self._progress_s + PATIENCE_S

    def next_stall_s(self, now_s: float) -> float | None:
        """Return when the next read stalls, None where none can."""
        stalls = (read.begun_s + STALLED_S for read, _ in self._carried.values())
        return min((stall_s for stall_s in stalls if stall_s > now_s), default=None)

    def collect(self, now_s: float) -> None:
        """Take what has come, and wait less for what stalls. Raises what is a bug of ours."""
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
                continue  # what is reserved may be given back
            del self.late[part]
            self._own.discard(read)
            self._progress_s = now_s
            self.take(part, read, budget.left_bytes)

    def _stall(self, part: PartitionRead, read: ColdRead, share: int) -> None:
        """Leave a read to itself, so that others are begun in its place."""
        followed = self.reads.leave(read)
        if followed is None and (self.queue or self.budget.size_bytes):
            # Others wait for its place, or for the answer.
            read.task.cancel()
            self.given_up.append(part)
        else:
            # Where there is no room it goes on for this request alone.
            followed = followed or read
            self.follow(part, followed)
            self._own.add(followed)
        del self._carried[part]
        self.budget.release(share)
        self._stalls += 1

    def take(
        self, part: PartitionRead, read: ColdRead, room_bytes: int, *, is_first: bool = False
    ) -> None:
        """Answer a part with what a read has come to, as far as there is room.

        One that `is_first` had nothing before it when its read was begun: it gets a batch whatever
        has come from memory since (KIP-74). Raises what is a bug of ours.
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
            # Removed meanwhile. Nothing read and no error would say that nothing is there.
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
                # It was begun beside others, or for a request that wanted less.
                budget.leave_rest()
        elif part.offset < part.bounds.end_offset:
            self.unfed[part] = room_bytes

    def feed(self) -> bool:
        """Read a part once more whose first batch had no room; whether there is one to be read.

        Nothing else may be under way.
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
        """Return a part to be asked for its first batch once more, and whether that is the first.

        Then it comes whatever its size (KIP-74): nothing has come, or nothing of what stands before
        it in the line, as that hangs. Others have the room that has not been used.
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
        """Take back what others have, from the end of the line, until a first batch has room.

        The next request gets it: no answer is larger than its limit, unless by one batch alone.
        """
        budget = self.budget
        for part in reversed(self._parts):
            if budget.size_bytes + size_bytes <= budget.max_bytes:
                break
            budget.give_back(sum(map(len, part.buffers)))
            part.buffers = []
        budget.leave_rest()

    def stop_waiting(self) -> list[PartitionRead]:
        """Wait for nothing any more, as the time is over; return the parts that have not come."""
        given_up = [part for part in self.given_up if not part.buffers]
        left = [*self._carried, *self.late, *given_up, *self.queue]
        self.leave()
        self.is_incomplete = self.is_incomplete or bool(left)
        return left

    def leave(self) -> None:
        """Let what is under way go on by itself."""
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
