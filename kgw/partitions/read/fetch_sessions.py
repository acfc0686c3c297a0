"""Fetch sessions (KIP-227): which requests continue a session, and which sessions are evicted.

A session stores the partitions that a client fetches, so that requests name only changes, and
answers only partitions with news. The rules are Kafka's:

* a complete request has epoch 0 (and makes a session) or -1 (and makes none); it closes the session
  whose id it has. Any other request continues a session and must have the session's epoch: 1 first,
  and 1 again after the highest epoch. Nothing else is checked: any client that knows the id may use
  the session;
* an answer contains partitions with records, an error or a divergence, and partitions whose high
  watermark or log start differs from the last one sent. A moved last stable offset alone is not
  sent;
* partitions with records in an answer move to the end of the order, so that after `max_bytes` is
  used up the others come first the next time;
* a new session replaces one that has not been used for two minutes; if there is none, the smallest
  one that is older than two minutes, if the new one is larger.

Two properties are not Kafka's: a limit of the partitions in all sessions together, and that a
session knows which of its partitions may have changed (`dirty`), as the partitions notify it. The
cost of a poll grows with the number of changed partitions, not with the size of the session.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kgw.errors import ErrorCode, KafkaError
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from kgw.partitions.view import PartitionListener, PartitionView

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

PARTITIONS_PER_TURN: Final = 600
"""Partitions added to a session in one iteration of the event loop (docs/decisions/0068)."""

EVICTION_S: Final = 120.0
"""Kafka's `min.incremental.fetch.session.eviction.ms`: how long a session is protected from
eviction."""

_LAST_EPOCH: Final = 0x7FFF_FFFF
_RANK: Final = attrgetter("rank")

TopicKey: TypeAlias = bytes | str
"""A topic's id if the session uses ids (KIP-516: Fetch 13 and later), else its name."""


class RequestedPartition(NamedTuple):
    """A request's fields for one partition."""

    topic: TopicKey
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


class AnsweredPartition(NamedTuple):
    """One partition in the answer to a complete request, with the request's fields for it."""

    asked: RequestedPartition
    high_watermark: int
    log_start_offset: int
    has_records: bool = False
    has_error: bool = False


