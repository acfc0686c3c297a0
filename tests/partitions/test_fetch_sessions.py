from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.read.fetch_sessions import (
    EVICTION_S,
    PARTITIONS_PER_TURN,
    AnsweredPartition,
    FetchSession,
    FetchSessionCache,
    RequestedPartition,
    next_epoch,
)
from kgw.partitions.view import Isolation, PartitionListener, PartitionView, Presence
from kgw.turns import at_once
from tests.turns import counted

NOTHING: Any = None
"""Topic and log of a view that is listened to, and never asked."""


class Wait:
    """A request that waits."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.is_over = False

    def advanced(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes

    def fire(self) -> None:
        self.is_over = True


def new_cache(slots: int = 3, partitions_max: int = 1000) -> FetchSessionCache:
    """Return a cache whose sessions are called 1, 2, 3."""
    numbers = count(1)
    return FetchSessionCache(slots, partitions_max, lambda: next(numbers))


def told(size: int, topic: str = "orders") -> list[AnsweredPartition]:
    """Return so many partitions that were told to be empty."""
    return [
        AnsweredPartition(RequestedPartition(topic, index, 0, 1), 0, 0) for index in range(size)
    ]


def create(cache: FetchSessionCache, size: int = 1, now_s: float = 0.0) -> FetchSession | None:
    """Make a session of so many partitions, if there is room."""
    return at_once(cache.create(told(size), size, uses_topic_ids=False, now_s=now_s))


def test_epochs_begin_again_at_one() -> None:
    """After the largest epoch comes 1: 0 would ask for another session."""
    assert [2, 3, 0x7FFF_FFFF, 1] == [
        next_epoch(epoch) for epoch in (1, 2, 0x7FFF_FFFE, (1 << 31) - 1)
    ]


def test_an_id_in_use_is_not_given_again() -> None:
    """Ids are random, so one may come up that is taken, or 0."""
    numbers = iter([5, 5, 0, 5, 6])
    cache = FetchSessionCache(9, 9, lambda: next(numbers))
    assert [5, 6] == [session.id for session in (create(cache), create(cache)) if session]


@pytest.mark.parametrize("how", ["forget", "close", "replace"])
def test_nothing_listens_for_a_session_that_is_gone(how: str) -> None:
    """However a session ends, its partitions know nothing of it, and nobody waits for it."""
    cache = new_cache(slots=1)
    session = create(cache)
    assert session is not None
    (one,) = session.partitions()
    listeners: dict[PartitionListener, None] = {}
    one.view = PartitionView(
        NOTHING, 0, NOTHING, NOTHING, listeners, Isolation.READ_UNCOMMITTED, Presence()
    )
    session.settle(one)
    wait = session.wait = Wait()
    if how == "forget":
        cache.update(session, [], [("orders", 0)], 0.0)
    elif how == "close":
        cache.close(session.id)
    else:
        create(cache, 1, EVICTION_S + 1)
    assert ({}, True) == (listeners, wait.is_over)
    session.listen(one)
    assert {} == listeners


# --- room -----------------------------------------------------------------------------------------


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    """A session is not made, and does not grow, beyond the limit; others are not harmed."""
    cache = new_cache(slots=9, partitions_max=10)
    session = create(cache, 4)
    assert session is not None
    assert None is create(cache, 7)
    assert None is create(cache, 11)
    assert None is not create(cache, 6)
    with pytest.raises(KafkaError) as raised:
        cache.update(session, [RequestedPartition("payments", 0, 0, 1)], [], 0.0)
    assert ErrorCode.FETCH_SESSION_ID_NOT_FOUND == raised.value.code
    assert (1, 6, 1) == (len(cache), cache.size, cache.evictions)


def test_a_session_in_use_is_not_stale() -> None:
    """One that was left alone for long and grows now does not make room for itself."""
    cache = new_cache(slots=9, partitions_max=10)
    first, second = create(cache, 4), create(cache, 5)
    assert first is not None
    assert second is not None
    assert cache.update(
        first, [RequestedPartition("payments", index, 0, 1) for index in range(3)], [], 500.0
    )
    assert (1, 7, 1) == (len(cache), cache.size, cache.evictions)


def test_no_slots_no_sessions() -> None:
    """0 slots switch sessions off."""
    assert None is create(new_cache(slots=0))


class PlainCache:
    """Kafka's rule, plainly: a list of [id, size, created, last used, may be replaced]."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sessions: list[list[Any]] = []

    def create(self, session_id: int, size: int, now_s: float) -> bool:
        """Whether there is a new session."""
        if len(self.sessions) >= self.slots and not self.evict(size, now_s):
            return False
        self.sessions.append([session_id, size, now_s, now_s, False])
        return True

    def evict(self, size: int, now_s: float) -> bool:
        """Remove the one that a session of this size may replace."""
        if not self.sessions:
            return False
        stale = min(self.sessions, key=lambda one: one[3])
        old = sorted((one for one in self.sessions if one[4]), key=lambda one: (one[1], one[0]))
        if now_s - stale[3] > EVICTION_S:
            self.sessions.remove(stale)
        elif old and (size, 0) > (old[0][1], old[0][0]):
            self.sessions.remove(old[0])
        else:
            return False
        return True

    def use(self, session_id: int, size: int, now_s: float) -> None:
        """Note that a session is in use, and how large it is."""
        for one in self.sessions:
            if one[0] == session_id:
                one[1], one[3] = size, now_s
                one[4] = one[4] or now_s - one[2] > EVICTION_S
                # Used at the same time, the one used first counts as older.
                self.sessions.remove(one)
                self.sessions.append(one)
                return


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "use", "close"]),
            st.integers(1, 6),
            st.integers(1, 4),
            st.sampled_from([0.0, 1.0, 50.0, 119.0, 121.0]),
        ),
        max_size=40,
    )
)
def test_room_is_made_as_kafka_makes_it(steps: list[tuple[str, int, int, float]]) -> None:
    """The same sessions are there after any steps as by Kafka's rule, plainly written down."""
    cache, plain = new_cache(slots=3), PlainCache(3)
    now_s = 0.0
    for step, which, size, later_s in steps:
        now_s += later_s
        ids = sorted(one[0] for one in plain.sessions)
        session_id = ids[which % len(ids)] if ids else 0
        session = cache.get(session_id)
        if step == "create":
            made = create(cache, size, now_s)
            assert plain.create(0 if made is None else made.id, size, now_s) is (made is not None)
        elif session is None:
            continue
        elif step == "use":
            asked = [RequestedPartition("orders", index, 0, 1) for index in range(size)]
            gone = [("orders", index) for index in range(size, 6)]
            assert cache.update(session, asked, gone, now_s)
            plain.use(session_id, size, now_s)
        else:
            cache.close(session_id)
            plain.sessions = [one for one in plain.sessions if one[0] != session_id]
        found = {one[0]: one[1] for one in plain.sessions}
        there = {each: cache.get(each) for each in found}
        assert found == {each: one.size for each, one in there.items() if one is not None}
        assert (len(found), sum(found.values())) == (len(cache), cache.size)


def test_a_large_session_is_made_in_turns() -> None:
    """Others are served meanwhile: so many partitions are taken in at once, and no more."""
    size = 3 * PARTITIONS_PER_TURN + 1
    cache = new_cache(partitions_max=size)
    turns, session = counted(cache.create(told(size), size, uses_topic_ids=False, now_s=0.0))
    assert session is not None
    assert (4, size) == (turns, session.size)
