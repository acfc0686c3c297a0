"""Reports of retries and slow responses of a client, to be shown to users."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kgw.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.clock import Clock

_SLOW_S = 5.0
_AGAIN_S = 5.0


class ClientDelay(NamedTuple):
    """A client that has not failed yet: it retries, or still waits."""

    reason: str
    """The failure, or the peer that has not answered."""
    action: str
    """The client's reaction: "trying again" or "waiting"."""
    left_s: float
    """After how many more seconds the client fails."""

    def __str__(self) -> str:
        return f"{self.reason}; {self.action}, for {max(1, round(self.left_s))} s at most"


class Delays:
    """Reports the delays of a client: each reason at once, and again every five seconds.

    A response that takes longer than `slow_s` seconds is a delay, too.
    """

    def __init__(
        self,
        tell: Callable[[ClientDelay], object] | None = None,
        *,
        slow_s: float = _SLOW_S,
        clock: Clock | None = None,
    ) -> None:
        self._tell = tell
        self._slow_s = slow_s
        self._clock = clock or SystemClock()
        self._told_s: dict[str, float] = {}

    def take(self, delay: ClientDelay) -> None:
        """Report a delay, unless the same reason was reported less than five seconds ago."""
        if self._tell is None:
            return
        now_s = self._clock.monotonic_s()
        self._told_s = {
            reason: told_s for reason, told_s in self._told_s.items() if now_s - told_s < _AGAIN_S
        }
        if delay.reason not in self._told_s:
            self._told_s[delay.reason] = now_s
            self._tell(delay)

    @contextmanager
    def watching(self, reason: str, limit_s: float, *, expected_s: float = 0.0) -> Iterator[None]:
        """Report a delay if the block takes long; the block itself must fail after `limit_s`.

        The first `expected_s` seconds are not a delay: the request allows the server to wait.
        """
        if self._tell is None:
            yield
            return
        slow_s = expected_s + self._slow_s
        delay = ClientDelay(reason, "waiting", limit_s - slow_s)
        timer = self._clock.call_at(self._clock.monotonic_s() + slow_s, lambda: self.take(delay))
        try:
            yield
        finally:
            timer.cancel()
