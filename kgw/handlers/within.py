"""Limits the time that a request waits for the storage.

The work itself continues to its end: it is done even if the client got no answer, and a repeated
request finds it done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.completion import Completion
from kgw.partitions.waits import storage_limit_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.completion import AnyCompletion
    from kgw.handlers.context import RequestContext


class Within(Completion[None]):
    """Done when something else is, or when the time of a request is over."""

    __slots__ = ("_deadlines", "_tick", "_when_late", "is_late", "limit_s")

    def __init__(
        self,
        due: AnyCompletion,
        context: RequestContext,
        when_late: Callable[[], object] | None = None,
    ) -> None:
        """`due` is not done yet. `when_late` is called if the time is over before it is."""
        super().__init__()
        self.result = None
        self.is_late = False
        """Whether the time was over first."""
        self.limit_s = storage_limit_s(getattr(context.request, "timeout_ms", None))
        self._when_late = when_late
        due.when_done(self._came)
        self._deadlines = context.gateway.request_deadlines
        self._tick = self._deadlines.add(self, context.received_s + self.limit_s)

    def _came(self, _: object) -> None:
        if not self.is_done:
            self._deadlines.remove(self, self._tick)
            self.finish()

    def expire(self) -> None:
        """End the wait, as the deadline has come."""
        if not self.is_done:
            self.is_late = True
            if self._when_late is not None:
                self._when_late()
            self.finish()
