"""How long a round of a classic group waits: for members to join, for more to come, to be assigned.

Pure; all times are monotonic seconds.
"""

from __future__ import annotations

from kgw.coordinator.machine import NEVER_S


class RoundTimes:
    """The deadlines of the round under way; `NEVER_S` where it does not wait for a thing."""

    __slots__ = (
        "_delay_s",
        "_window_limit_s",
        "is_postponed",
        "join_s",
        "more_until_s",
        "somebody_came",
        "sync_s",
    )

    def __init__(self, delay_s: float) -> None:
        """Take how long the first round of an empty group waits for more members (KIP-134)."""
        self._delay_s = delay_s
        self._window_limit_s = NEVER_S
        self.more_until_s = NEVER_S
        """Until when it waits for more members to come, though everybody has joined."""
        self.join_s = NEVER_S
        """When it goes on without those who have not joined."""
        self.sync_s = NEVER_S
        """When those go who have not asked for their assignment."""
        self.somebody_came = False
        """Whether a new member has joined since the delay began."""
        self.is_postponed = False
        """Whether a round waits on because nobody has joined but static members may come back."""

    @property
    def next_joining_s(self) -> float:
        """When joining is to be looked at next."""
        return min(self.join_s, self.more_until_s)

    def begin(self, now_s: float, timeout_s: float, *, is_first: bool) -> None:
        """A round begins, the first one of an empty group or another."""
        self.sync_s = NEVER_S
        self.join_s = now_s + timeout_s
        self.more_until_s = NEVER_S
        if is_first and self._delay_s > 0:
            self.more_until_s = now_s + min(self._delay_s, timeout_s)
            self._window_limit_s = self.join_s
            self.somebody_came = False

    def is_joining_over(self, now_s: float) -> bool:
        """Whether the time to join is over. Ends the delay, or lengthens it when more came."""
        if self.more_until_s <= now_s:
            lengthened_s = min(self._window_limit_s, now_s + self._delay_s)
            is_longer = self.somebody_came and self.more_until_s < self._window_limit_s
            self.more_until_s = lengthened_s if is_longer else NEVER_S
            self.somebody_came = False
        if self.join_s > now_s:
            return False
        self.more_until_s = NEVER_S
        return True

    def postpone(self, until_s: float) -> None:
        """Wait on for static members."""
        self.is_postponed = True
        self.join_s = until_s

    def formed(self, sync_s: float) -> None:
        """A generation has formed, and waits for its assignment until then."""
        self.is_postponed = False
        self.join_s = self.more_until_s = NEVER_S
        self.sync_s = sync_s
