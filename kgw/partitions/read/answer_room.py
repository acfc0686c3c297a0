"""Limits the size of Fetch answers: each answer, and the unsent bytes of all connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kgw.backend.base import ReadResult
    from kgw.metrics import Metrics

# An answer from memory is read in one turn of the event loop.
_ANSWER_BYTES: Final = 8 << 20
# The limit for all connections together. An answer may use half of the bytes left.
_ALL_BYTES: Final = 16 << 20
# Every answer may have this size, even above the limit, as one batch is always sent anyway.
_LEAST_BYTES: Final = 64 << 10
# An answer of this size does not wait for the disk. Otherwise the answers of a hundred clients that
# catch up would stay in memory while they wait for a few threads.
_LARGE_BYTES: Final = 1 << 20
# With less room than this, a large answer reads no further partition: otherwise each of a hundred
# partitions would be read for a batch that does not fit.
LEAST_PART_BYTES: Final = 64 << 10
BATCHES_PER_TURN: Final = 3_500
"""The limit of batches that are examined one by one in one turn of the event loop.

A read of one partition returns at most 1,000, so that a client's usual four partitions are served
together.
"""


class AnswerRoom:
    """Computes how large an answer may get: smaller if other answers have many bytes in memory.

    Otherwise a hundred clients that fetch 50 MB each and do not read from their sockets would take
    5 GB. A client that reads quickly gets the same bytes in a few answers instead of one.

    Connections count the bytes that clients have not received yet. `reading_bytes` are the bytes of
    answers that take more than one iteration of the event loop, because they come from disk or from
    many partitions. The reader counts them, as connections only know finished answers.
    """

    __slots__ = ("_metrics", "batches_per_turn", "reading_bytes")

    def __init__(self, metrics: Metrics, batches_per_turn: int = BATCHES_PER_TURN) -> None:
        self._metrics = metrics
        self.batches_per_turn = batches_per_turn
        self.reading_bytes = 0

    @property
    def next_bytes(self) -> int:
        """The size limit of the next answer, in bytes."""
        left_bytes = _ALL_BYTES - self._metrics.unsent_bytes - self.reading_bytes
        return max(_LEAST_BYTES, min(_ANSWER_BYTES, left_bytes // 2))


class AnswerBudget:
    """The size limit of one answer, and its size so far.

    Partitions are read in order, each up to the bytes that are left. The first batch of the answer
    is always included, whatever its size (KIP-74).
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
        """A `room` also limits answers that take several turns of the loop."""
        self.size_bytes = 0
        self.batches = 0
        """Number of batches examined one by one in this turn of the event loop."""
        self.batches_per_turn = BATCHES_PER_TURN if room is None else room.batches_per_turn
        self._max_bytes = max(0, max_bytes)
        # `max_bytes` is the highest possible limit of the answer.
        self.min_bytes = min(min_bytes, self._max_bytes)
        self.room = room
        self.reserved_bytes = 0
        """Bytes reserved for reads from storage that are running."""
        self._reading_bytes = 0
        # Whether the answer is large and a further batch did not fit.
        self._is_full = False

    @property
    def max_bytes(self) -> int:
        """Limit of the answer's size; only a first batch may exceed it."""
        return self._max_bytes

    @property
    def left_bytes(self) -> int:
        """Bytes that may still be added to the answer."""
        return max(0, self._max_bytes - self.size_bytes - self.reserved_bytes)

    @property
    def is_enough(self) -> bool:
        """Whether the answer has the `min_bytes` that the client asked for."""
        return self.size_bytes >= self.min_bytes

    @property
    def is_large(self) -> bool:
        """Whether the answer is large enough to be sent without waiting for further reads."""
        return self.size_bytes >= max(_LARGE_BYTES, self.min_bytes)

    def begin(self) -> None:
        """Reset the counts, as all partitions are read again."""
        self.size_bytes = self.reserved_bytes = 0
        self.batches = 0
        self._is_full = False

    def give_back(self, size_bytes: int) -> None:
        """Subtract one partition's bytes, as it is read again."""
        self.size_bytes -= size_bytes

    def share(self, wanted_bytes: int) -> int | None:
        """Return how many bytes a partition may add; None if it must not be read now."""
        # Not `left_bytes`: that property would take half of this function's time, for every
        # partition.
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
        """Add a partition's read to the answer. Return False if its first batch is too large."""
        if result.size_bytes > share and (self.size_bytes or self.reserved_bytes):
            # Further partitions might also be read in vain: with batches of 1 MB, 90 of 100
            # partitions. They are still read if only this partition's own limit was too small.
            self._is_full = self.is_large and share < wanted_bytes
            return False
        self.accept(result)
        return True

    def accept(self, result: ReadResult) -> None:
        """Add a partition's read to the answer, whatever its size."""
        self.size_bytes += result.size_bytes
        self.batches += result.batches
        if result.is_cut:
            self.leave_rest()

    def leave_rest(self) -> None:
        """Answer with the records read so far. The next request reads the other partitions."""
        self.min_bytes = min(self.min_bytes, 1)

    # --- beside other answers --------------------------------------------------------------------

    def reserve(self, wanted_bytes: int, others: int = 0) -> int:
        """Reserve bytes for reading a partition from storage. Return how many.

        The bytes left are divided among this partition and the `others` that are read at the same
        time.
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
        """End the reservation of `share` bytes. Return how many of them fit the answer now."""
        self.reserved_bytes -= share
        self.count()
        return min(share, self.left_bytes)

    def fit(self) -> bool:
        """Lower the limit to the room that is left now. Return whether it became lower.

        There may have been more room when the request arrived: if a hundred requests arrive
        together, most of them wait for a thread or for a turn of the event loop.
        """
        room = self.room
        if room is None:
            return False
        most_bytes = self.size_bytes + self.reserved_bytes + room.next_bytes
        if most_bytes >= self._max_bytes:
            return False
        self._max_bytes = most_bytes
        if self._max_bytes <= self.min_bytes:
            # All batches that fit have fewer bytes than `min_bytes`, so waiting does not help.
            self.leave_rest()
        return True

    def count(self) -> None:
        """Count the answer's bytes in `reading_bytes` before other requests run."""
        self._count(self.size_bytes + self.reserved_bytes)

    def stop_counting(self) -> None:
        """Stop counting the answer: its connection counts it now, or the answer was dropped."""
        self._count(0)

    def _count(self, size_bytes: int) -> None:
        if self.room is not None:
            self.room.reading_bytes += size_bytes - self._reading_bytes
            self._reading_bytes = size_bytes