def next_epoch(epoch: int) -> int:
    """Return the next epoch of a session."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class SessionPartition:
    """One partition of a session: the client's request for it, and the bounds last sent.

    It listens to its partition while there is no news, and while a request of the session waits.
    """

    __slots__ = (
        "current_leader_epoch",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "offset",
        "rank",
        "session",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "view",
    )

    def __init__(self, session: FetchSession, topic: TopicKey, index: int) -> None:
        self.session = session
        self.topic = topic
        self.index = index
        self.view: PartitionView | None = None
        self.offset = NO_OFFSET
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.told_high_watermark = NO_OFFSET
        self.told_log_start_offset = NO_OFFSET
        self.rank = session.next_rank()

    def __repr__(self) -> str:
        return f"<SessionPartition {self.topic!r}-{self.index} offset={self.offset}>"

    def is_told(self, high_watermark: int, log_start_offset: int) -> bool:
        """Return whether these bounds were sent to the client last."""
        return (
            high_watermark == self.told_high_watermark
            and log_start_offset == self.told_log_start_offset
        )

    def tell(
        self,
        high_watermark: int,
        log_start_offset: int,
        *,
        has_records: bool = False,
        has_error: bool = False,
        diverges: bool = False,
    ) -> bool:
        """Return whether an answer must include the partition, and store the bounds as sent."""
        is_news = not self.is_told(high_watermark, log_start_offset)
        # The end of an error is news, too.
        self.told_high_watermark = NO_OFFSET if has_error else high_watermark
        self.told_log_start_offset = log_start_offset
        if has_records:
            self.rank = self.session.next_rank()
        return is_news or has_records or has_error or diverges

    # --- notifications of the partition ----------------------------------------------------------

    def advanced(self, size_bytes: int) -> None:
        """Handle that `size_bytes` more can be read."""
        session = self.session
        session.dirty[self] = None
        if session.wait is not None:
            session.wait.advanced(size_bytes)
        elif self.view is not None:
            # Stop listening after one notification: an abandoned session costs no further ones.
            self.view.ignore(self)

    def fire(self) -> None:
        """Handle a changed log start offset, or a deleted or moved partition."""
        session = self.session
        session.dirty[self] = None
        if self.view is not None:
            self.view.ignore(self)
        if session.wait is not None:
            session.wait.fire()


class FetchSession:
    """The partitions that one client fetches, and the epoch of its requests."""

    __slots__ = (
        "_rank",
        "_topics",
        "created_s",
        "dirty",
        "epoch",
        "id",
        "is_closed",
        "noted_s",
        "size",
        "used_s",
        "uses_topic_ids",
        "wait",
    )

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_s: float) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_s = self.used_s = now_s
        self.size = 0
        """The number of its partitions."""
        self.dirty: dict[SessionPartition, None] = {}
        """Partitions that may have changed."""
        self.wait: PartitionListener | None = None
        """The waiting request."""
        self.is_closed = False
        self.noted_s = now_s
        """When the positions of its client were recorded last."""
        self._topics: dict[TopicKey, dict[int, SessionPartition]] = {}
        self._rank = 0

    def __repr__(self) -> str:
        return f"<FetchSession {self.id} epoch={self.epoch} size={self.size}>"

    def next_rank(self) -> int:
        """Return the rank at the end of the order."""
        self._rank += 1
        return self._rank

    def partitions(self) -> Iterable[SessionPartition]:
        """Every partition, by topic."""
        for topic in self._topics.values():
            yield from topic.values()

    def ask(self, asked: RequestedPartition) -> SessionPartition:
        """Store a request's fields for a partition. Adds the partition if it is new."""
        topic = self._topics.get(asked.topic)
        if topic is None:
            topic = self._topics[asked.topic] = {}
        one = topic.get(asked.partition)
        if one is None:
            one = topic[asked.partition] = SessionPartition(self, asked.topic, asked.partition)
            self.size += 1
        one.offset = asked.offset
        one.max_bytes = asked.max_bytes
        one.current_leader_epoch = asked.current_leader_epoch
        one.last_fetched_epoch = asked.last_fetched_epoch
        self.dirty[one] = None
        return one

    def forget(self, topic_key: TopicKey, index: int) -> None:
        """Remove a partition, if it is in the session."""
        topic = self._topics.get(topic_key)
        one = None if topic is None else topic.pop(index, None)
        if topic is None or one is None:
            return
        if not topic:
            del self._topics[topic_key]
        self.size -= 1
        self.dirty.pop(one, None)
        if one.view is not None:
            one.view.ignore(one)

    def in_line(self) -> list[SessionPartition]:
        """Return the dirty partitions in the order in which they were last answered."""
        return sorted(self.dirty, key=_RANK)

    def settle(self, one: SessionPartition) -> None:
        """Skip a partition until it notifies of a change."""
        self.dirty.pop(one, None)
        self.listen(one)

    def listen(self, one: SessionPartition) -> None:
        """Have a partition notify its entry of changes."""
        if one.view is not None and not self.is_closed:
            one.view.listen(one)

    def close(self) -> None:
        """Stop listening; a waiting request is answered with the records read so far."""
        self.is_closed = True
        for one in self.partitions():
            if one.view is not None:
                one.view.ignore(one)
        if self.wait is not None:
            self.wait.fire()


