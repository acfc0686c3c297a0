"""One budget for the requests of all connections, charged as their bytes arrive.

Kafka's `queued.max.request.bytes` charges what a frame claims; here a claim costs nothing, so a
hundred connections that announce 100 MB each take what they have sent.
"""

from __future__ import annotations

from typing import Protocol


class MemoryUser(Protocol):
    """A connection, as far as the budget is concerned."""

    def memory_available(self) -> None:
        """Go on reading."""


class RequestMemory:
    """The bytes of requests in memory, and the connections that wait while there are too many.

    `partial_bytes` is memory for what has not been cut into frames yet, `held_bytes` whole frames
    that wait for their turn or their answer.
    When the budget is spent, connections wait. If most of it lies in frames that are incomplete,
    nothing would ever be given back: then the one that has waited longest may finish its frame.
    """

    __slots__ = ("_exempt", "_waiting", "held_bytes", "is_spent", "limit_bytes", "partial_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.partial_bytes = 0
        self.held_bytes = 0
        self.is_spent = False
        self._waiting: dict[MemoryUser, None] = {}
        self._exempt: MemoryUser | None = None

    @property
    def used_bytes(self) -> int:
        return self.partial_bytes + self.held_bytes

    def must_wait(self, user: MemoryUser) -> bool:
        """Return whether this user has to stop reading; it is called back when it may go on."""
        if not self.is_spent or user is self._exempt:
            return False
        self._waiting[user] = None
        chosen = self._choose_exempt()
        if chosen is not None and chosen is not user:
            chosen.memory_available()
        return chosen is not user

    def count(self, user: MemoryUser, *, held_bytes: int, partial_bytes: int) -> None:
        """Count more of a user's bytes, or fewer, which end its exemption and let others go on."""
        self.held_bytes += held_bytes
        self.partial_bytes += partial_bytes
        self.is_spent = self.partial_bytes + self.held_bytes >= self.limit_bytes
        is_less = held_bytes < 0 or partial_bytes < 0
        if is_less and (self._waiting or user is self._exempt):
            self._go_on_without(user)

    def leave(self, user: MemoryUser) -> None:
        """Let a user wait no longer, nor be exempt: it will read no more."""
        self._waiting.pop(user, None)
        if user is self._exempt:
            self._go_on_without(user)

    def _go_on_without(self, user: MemoryUser) -> None:
        """End a user's exemption; let all go on when there is room, else the next one."""
        if user is self._exempt:
            self._exempt = None
        if not self._waiting:
            return
        if not self.is_spent:
            waiting, self._waiting = self._waiting, {}
            for one in waiting:
                one.memory_available()
        else:
            chosen = self._choose_exempt()
            if chosen is not None:
                chosen.memory_available()

    def _choose_exempt(self) -> MemoryUser | None:
        """Return the user that may go on although the budget is spent, when one is due."""
        if self._exempt is not None or self.held_bytes >= self.limit_bytes // 2:
            return None
        chosen = self._exempt = next(iter(self._waiting))
        del self._waiting[chosen]
        return chosen
