"""Time limits of requests, and the long poll of Fetch."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.clock import Clock, Timer

# Deadlines are rounded up to a multiple of this, so that many waits end with one timer in one turn
# of the loop. With a timer each, 1,000 clients with waits of 500 ms took 10 % of a core.
TICK_MS = 20
# A short wait must not become noticeably longer by the rounding.
_SHORT_WAIT_MS = 10 * TICK_MS
# The largest difference of a sum of seconds from whole milliseconds.
_ROUNDING_MS = 1e-3


STORAGE_S: Final = 5.0
"""How long a request waits for the storage if it has no valid timeout."""


def storage_limit_s(own_ms: int | None) -> float:
    """Return how long a request waits for the storage, given its own timeout.

    A timeout of 0 or less counts as none (docs/decisions/0144); Kafka's controller would answer at
    once and continue in the background.
    """
    return STORAGE_S if own_ms is None or own_ms <= 0 else own_ms / 1000


class Expiring(Protocol):
    """A wait that ends at its deadline."""

    def expire(self) -> object:
        """Handle that the deadline has come."""


class RequestDeadlines:
    """Ends waits at their deadlines; all waits of one tick end in one callback."""

    __slots__ = ("_ticks", "clock")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._ticks: dict[int, tuple[Timer, dict[Expiring, None]]] = {}

    @property
    def count(self) -> int:
        """The number of waits."""
        return sum(len(waits) for _, waits in self._ticks.values())

    def add(self, wait: Expiring, deadline_s: float) -> int:
        """End a wait at its deadline or up to TICK_MS later. Return the tick, for `remove`."""
        due_ms = ceil(deadline_s * 1000 - _ROUNDING_MS)
        if due_ms - self.clock.monotonic_s() * 1000 >= _SHORT_WAIT_MS:
            due_ms += -due_ms % TICK_MS
        tick = self._ticks.get(due_ms)
        if tick is None:
            timer = self.clock.call_at(due_ms / 1000, partial(self._expire, due_ms))
            self._ticks[due_ms] = (timer, {wait: None})
        else:
            tick[1][wait] = None
        return due_ms

    def remove(self, wait: Expiring, due_ms: int) -> None:
        """Forget a wait that has ended before its deadline; cancel a timer without waits."""
        tick = self._ticks.get(due_ms)
        if tick is None:
            return
        timer, waits = tick
        waits.pop(wait, None)
        if not waits:
            timer.cancel()
            del self._ticks[due_ms]

    def _expire(self, due_ms: int) -> None:
        _, waits = self._ticks.pop(due_ms)
        # Code that runs after one wait has ended may end another wait.
        while waits:
            wait, _ = waits.popitem()
            wait.expire()


class Heard(Protocol):
    """The partitions that a wait listens to."""

    def listen(self, wait: FetchWait) -> None:
        """Notify a wait of changes in these partitions."""

    def ignore(self, wait: FetchWait) -> None:
        """Stop notifying a wait."""


class FetchWait:
    """Waits until enough bytes have become visible in some partitions, or until a deadline.

    `wake` is called once for each `begin`, in the loop: when `missing_bytes` have become visible
    since then, when one of the partitions is deleted, or at the deadline. Nothing runs in between.
    After the deadline the wait rests and continues to listen. If it still rests at the next
    `begin`, nothing has happened to the partitions meanwhile.
    """

    __slots__ = (
        "_deadlines",
        "_due_ms",
        "_heard",
        "_is_armed",
        "_is_listening",
        "_missing_bytes",
        "_wake",
        "expired",
        "has_advanced",
    )

    def __init__(
        self, heard: Heard, deadlines: RequestDeadlines, wake: Callable[[], object]
    ) -> None:
        self._heard = heard
        self._deadlines = deadlines
        self._wake = wake
        self._missing_bytes = 0
        self._due_ms = 0
        self._is_armed = False
        self._is_listening = False
        self.expired = False
        self.has_advanced = False

    def __repr__(self) -> str:
        state = "waiting" if self._is_armed else "resting" if self._is_listening else "over"
        return f"<FetchWait {state}>"

    @property
    def is_resting(self) -> bool:
        """Whether the deadline has passed and nothing has happened since the wait began."""
        return self._is_listening and not self._is_armed and not self.has_advanced

    def begin(self, missing_bytes: int, deadline_s: float) -> None:
        """Wait for `missing_bytes` further bytes, at most until a deadline."""
        self._missing_bytes = missing_bytes
        self.expired = self.has_advanced = False
        if not self._is_listening:
            self._is_listening = True
            self._heard.listen(self)
        self._is_armed = True
        self._due_ms = self._deadlines.add(self, deadline_s)

    def advanced(self, size_bytes: int) -> None:
        """Handle that `size_bytes` more can be read from one of the partitions."""
        self.has_advanced = True
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 or not self._is_armed:
            self.fire()

    def fire(self) -> None:
        """End the wait or the rest state now."""
        was_armed = self._is_armed
        self.cancel()
        if was_armed:
            self._wake()

    def expire(self) -> None:
        """End the wait at its deadline."""
        if self._is_armed:
            self.expired = True
            self._is_armed = False
            self._wake()

    def cancel(self) -> None:
        """Give the wait up: stop listening, and never call `wake`."""
        if self._is_armed:
            self._is_armed = False
            self._deadlines.remove(self, self._due_ms)
        if self._is_listening:
            self._is_listening = False
            self._heard.ignore(self)
