"""Limits the time that a request waits for the storage.

The work itself continues to its end: it is done even if the client got no answer, and a repeated
request finds it done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.completion import Completion

if TYPE_CHECKING:
    from kgw.completion import AnyCompletion
    from kgw.partitions.waits import RequestDeadlines


class Within(Completion[None]):
    """Done when another completion is done, or at a deadline."""

    __slots__ = ("_deadlines", "_tick", "is_late")

    def __init__(self, due: AnyCompletion, deadlines: RequestDeadlines, deadline_s: float) -> None:
        """`due` must not be done yet."""
        super().__init__()
        self.is_late = False
        """Whether the deadline came first."""
        self._deadlines = deadlines
        due.when_done(self._came)
        self._tick = deadlines.add(self, deadline_s)

    def _came(self, _: object) -> None:
        if not self.is_done:
            self._deadlines.remove(self, self._tick)
            self.set_result(None)

    def expire(self) -> None:
        """End the wait, as the deadline has come."""
        if not self.is_done:
            self.is_late = True
            self.set_result(None)
