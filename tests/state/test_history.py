"""What every store does with samples of groups' positions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.state.base import Change, Row
from kgw.state.history import LagHistoryPoint, SampleFilter
from tests.state.support import SqliteDatabase, opened

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.state.base import StateStore


def sample(
    at_ms: int, group_id: str = "g", topic: str = "t", partition: int = 0
) -> LagHistoryPoint:
    """Return a sample whose numbers tell its moment."""
    return LagHistoryPoint(at_ms, group_id, topic, partition, at_ms, at_ms + 5, at_ms * 2)


async def test_samples_come_back_in_the_order_of_time(store: StateStore) -> None:
    """Oldest first; at one moment by group, topic and partition."""
    history = store.lag_history
    samples = [sample(2), sample(1, partition=1), sample(1, "a"), sample(1, topic="s"), sample(1)]
    await history.append(samples)

    assert sorted(samples) == await history.load()
    assert 5 == samples[0].lag


async def test_a_position_that_is_not_known_stays_so(store: StateStore) -> None:
    """No commit and no time lag are told apart from 0."""
    unknown = LagHistoryPoint(1, "g", "t", 0, -1, 10, None)
    await store.lag_history.append([unknown, sample(0)])

    assert [sample(0), unknown] == await store.lag_history.load()
    assert unknown.lag is None


async def test_samples_are_chosen_by_what_they_are_about(store: StateStore) -> None:
    """By group, topic, partition and time, alone and together."""
    history = store.lag_history
    samples = [
        sample(at_ms, group_id, topic, partition)
        for at_ms in range(3)
        for group_id in ("a", "A", "ä", "a\0")
        for topic in ("s", "t")
        for partition in range(2)
    ]
    await history.append(samples)

    for wanted in (
        SampleFilter(),
        SampleFilter(group_id="a"),
        SampleFilter(group_id="a\0", topic="t"),
        SampleFilter(group_id="A", partition=1),
        SampleFilter(topic="s", partition=0, since_ms=1),
        SampleFilter(since_ms=1, until_ms=2),
        SampleFilter(group_id="nobody"),
    ):
        assert sorted(filter(wanted.takes, samples)) == await history.load(wanted)


async def test_the_newest_are_returned_within_the_limit(store: StateStore) -> None:
    """A console asks for what it can draw."""
    history = store.lag_history
    await history.append(
        [sample(at_ms, partition=partition) for at_ms in (1, 2) for partition in (0, 1)]
    )

    assert [sample(1, partition=1), sample(2), sample(2, partition=1)] == await history.load(
        limit=3
    )
    assert await history.load(limit=0) == []


async def test_a_sample_of_the_same_moment_is_replaced(store: StateStore) -> None:
    """Sampling twice in one millisecond draws one point."""
    again = sample(1)._replace(committed_offset=3)
    await store.lag_history.append([sample(1)])
    await store.lag_history.append([sample(1), again])

    assert [again] == await store.lag_history.load()


async def test_old_samples_are_pruned(store: StateStore) -> None:
    """By age, and by number: what was sampled at one moment goes together."""
    history = store.lag_history
    samples = [sample(at_ms, partition=partition) for at_ms in range(10) for partition in (0, 1)]
    await history.append(samples)
    await history.append([])

    await history.prune(before_ms=2, keep=100)
    assert samples[4:] == await history.load()
    await history.prune(before_ms=0, keep=16)
    assert samples[4:] == await history.load()
    await history.prune(before_ms=0, keep=5)
    assert samples[16:] == await history.load()
    await history.prune(before_ms=0, keep=0)
    assert await history.load() == []


async def test_samples_do_not_disturb_rows(store: StateStore) -> None:
    """They are committed beside rows and are of no kind."""
    await asyncio.gather(
        store.apply([Change("topic", "a", b"1")]),
        store.lag_history.append([sample(1)]),
        store.apply([Change("group", "a", b"1")]),
    )

    assert ["group", "topic"] == await store.kinds()
    assert {"a": Row(b"1", 1)} == await store.load("topic")
    assert [sample(1)] == await store.lag_history.load()


async def test_damaged_samples_are_left_out(tmp_path: Path) -> None:
    """A curve has a hole rather than a wrong point."""
    database = SqliteDatabase(tmp_path / "meta.sqlite")
    for damage in (
        "committed_offset = committed_offset + 1",
        "group_id = 'h'",
        "topic = x'ff'",
        "time_lag_ms = NULL",
        "high_watermark = 'x'",
        "topic_partition = 1 << 40",
        "checksum = 'x'",
    ):
        async with opened(database.store()) as store:
            await store.lag_history.append([sample(1), sample(2)])
        database.execute(
            f"UPDATE lag_sample SET {damage} WHERE sampled_at_ms = 1"  # noqa: S608 - constants
        )

        async with opened(database.store()) as store:
            assert [sample(2)] == await store.lag_history.load()
            await store.lag_history.prune(before_ms=3, keep=0)
