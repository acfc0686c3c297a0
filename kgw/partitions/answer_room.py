"""How much answers may hold that clients have not taken: bounded over all connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kgw.metrics import Metrics

# An answer from memory is read in one turn of the loop: 0.3 ms for each MB.
_ANSWER_BYTES: Final = 8 << 20
# Of all connections together; each answer may have half of what is left.
_ALL_BYTES: Final = 16 << 20
# What everybody gets, whatever others have left lying: a batch at least comes anyway.
_LEAST_BYTES: Final = 64 << 10


class AnswerRoom:
    """Says how large an answer may get: smaller the more others hold.

    A hundred clients that ask for 50 MB each and read none of it would take 5 GB. One that is
    quick gets as much as it asks for in a few answers instead of one.

    What clients have not taken is counted by their connections. `reading_bytes` is what is read
    in more than one turn of the loop, from the disk or of many partitions, counted by whoever reads
    it: until it is answered no connection knows of it.
    """

    __slots__ = ("_metrics", "reading_bytes")

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.reading_bytes = 0

    @property
    def next_bytes(self) -> int:
        """How large the next answer may get."""
        left_bytes = _ALL_BYTES - self._metrics.unsent_bytes - self.reading_bytes
        return max(_LEAST_BYTES, min(_ANSWER_BYTES, left_bytes // 2))
