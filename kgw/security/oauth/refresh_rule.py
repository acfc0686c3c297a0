"""Decides when to fetch the key set again. Time is an argument. Pure."""

from __future__ import annotations

from typing import Final

FEWEST_SECONDS_BETWEEN_ASKED: Final = 10.0
"""Tokens with unknown keys make the server fetch the key set at most this often, as anybody can
send such tokens."""


class RefreshRule:
    """Decides by the times of earlier fetches. All times are monotonic seconds."""

    def __init__(self, refresh_s: float, retry_s: float, longest_retry_s: float) -> None:
        """After a failure the pause is `retry_s`, and doubles up to `longest_retry_s`."""
        self._refresh_s = refresh_s
        self._retry_s = retry_s
        self._longest_retry_s = max(retry_s, longest_retry_s)
        self._pause_s = retry_s
        self._asked_from_s = 0.0
        self.next_s = 0.0
        """The time of the next regular fetch."""

    def begin(self, now_s: float) -> None:
        """Note that a fetch begins."""
        self._asked_from_s = now_s + FEWEST_SECONDS_BETWEEN_ASKED

    def succeed(self, now_s: float) -> None:
        """Note that a fetch has succeeded."""
        self._pause_s = self._retry_s
        self.next_s = now_s + self._refresh_s

    def fail(self, now_s: float) -> None:
        """Note that a fetch has failed."""
        self.next_s = now_s + min(self._pause_s, self._refresh_s)
        self._pause_s = min(2 * self._pause_s, self._longest_retry_s)

    def may_ask(self, now_s: float) -> bool:
        """Return whether a token with an unknown key makes the server fetch the key set."""
        return now_s >= self._asked_from_s
