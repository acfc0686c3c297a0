"""The responses to the records of one stream, in order, even if the client reads them late.

Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from kgw.types import NO_OFFSET

ANSWERS_MAX: Final = 10_000
"""The most responses that are kept for a client; SMQ's own publisher reads no responses."""


class RecordResult(NamedTuple):
    """The result of one record; `sequence` is its number in the stream, from 1."""

    sequence: int
    offset: int
    """NO_OFFSET if the record was refused."""
    error: str = ""


class AnswerQueue:
    """Takes results in any order, and returns them in the order of the records.

    So `ack_sequence` says that this record and all earlier ones were answered. If a client leaves
    more than `answers_max` responses unread, the oldest successes are dropped: a later response
    implies them. Refusals are kept.
    """

    def __init__(self, answers_max: int = ANSWERS_MAX) -> None:
        self._answers_max = answers_max
        self._early: dict[int, RecordResult] = {}
        self._next = 1
        self._stored: deque[RecordResult] = deque()
        self._refused: deque[RecordResult] = deque()
        self.dropped = 0
        """The number of successes that were dropped."""

    def __len__(self) -> int:
        return len(self._stored) + len(self._refused)

    @property
    def is_overrun(self) -> bool:
        """Whether more refusals are unread than a client may leave."""
        return len(self._refused) > self._answers_max

    def settle(self, answer: RecordResult) -> None:
        """Add the result of a record; call it once for each record."""
        self._early[answer.sequence] = answer
        while (answered := self._early.pop(self._next, None)) is not None:
            self._next += 1
            (self._stored if answered.offset != NO_OFFSET else self._refused).append(answered)
        while len(self._stored) > self._answers_max:
            self._stored.popleft()
            self.dropped += 1

    def take(self) -> RecordResult | None:
        """Return the next response; None if the next record has no result yet."""
        stored, refused = self._stored, self._refused
        if stored and (not refused or stored[0].sequence < refused[0].sequence):
            return stored.popleft()
        return refused.popleft() if refused else None
