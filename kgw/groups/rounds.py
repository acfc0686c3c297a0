"""The deadlines of a round (one rebalance) of a classic group.

A round waits for members to join, for new members, and for the assignment. No I/O; all times are
monotonic seconds.
"""

from __future__ import annotations

from kgw.coordinator.machine import NEVER_S


class RoundTimes:
    """The deadlines of the current round. A deadline that does not apply is `NEVER_S`."""

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
        """`delay_s`: how long the first round of an empty group waits for members (KIP-134)."""
        self._delay_s = delay_s
        self._window_limit_s = NEVER_S
        self.more_until_s = NEVER_S
        """The first round waits for new members until this time, even if all known ones have
        joined."""
        self.join_s = NEVER_S
        """At this time the generation forms without members that have not joined."""
        self.sync_s = NEVER_S
        """At this time members that have not sent SyncGroup are removed."""
        self.somebody_came = False
        """Whether a new member has joined since the delay was begun or extended."""
        self.is_postponed = False
        """Whether `join_s` was postponed, as no member has joined but static members may return."""

    @property
    def next_joining_s(self) -> float:
        """The next time to call `is_joining_over`."""
        return min(self.join_s, self.more_until_s)

    def begin(self, now_s: float, timeout_s: float, *, is_first: bool) -> None:
        """Set the deadlines of a new round. `is_first`: the first round of an empty group."""
        self.sync_s = NEVER_S
        self.join_s = now_s + timeout_s
        self.more_until_s = NEVER_S
        if is_first and self._delay_s > 0:
            self.more_until_s = now_s + min(self._delay_s, timeout_s)
            self._window_limit_s = self.join_s
            self.somebody_came = False

    def is_joining_over(self, now_s: float) -> bool:
        """Return whether the time to join is over.

        Also handles the end of the delay: extends it if new members have joined meanwhile.
        """
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
        """Wait longer for static members to return."""
        self.is_postponed = True
        self.join_s = until_s

    def formed(self, sync_s: float) -> None:
        """Handle a formed generation: members must send SyncGroup until `sync_s`."""
        self.is_postponed = False
        self.join_s = self.more_until_s = NEVER_S
        self.sync_s = sync_s
