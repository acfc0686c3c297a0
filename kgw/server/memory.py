"""One budget for the requests of all connections, charged as their bytes arrive.

Kafka's `queued.max.request.bytes` charges the size that a frame announces. Here an announcement
costs nothing, so a hundred connections that announce 100 MB each are charged for the bytes sent.
"""

from __future__ import annotations

from typing import Protocol


class MemoryUser(Protocol):
    """A connection, as the budget sees it."""

    def memory_available(self) -> None:
        """Continue reading."""


class RequestMemory:
    """The bytes of requests in memory, and the connections that wait while there are too many.

    `partial_bytes` is memory for bytes that are not whole frames yet, `held_bytes` is memory for
    whole frames that are not started or not answered. When the budget is spent, connections wait.
    If incomplete frames have most of it, no bytes would ever be freed: then the connection that has
    waited longest may finish its frame.
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
        """Return whether this user must stop reading; it is called back when it may continue."""
        if not self.is_spent or user is self._exempt:
            return False
        self._waiting[user] = None
        chosen = self._choose_exempt()
        if chosen is not None and chosen is not user:
            chosen.memory_available()
        return chosen is not user

    def count(self, user: MemoryUser, *, held_bytes: int, partial_bytes: int) -> None:
        """Add to a user's bytes. If they become fewer, its exemption ends and others may go on."""
        self.held_bytes += held_bytes
        self.partial_bytes += partial_bytes
        self.is_spent = self.partial_bytes + self.held_bytes >= self.limit_bytes
        is_less = held_bytes < 0 or partial_bytes < 0
        if is_less and (self._waiting or user is self._exempt):
            self._go_on_without(user)

    def leave(self, user: MemoryUser) -> None:
        """Stop a user's wait and its exemption: it will not read any more."""
        self._waiting.pop(user, None)
        if user is self._exempt:
            self._go_on_without(user)

    def _go_on_without(self, user: MemoryUser) -> None:
        """End a user's exemption; let all continue if there is room, else exempt the next one."""
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
        """Return the user that may continue although the budget is spent, if one must."""
        if self._exempt is not None or self.held_bytes >= self.limit_bytes // 2:
            return None
        chosen = self._exempt = next(iter(self._waiting))
        del self._waiting[chosen]
        return chosen
