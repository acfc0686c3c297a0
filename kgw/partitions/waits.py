"""How long requests wait, and the long poll of Fetch for records."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.clock import Clock, Timer

# Deadlines are moved back to the next multiple of this, so that waits end together: one timer, one
# turn of the loop and one poll for all of them. 1,000 clients that wait for 500 ms at a time took
# 10 % of a core with a timer each.
TICK_MS = 20
# A short wait is not made longer by a noticeable part of it.
_SHORT_WAIT_MS = 10 * TICK_MS
# Sums of seconds are that far from whole milliseconds at most.
_ROUNDING_MS = 1e-3


STORAGE_S: Final = 5.0
"""For how long a request waits for the storage when it says no time, or none that is one."""


def storage_limit_s(own_ms: int | None) -> float:
    """Return for how long a request waits for the storage, given the time that it says itself.

    Kafka's controller goes on in the background after a time of 0 or less; here it is as good as
    none (docs/decisions/0144).
    """
    return STORAGE_S if own_ms is None or own_ms <= 0 else own_ms / 1000


class Expiring(Protocol):
    """A wait that ends at its deadline."""

    def expire(self) -> object:
        """Take note that the time is up."""


class RequestDeadlines:
    """Ends waits whose time is up, all those of one tick in one call of the loop."""

    __slots__ = ("_ticks", "clock")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._ticks: dict[int, tuple[Timer, dict[Expiring, None]]] = {}

    @property
    def count(self) -> int:
        """How many wait."""
        return sum(len(waits) for _, waits in self._ticks.values())

    def add(self, wait: Expiring, deadline_s: float) -> int:
        """End a wait at its deadline, or up to TICK_MS later; return the tick, for `remove`."""
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
        """Forget a wait that has ended otherwise, and a timer that nobody waits for."""
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
        # The code that one wait wakes may end another wait.
        while waits:
            wait, _ = waits.popitem()
            wait.expire()


class Heard(Protocol):
    """What a wait listens to: some partitions."""

    def listen(self, wait: FetchWait) -> None:
        """Notify a wait of changes in the partitions."""

    def ignore(self, wait: FetchWait) -> None:
        """Stop notifying a wait."""


class FetchWait:
    """Waits until enough bytes have become visible in some partitions, or until a deadline.

    `wake` is called once for each `begin`, in the loop: when `missing_bytes` have become visible
    since then, when one of the partitions is deleted, or at the deadline. Nothing runs in between.
    After the deadline it rests: it goes on listening, and whoever begins again while it still rests
    knows that nothing has happened to the partitions meanwhile.
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
        """Whether its time is up, and nothing has happened since the wait began."""
        return self._is_listening and not self._is_armed and not self.has_advanced

    def begin(self, missing_bytes: int, deadline_s: float) -> None:
        """Wait for `missing_bytes` more bytes, at most until a deadline."""
        self._missing_bytes = missing_bytes
        self.expired = self.has_advanced = False
        if not self._is_listening:
            self._is_listening = True
            self._heard.listen(self)
        self._is_armed = True
        self._due_ms = self._deadlines.add(self, deadline_s)

    def advanced(self, size_bytes: int) -> None:
        """Take note that `size_bytes` more can be read from one of the partitions."""
        self.has_advanced = True
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 or not self._is_armed:
            self.fire()

    def fire(self) -> None:
        """End the wait, or the rest, now."""
        was_armed = self._is_armed
        self.cancel()
        if was_armed:
            self._wake()

    def expire(self) -> None:
        """End the wait because its time is up."""
        if self._is_armed:
            self.expired = True
            self._is_armed = False
            self._wake()

    def cancel(self) -> None:
        """Give the wait up: `wake` will not be called, and nothing is heard."""
        if self._is_armed:
            self._is_armed = False
            self._deadlines.remove(self, self._due_ms)
        if self._is_listening:
            self._is_listening = False
            self._heard.ignore(self)
