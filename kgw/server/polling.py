"""A loop that stays awake for a client which asks again as soon as it has its answer.

Such a client sends the next small request some 40 us after the last answer. A loop that has gone to
sleep by then is woken 30 us later, on a core whose caches others have used: it costs more than to
look for the request all the while. So the loop does that, for as long as `kgw.busy.poll.us` says,
where it has paid of late: one connection alone, small requests, small answers, each within
`PROMPT_S` of the one before. Nothing else keeps it awake: an idle server sleeps, so does a busy one
as soon as its clients leave it the time, and while a disk has to work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.clock import Clock

SMALL_BYTES: Final = 4096
"""What is read, or answered, at once; clients that move data want the processor themselves."""
PROMPT_S: Final = 0.00025
"""Between two answers. Those that wait for a disk are farther apart: they gained nothing."""
ENOUGH: Final = 16
"""Prompt answers in a row before the loop stays awake."""
MOST: Final = 64
MISS: Final = 8
"""What one wait for nothing takes back: at most every eighth request is waited for in vain."""


class Polling:
    """Who is waited for, and until when. For the event loop's thread only."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Clock, wait_s: float
    ) -> None:
        """With a `wait_s` of 0 nobody is waited for."""
        self._call_soon = call_soon
        self._clock = clock
        self._wait_s = wait_s
        self._connection: object = None
        """The one that was answered last."""
        self._answered_s = 0.0
        self._credit = 0
        self.waits_until_s = 0.0
        """0 when nobody is waited for."""
        self._is_awake = False

    def note_read(self, size_bytes: int) -> None:
        """Note that something has come: nothing is waited for until it is answered."""
        self.waits_until_s = 0.0
        if size_bytes > SMALL_BYTES:
            self._credit = 0

    def note_answer(self, connection: object, size_bytes: int) -> None:
        """Note that a client has been sent all that it can wait for, and wait for it perhaps."""
        if connection is not self._connection or size_bytes > SMALL_BYTES:
            self._connection = connection
            self._credit = 0
            return
        now_s = self._clock.monotonic_s()
        is_prompt = now_s - self._answered_s < PROMPT_S
        self._answered_s = now_s
        if not is_prompt:
            self._credit = max(self._credit - MISS, 0)
            return
        self._credit = min(self._credit + 1, MOST)
        if self._credit >= ENOUGH and self._wait_s:
            self.waits_until_s = now_s + self._wait_s
            if not self._is_awake:
                self._is_awake = True
                self._call_soon(self._look)

    def _look(self) -> None:
        """Keep the loop awake for one more turn, in which it looks for what has come."""
        if self.waits_until_s:
            if self._clock.monotonic_s() < self.waits_until_s:
                self._call_soon(self._look)
                return
            self._credit = max(self._credit - MISS, 0)
            self.waits_until_s = 0.0
        self._is_awake = False

    def forget(self, connection: object) -> None:
        """Wait no more for a connection that is closed."""
        if connection is self._connection:
            self._connection = None
            self._credit = 0
            self.waits_until_s = 0.0
