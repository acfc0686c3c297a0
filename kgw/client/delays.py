"""What a client waits for instead of failing, for whoever wants to tell a person."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kgw.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.clock import Clock

_SLOW_S = 5.0
_AGAIN_S = 5.0


class Delay(NamedTuple):
    """A client has not failed yet: it tries again, or goes on waiting."""

    reason: str
    """What has failed, or what does not answer."""
    action: str
    """What the client does about it: "trying again" or "waiting"."""
    left_s: float
    """How long it goes on before it fails."""

    def __str__(self) -> str:
        return f"{self.reason}; {self.action}, for {max(1, round(self.left_s))} s at most"


class Delays:
    """Passes on what delays a client: each reason at once, and while it lasts every five seconds.

    What has not come after `slow_s` seconds is a delay, too.
    """

    def __init__(
        self,
        tell: Callable[[Delay], object] | None = None,
        *,
        slow_s: float = _SLOW_S,
        clock: Clock | None = None,
    ) -> None:
        self._tell = tell
        self._slow_s = slow_s
        self._clock = clock or SystemClock()
        self._told_s: dict[str, float] = {}

    def take(self, delay: Delay) -> None:
        """Pass a delay on, unless the same has been passed on a moment ago."""
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
        """Take what is slow inside as a delay; it fails by itself at the limit.

        `expected_s` of the limit are no delay: the server was asked to wait so long.
        """
        if self._tell is None:
            yield
            return
        slow_s = expected_s + self._slow_s
        delay = Delay(reason, "waiting", limit_s - slow_s)
        timer = self._clock.call_at(self._clock.monotonic_s() + slow_s, lambda: self.take(delay))
        try:
            yield
        finally:
            timer.cancel()
