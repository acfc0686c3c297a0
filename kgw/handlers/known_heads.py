"""What is remembered of requests that repeat an earlier one: so many heads, for all connections."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

KnownT = TypeVar("KnownT")

MAX_KNOWN: Final = 4096
"""How many heads are remembered, for all connections together: some 4 MB at most."""
CLIENT_ID_POSITION: Final = 8
"""Where a request begins to repeat: behind API key, version and correlation id."""
_FULL_SHARE: Final = 16
"""Once there are so many, one of so many new ones is remembered: remembering takes as long as
answering, and with more heads than that in use most of it would be in vain."""


class KnownHeads(Generic[KnownT]):
    """What requests of one API say, by version and head: the bytes from the client id on."""

    def __init__(self) -> None:
        self.by_version: dict[int, dict[bytes, KnownT]] = {}
        self._left_out = 0

    def __len__(self) -> int:
        return sum(map(len, self.by_version.values()))

    def find(self, frame: memoryview, version: int, head_end: int) -> KnownT | None:
        """Return what a request says whose head, if it is known, ends at `head_end`."""
        known = self.by_version.get(version)
        if known is None:
            return None
        return known.get(bytes(frame[CLIENT_ID_POSITION:head_end]))

    def has_room(self) -> bool:
        """Whether another one may be remembered, after an old one has gone if need be."""
        if len(self) < MAX_KNOWN:
            return True
        self._left_out += 1
        if self._left_out % _FULL_SHARE:
            return False
        largest = max(self.by_version.values(), key=len)
        del largest[next(iter(largest))]
        return True

    def remember(self, version: int, head: bytes, known: KnownT) -> None:
        """Remember what requests with this head say; `has_room` has been asked."""
        self.by_version.setdefault(version, {})[head] = known

    def forget(self, _: object = None) -> None:
        """Forget all of them: a topic has been deleted, and must not be kept in memory."""
        self.by_version.clear()