class FetchSessionCache:
    """The sessions of this process: at most `slots`, with `partitions_max` partitions together."""

    __slots__ = ("_new_id", "_sessions", "evictions", "limit", "slots")

    def __init__(self, slots: int, partitions_max: int, new_id: Callable[[], int]) -> None:
        """`new_id` returns a random number from 1 to 2^31 - 1."""
        self.slots = slots
        self.limit = partitions_max
        self.evictions = 0
        self._new_id = new_id
        # In the order of last use, oldest first.
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<FetchSessionCache sessions={len(self)} partitions={self.size}>"

    @property
    def size(self) -> int:
        """Partitions in all sessions."""
        return sum(session.size for session in self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def create(
        self, told: Iterable[AnsweredPartition], size: int, *, uses_topic_ids: bool, now_s: float
    ) -> Generator[None, None, FetchSession | None]:
        """Return a new session with the partitions of an answer; None if there is no room.

        `told` has at most `size` partitions.
        """
        if not self._make_room(size, None, now_s):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = FetchSession(session_id, uses_topic_ids=uses_topic_ids, now_s=now_s)
        for number, one_told in enumerate(told, 1):
            asked, high_watermark, log_start_offset, has_records, has_error = one_told
            one = session.ask(asked)
            one.tell(high_watermark, log_start_offset, has_records=has_records, has_error=has_error)
            if not number % PARTITIONS_PER_TURN:
                yield
        # Other sessions may have been created meanwhile.
        if session_id in self._sessions or not self._make_room(size, None, now_s):
            return None
        self._sessions[session_id] = session
        return session

    def go_on(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession:
        """Return the session that an incremental request continues.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR. After any of them clients send a complete request.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no session {session_id}")
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"session {session_id} is at epoch {session.epoch}, not {epoch}",
            )
        if session.uses_topic_ids is not uses_topic_ids:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"session {session_id} names topics otherwise",
            )
        return session

    def update(
        self,
        session: FetchSession,
        asked: Iterable[RequestedPartition],
        forgotten: Iterable[tuple[TopicKey, int]],
        now_s: float,
    ) -> bool:
        """Add and remove the partitions in a request. Return whether the session continues.

        A session without partitions is closed. Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, and
        closes the session, if there is no room for the added partitions.
        """
        # This is the wait of an earlier request, which gets an error if it is still running.
        wait, session.wait = session.wait, None
        try:
            return self._update(session, asked, forgotten, now_s)
        finally:
            if wait is not None:
                wait.fire()

    def _update(
        self,
        session: FetchSession,
        asked: Iterable[RequestedPartition],
        forgotten: Iterable[tuple[TopicKey, int]],
        now_s: float,
    ) -> bool:
        session.epoch = next_epoch(session.epoch)
        size_before = session.size
        for one in asked:
            session.ask(one)
        for topic, index in forgotten:
            session.forget(topic, index)
        if not session.size:
            self.remove(session)
            return False
        session.used_s = now_s
        self._sessions[session.id] = self._sessions.pop(session.id)
        if session.size > size_before and not self._make_room(session.size, session, now_s):
            self.remove(session)
            self.evictions += 1
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session.id} has become too large"
            )
        return True

    def close(self, session_id: int) -> None:
        """Close the session with this id, if there is one."""
        session = self._sessions.get(session_id)
        if session is not None:
            self.remove(session)

    def remove(self, session: FetchSession) -> None:
        """Close a session of this cache."""
        del self._sessions[session.id]
        session.close()

    def _make_room(self, size: int, grown: FetchSession | None, now_s: float) -> bool:
        """Evict sessions within the rules until this size fits. Return whether it fits.

        `grown` is the session that has grown to this size; None for a new session.
        """
        if size > self.limit:
            return False
        sessions, partitions = len(self), self.size
        if grown is None:
            sessions, partitions = sessions + 1, partitions + size
        while sessions > self.slots or partitions > self.limit:
            evicted = self._evictable(size, now_s)
            if evicted is None or evicted is grown:
                return False
            sessions, partitions = sessions - 1, partitions - evicted.size
            self.remove(evicted)
            self.evictions += 1
        return True

    def _evictable(self, size: int, now_s: float) -> FetchSession | None:
        """Return a session that a session of this size may evict, or None."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and now_s - oldest.used_s > EVICTION_S:
            return oldest
        smaller = [
            (one.size, one.id)
            for one in self._sessions.values()
            if one.size < size and one.used_s - one.created_s > EVICTION_S
        ]
        return self._sessions[min(smaller)[1]] if smaller else None
