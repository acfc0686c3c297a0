"""The last fetch offsets of clients, as the positions of consumers that commit no offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kgw.types import TopicId

CLIENT_ID_CHARACTERS = 255
"""The limit for a client id, which may have 32,767 bytes: the table keeps thousands of them."""


class ClientPosition(NamedTuple):
    """The last fetch offset of a client in one partition."""

    client_id: str
    topic_id: TopicId
    partition: int
    fetch_offset: int
    seen_s: float
    """Monotonic time of that request."""


class ClientPositions:
    """The last fetch offset by client id and partition; keeps the `limit` newest entries.

    Clients with the same client id share one entry, as in Kafka's metrics by client id.
    """

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # In the order of the latest fetch, oldest first. The last value is `is_committed`; None if
        # clients with the same id have different isolation levels.
        self._entries: dict[tuple[str, TopicId, int], tuple[int, float, bool | None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def note(
        self,
        client_id: str | None,
        topic_id: TopicId,
        partition: int,
        offset: int,
        now_s: float,
        *,
        is_committed: bool,
    ) -> None:
        """Store a client's position. If there is no room, drop the oldest one.

        `is_committed`: the isolation level is read_committed.
        """
        key = ((client_id or "")[:CLIENT_ID_CHARACTERS], topic_id, partition)
        entries = self._entries
        before = entries.pop(key, None)
        # If clients share an id but not an isolation level, the level of each is not known.
        is_told = before is None or before[2] is is_committed
        entries[key] = (offset, now_s, is_committed if is_told else None)
        if len(entries) > self._limit:
            del entries[next(iter(entries))]

    def are_given_aborted(
        self, client_ids: Iterable[str], topic_id: TopicId, partition: int
    ) -> bool:
        """Return whether a client with this id is known to use read_uncommitted on a partition."""
        keys = ((one[:CLIENT_ID_CHARACTERS], topic_id, partition) for one in client_ids)
        found = (self._entries.get(key) for key in keys)
        return any(one is not None and one[2] is False for one in found)

    def expire(self, seen_before_s: float) -> None:
        """Drop clients whose last fetch is too old."""
        gone = []
        for key, (_, seen_s, _) in self._entries.items():
            if seen_s >= seen_before_s:
                break
            gone.append(key)
        for key in gone:
            del self._entries[key]

    def forget_topic(self, topic_id: TopicId) -> None:
        """Drop the positions in a topic that has been deleted."""
        for key in [key for key in self._entries if key[1] == topic_id]:
            del self._entries[key]

    def __iter__(self) -> Iterator[ClientPosition]:
        for key, (offset, seen_s, _) in list(self._entries.items()):
            client_id, topic_id, partition = key
            yield ClientPosition(client_id, topic_id, partition, offset, seen_s)
