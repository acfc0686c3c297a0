"""One memory budget for the requests of all connections, which counts bytes as they arrive.

Kafka's `queued.max.request.bytes` counts the size in a frame's header. Here only the bytes that
have arrived count, even if a hundred connections announce 100 MB each.
"""

from __future__ import annotations

from typing import Protocol


class MemoryUser(Protocol):
    """A connection, in the terms of the budget."""

    def memory_available(self) -> None:
        """Continue to read."""


class RequestMemory:
    """The bytes of requests in memory, and the connections that wait while there are too many.

    `partial_bytes` is memory for bytes that are not whole frames yet, `held_bytes` is memory for
    whole frames that are not started or not answered. When the budget is used up, connections wait.
    If most of it belongs to incomplete frames, no bytes would ever be freed: then the connection
    that has waited longest may complete its frame.
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
        """Return whether this user must stop reading. It is called back when it may continue."""
        if not self.is_spent or user is self._exempt:
            return False
        self._waiting[user] = None
        chosen = self._choose_exempt()
        if chosen is not None and chosen is not user:
            chosen.memory_available()
        return chosen is not user

    def count(self, user: MemoryUser, *, held_bytes: int, partial_bytes: int) -> None:
        """Change a user's bytes.

        If the bytes become fewer, the exemption of this user ends, and other users may continue.
        """
        self.held_bytes += held_bytes
        self.partial_bytes += partial_bytes
        self.is_spent = self.partial_bytes + self.held_bytes >= self.limit_bytes
        is_less = held_bytes < 0 or partial_bytes < 0
        if is_less and (self._waiting or user is self._exempt):
            self._go_on_without(user)

    def leave(self, user: MemoryUser) -> None:
        """End a user's wait and its exemption, as it will not read any more."""
        self._waiting.pop(user, None)
        if user is self._exempt:
            self._go_on_without(user)

    def _go_on_without(self, user: MemoryUser) -> None:
        """End a user's exemption. All continue if there is room, else the next one is exempt."""
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
        """Return the user that may continue although the budget is used up, or None."""
        if self._exempt is not None or self.held_bytes >= self.limit_bytes // 2:
            return None
        chosen = self._exempt = next(iter(self._waiting))
        del self._waiting[chosen]
        return chosen
