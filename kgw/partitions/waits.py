"""Waiting for records: the long poll of Fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.clock import Clock, Timer
    from kgw.partitions.partition import Partition


class FetchWait:
    """Waits until enough bytes have been committed to some partitions, or until a deadline.

    `wake` is called once, in the loop: when `missing_bytes` have become visible since the wait
    began, when one of the partitions is deleted, or at the deadline. Nothing runs in between:
    a thousand long polls cost one timer each (issue 3, bar 7).
    """

    __slots__ = ("_missing_bytes", "_partitions", "_timer", "_wake", "expired")

    def __init__(
        self,
        partitions: Sequence[Partition],
        missing_bytes: int,
        deadline_s: float,
        clock: Clock,
        wake: Callable[[], object],
    ) -> None:
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._wake = wake
        self.expired = False
        for partition in partitions:
            partition.waits[self] = None
        self._timer: Timer | None = clock.call_at(deadline_s, self._expire)

    def __repr__(self) -> str:
        state = "waiting" if self._timer is not None else "over"
        return f"<FetchWait {state} partitions={len(self._partitions)}>"

    def advanced(self, size_bytes: int) -> None:
        """Take note that `size_bytes` more can be read from one of the partitions."""
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self.fire()

    def fire(self) -> None:
        """End the wait now."""
        if self._timer is not None:
            self.cancel()
            self._wake()

    def cancel(self) -> None:
        """Give the wait up: `wake` will not be called."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            for partition in self._partitions:
                partition.waits.pop(self, None)

    def _expire(self) -> None:
        self.expired = True
        self.fire()
