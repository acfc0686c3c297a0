"""How large answers with records get: each by itself, and all that clients have not taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kgw.backend.base import ReadResult
    from kgw.metrics import Metrics

# An answer from memory is read in one turn of the loop.
_ANSWER_BYTES: Final = 8 << 20
# Of all connections together; each answer may have half of what is left.
_ALL_BYTES: Final = 16 << 20
# What everybody gets, whatever others have left lying: a batch at least comes anyway.
_LEAST_BYTES: Final = 64 << 10
# An answer that holds so much waits for no disk any more. A hundred clients that catch up wait for
# a few threads, and hold what they have read meanwhile.
_LARGE_BYTES: Final = 1 << 20
# A large answer gives no partition less room than this: each of a hundred partitions would be read
# for a batch that does not fit.
LEAST_PART_BYTES: Final = 64 << 10
BATCHES_PER_TURN: Final = 3_500
"""How many batches a turn of the loop looks at one by one. One partition alone has 1,000, so that
the usual four partitions of a client are served side by side."""


class AnswerRoom:
    """Says how large an answer may get: smaller the more others hold.

    A hundred clients that ask for 50 MB each and read none of it would take 5 GB. One that is
    quick gets as much as it asks for in a few answers instead of one.

    What clients have not taken is counted by their connections. `reading_bytes` is what is read
    in more than one turn of the loop, from the disk or of many partitions, counted by whoever reads
    it: until it is answered no connection knows of it.
    """

    __slots__ = ("_metrics", "batches_per_turn", "reading_bytes")

    def __init__(self, metrics: Metrics, batches_per_turn: int = BATCHES_PER_TURN) -> None:
        self._metrics = metrics
        self.batches_per_turn = batches_per_turn
        self.reading_bytes = 0

    @property
    def next_bytes(self) -> int:
        """How large the next answer may get."""
        left_bytes = _ALL_BYTES - self._metrics.unsent_bytes - self.reading_bytes
        return max(_LEAST_BYTES, min(_ANSWER_BYTES, left_bytes // 2))


class AnswerBudget:
    """What one answer may hold, and what it holds by now.

    Partitions are served in order: each gets what the ones before it left, and the first batch of
    all comes whatever its size (KIP-74).
    """

    __slots__ = (
        "_is_full",
        "_max_bytes",
        "_reading_bytes",
        "batches",
        "batches_per_turn",
        "min_bytes",
        "reserved_bytes",
        "room",
        "size_bytes",
    )

    def __init__(self, max_bytes: int, min_bytes: int, room: AnswerRoom | None = None) -> None:
        """With a `room`, what is not read in one turn gets no larger than that has room for."""
        self.size_bytes = 0
        self.batches = 0
        """How many batches were looked at one by one in this turn."""
        self.batches_per_turn = BATCHES_PER_TURN if room is None else room.batches_per_turn
        self._max_bytes = max(0, max_bytes)
        # More than the answer may hold will never come together.
        self.min_bytes = min(min_bytes, self._max_bytes)
        self.room = room
        self.reserved_bytes = 0
        """Of what is being read from the storage, and has not come yet."""
        self._reading_bytes = 0
        # Whether a batch did not fit behind what is enough for an answer.
        self._is_full = False

    @property
    def max_bytes(self) -> int:
        """What the answer may hold, but for a first batch that is larger."""
        return self._max_bytes

    @property
    def left_bytes(self) -> int:
        """What the answer may still hold."""
        return max(0, self._max_bytes - self.size_bytes - self.reserved_bytes)

    @property
    def is_enough(self) -> bool:
        """Whether nobody has to wait for more."""
        return self.size_bytes >= self.min_bytes

    @property
    def is_large(self) -> bool:
        """Whether the answer may leave with what it has: the next request gets the rest."""
        return self.size_bytes >= max(_LARGE_BYTES, self.min_bytes)

    def begin(self) -> None:
        """Forget what was taken: all partitions are read anew."""
        self.size_bytes = self.reserved_bytes = 0
        self.batches = 0
        self._is_full = False

    def give_back(self, size_bytes: int) -> None:
        """Forget what one partition had: it is read anew."""
        self.size_bytes -= size_bytes

    def share(self, wanted_bytes: int) -> int | None:
        """Return how many bytes a partition may have; None when nothing is left for it."""
        # Not `left_bytes`: that takes half as long as all of this, for each part of an answer.
        left = self._max_bytes - self.size_bytes - self.reserved_bytes
        if (self.size_bytes or self.reserved_bytes) and (left <= 0 or self._is_full):
            return None
        if self.size_bytes and self.batches >= self.batches_per_turn:
            self.leave_rest()
            return None
        if left < LEAST_PART_BYTES and self.is_large:
            return None
        return max(0, min(wanted_bytes, left))

    def take(self, result: ReadResult, share: int, wanted_bytes: int) -> bool:
        """Take what was read of a partition; False for a first batch that is too large."""
        if result.size_bytes > share and (self.size_bytes or self.reserved_bytes):
            # Each of the others might be read for nothing, too: of 100 with batches of 1 MB, 90.
            # Not when it was this partition's own limit that was too small.
            self._is_full = self.is_large and share < wanted_bytes
            return False
        self.accept(result)
        return True

    def accept(self, result: ReadResult) -> None:
        """Take what was read of a partition, whatever its size."""
        self.size_bytes += result.size_bytes
        self.batches += result.batches
        if result.is_cut:
            self.leave_rest()

    def leave_rest(self) -> None:
        """Answer with what there is: there is more, and the next request gets it sooner."""
        self.min_bytes = min(self.min_bytes, 1)

    # --- beside other answers --------------------------------------------------------------------

    def reserve(self, wanted_bytes: int, others: int = 0) -> int:
        """Return how much of a partition may be read from the storage now, and count it as read.

        So many others are to be read beside it: each gets its part of what is left.
        """
        if self.fit():
            self.leave_rest()
        left = self.left_bytes
        part = max(LEAST_PART_BYTES, left // (1 + others))
        share = max(0, min(wanted_bytes, left, part))
        self.reserved_bytes += share
        self.count()
        return share

    def release(self, share: int) -> int:
        """Return how much there is room for of what `reserve` gave, which is reserved no more."""
        self.reserved_bytes -= share
        self.count()
        return min(share, self.left_bytes)

    def fit(self) -> bool:
        """Make the answer no larger than there is room for now; whether that makes it smaller.

        When the request came there may have been more room: a hundred clients that come together
        wait for a few threads, or for each other's turns.
        """
        room = self.room
        if room is None:
            return False
        most_bytes = self.size_bytes + self.reserved_bytes + room.next_bytes
        if most_bytes >= self._max_bytes:
            return False
        self._max_bytes = most_bytes
        if self._max_bytes <= self.min_bytes:
            # Whole batches that fit are less than that, and waiting makes no more of them.
            self.leave_rest()
        return True

    def count(self) -> None:
        """Have what was taken count as being read, before others have their turns and read, too."""
        self._count(self.size_bytes + self.reserved_bytes)

    def stop_counting(self) -> None:
        """Leave it to the connection, or to nobody: the answer leaves now, or was given up."""
        self._count(0)

    def _count(self, size_bytes: int) -> None:
        if self.room is not None:
            self.room.reading_bytes += size_bytes - self._reading_bytes
            self._reading_bytes = size_bytes
