from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgw.client.cursor import Cursor, CursorError, RecordFilter
from kgw.client.subscribed import SubscribedPartition
from kgw.client.subscription import (
    EVERYTHING,
    Delivery,
    OffsetSubscriber,
    OffsetSubscription,
    SubscriptionClosedError,
)
from kgw.errors import ErrorCode
from kgw.offsets.ranges import DamagedRangeError, SeekOutOfRangeError
from kgw.offsets.reader import PartitionBatches
from kgw.offsets.seeker import Seek, SeekKind
from kgw.records.batch import Compression
from kgw.testing.clock import ManualClock
from kgw.types import ZERO_TOPIC_ID, TopicId
from tests import patience
from tests.offsets.stored_reader import StoredLog, StoredReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kgw.offsets.reader import Answers, ReadRecord

EARLIEST = Seek(SeekKind.RESET_TO_EARLIEST)
MS = 1_000_000


def at(offset: int) -> Seek:
    """Return a seek to exactly this offset."""
    return Seek(SeekKind.EXACT_OFFSET, offset)


def filled(*sizes: int) -> StoredLog:
    """Return a log of batches of these sizes, one millisecond a record."""
    log = StoredLog()
    for size in sizes:
        log.add(*range(log.end, log.end + size))
    return log


async def subscribe(
    reader: StoredReader,
    seeks: Mapping[int, Seek] | None = None,
    wanted: Mapping[int, RecordFilter] | RecordFilter = EVERYTHING,
    *,
    clock: ManualClock | None = None,
    delivery: Delivery | None = None,
) -> OffsetSubscription:
    """Subscribe to every partition, from the beginning unless told."""
    subscriber = OffsetSubscriber(reader, clock or ManualClock(), delivery=delivery)
    return await subscriber.subscribe(seeks or dict.fromkeys(reader.logs, EARLIEST), wanted)


def offsets(page: Iterable[ReadRecord]) -> list[int]:
    """Return the offsets of a page, whose values say the same."""
    page = list(page)
    assert all(b"%d" % one.offset == one.record.value for one in page)
    return [one.offset for one in page]


async def test_pages_are_as_large_as_asked() -> None:
    """Whatever the batches, each page has so many records until the end, and goes on behind."""
    subscription = await subscribe(StoredReader([filled(3, 4, 1, 5)], batches_a_read=2))
    pages = [offsets(await subscription.next_page(5, max_wait_ms=0)) for _ in range(4)]
    assert [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12], []] == pages
    assert {0: 13} == subscription.positions
    assert not subscription.is_done


async def test_a_cursor_goes_on_where_a_page_ended() -> None:
    """As text, in another subscription, with the same range."""
    reader = StoredReader([filled(5, 5), filled(4)])
    wanted = {0: RecordFilter(end_offset=8), 1: RecordFilter(since_ns=2 * MS)}
    first = await subscribe(reader, None, wanted)
    got = await first.next_page(6, max_wait_ms=0)
    word = first.cursor().encode()
    assert word.isascii()
    assert " " not in word
    second = await OffsetSubscriber(reader, ManualClock()).resume(Cursor.decode(word))
    got += await second.next_page(100, max_wait_ms=0)
    assert list(range(8)) == offsets(one for one in got if one.partition == 0)
    assert [2, 3] == offsets(one for one in got if one.partition == 1)


@pytest.mark.parametrize("text", ["", "kgw1.", "kgw1.AAAA", "other", "kgw1.äöü"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    """Also one with a changed letter: it has a checksum."""
    with pytest.raises(CursorError):
        Cursor.decode(text)
    word = Cursor("t", ZERO_TOPIC_ID, {0: (5, RecordFilter(7))}).encode()
    assert {0: (5, RecordFilter(7))} == Cursor.decode(word).partitions
    for place in range(5, len(word) - 1):
        changed = word[:place] + ("A" if word[place] != "A" else "B") + word[place + 1 :]
        with pytest.raises(CursorError):
            Cursor.decode(changed)


async def test_a_cursor_of_another_topic_is_refused() -> None:
    """By name, and by id where the topic was created again."""
    subscriber = OffsetSubscriber(StoredReader([filled(1)]), ManualClock())
    with pytest.raises(CursorError, match="of topic others"):
        await subscriber.resume(Cursor("others", ZERO_TOPIC_ID, {0: (0, EVERYTHING)}))
    with pytest.raises(CursorError, match="created again"):
        await subscriber.resume(Cursor("events", TopicId(b"x" * 16), {0: (0, EVERYTHING)}))
    resumed = await subscriber.resume(Cursor("events", ZERO_TOPIC_ID, {0: (0, EVERYTHING)}))
    assert {0: 0} == resumed.positions


async def test_ranges_of_offsets_and_times() -> None:
    """Times need not rise: what lies outside is left out, and reading goes on to the end offset."""
    log = StoredLog()
    log.add(10, 90, 20)
    log.add(30, 5, 40)
    subscription = await subscribe(
        StoredReader([log]), {0: at(1)}, RecordFilter(6, 10 * MS, 40 * MS)
    )
    assert [2, 3] == offsets(await subscription.next_page(10, max_wait_ms=0))
    assert subscription.is_done
    assert {0: 6} == subscription.positions
    subscription = await subscribe(StoredReader([log]), {0: at(1)}, RecordFilter(end_offset=4))
    assert [1, 2, 3] == offsets(await subscription.next_page(10, max_wait_ms=0))
    assert subscription.is_done
    assert [] == await subscription.next_page(10)


async def test_holes_are_passed() -> None:
    """Compaction, control batches and gaps leave no record; positions and the end move on."""
    log = filled(2)
    log.add(50, is_control=True)
    log.add(51, 52, hole_before=7)
    log.end += 3
    reader = StoredReader([log])
    subscription = await subscribe(reader, None, RecordFilter(end_offset=15))
    assert [0, 1, 10, 11] == offsets(await subscription.next_page(10, max_wait_ms=0))
    assert [] == await subscription.next_page(10)
    assert subscription.is_done
    assert {0: 15} == subscription.positions


async def test_passing_what_is_not_wanted_ends_at_the_deadline() -> None:
    """A page over a long log of other times comes back in time, and the next one goes on."""
    clock = ManualClock()
    reader = StoredReader([filled(*[1] * 10)], batches_a_read=1)
    subscription = await subscribe(reader, None, RecordFilter(since_ns=9 * MS), clock=clock)
    read = reader.read

    async def slow(*args: Any, **kwargs: Any) -> Answers[PartitionBatches]:
        clock.advance(1)
        return await read(*args, **kwargs)

    reader.read = slow  # type: ignore[method-assign]
    assert [] == await subscription.next_page(1, max_wait_ms=2_000)
    assert 3 <= subscription.positions[0] <= 5
    while not (page := await subscription.next_page(1, max_wait_ms=2_000)):
        pass
    assert [9] == offsets(page)


async def test_an_empty_answer_beside_others_is_no_hole() -> None:
    """A partition may be left out for want of room: it is asked alone before it is passed."""
    reader = StoredReader([filled(1, 1, 1), filled(2)], batches_a_read=1)
    subscription = await subscribe(reader)
    page = await subscription.next_page(10, max_wait_ms=0)
    assert [0, 1, 2] == offsets(one for one in page if one.partition == 0)
    assert [0, 1] == offsets(one for one in page if one.partition == 1)


class ColdAtTheEnd(StoredReader):
    """Answers a read that has waited with nothing: what came meanwhile lies on a disk."""

    async def read(
        self, positions: Mapping[int, int], *, max_bytes: int, max_wait_ms: int
    ) -> Answers[PartitionBatches]:
        answers = await super().read(positions, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
        if not max_wait_ms:
            return answers
        return {
            partition: answer._replace(buffers=())
            if isinstance(answer, PartitionBatches)
            else answer
            for partition, answer in answers.items()
        }


async def test_an_empty_answer_after_a_wait_is_no_hole() -> None:
    """A Fetch leaves what would have to come from a disk to the next one."""
    reader = ColdAtTheEnd([filled(1)])
    subscription = await subscribe(reader)
    await subscription.next_page(1, max_wait_ms=0)
    waiting = asyncio.ensure_future(subscription.next_page(10, max_wait_ms=2000))
    await reader.waiting.wait()
    reader.logs[0].add(7, 8)
    reader.arrived()
    assert [1, 2] == offsets(await waiting)


async def test_records_in_flight_are_limited() -> None:
    """No more are delivered than are acknowledged, by number and by bytes; one always fits."""
    clock = ManualClock()
    reader = StoredReader([filled(10)])
    subscription = await subscribe(reader, clock=clock, delivery=Delivery(max_in_flight_records=4))
    first = await subscription.next_page(10, max_wait_ms=0)
    assert [0, 1, 2, 3] == offsets(first)
    assert [] == await subscription.next_page(10, max_wait_ms=0)
    waiting = asyncio.ensure_future(subscription.next_page(10, max_wait_ms=1000))
    await asyncio.sleep(0)
    subscription.acknowledge([first[2], first[1]])
    assert [4, 5] == offsets(await waiting)
    assert 0 == subscription.cursor(acknowledged=True).partitions[0][0]
    assert 6 == subscription.cursor().partitions[0][0]
    subscription.acknowledge(first)
    assert 4 == subscription.cursor(acknowledged=True).partitions[0][0]
    assert 2 == subscription.in_flight

    small = await subscribe(reader, clock=clock, delivery=Delivery(max_in_flight_bytes=1))
    page = await small.next_page(10, max_wait_ms=0)
    assert [0] == offsets(page)
    small.acknowledge(page)
    assert [1] == offsets(await small.next_page(10, max_wait_ms=0))


async def test_waiting_for_room_has_a_deadline() -> None:
    """The wait is one budget, whatever is waited for."""
    clock = ManualClock()
    subscription = await subscribe(
        StoredReader([filled(3)]), clock=clock, delivery=Delivery(max_in_flight_records=1)
    )
    await subscription.next_page(1)
    waiting = asyncio.ensure_future(subscription.next_page(1, max_wait_ms=2000))
    await asyncio.sleep(0)
    clock.advance(1.9)
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance(0.2)
    assert [] == await waiting
    assert 0 == clock.pending


async def test_waiting_for_records_is_one_budget() -> None:
    """Each read gets what the ones before it left."""
    clock = ManualClock()
    reader = StoredReader([filled(1)])
    subscription = await subscribe(reader, clock=clock)
    await subscription.next_page(1)
    waiting = asyncio.ensure_future(subscription.next_page(1, max_wait_ms=2000))
    await reader.waiting.wait()
    clock.advance(1.5)
    reader.waiting.clear()
    reader.arrived()
    await reader.waiting.wait()
    assert [2000, 500] == reader.waits_ms[-2:]
    reader.logs[0].add(7)
    reader.arrived()
    assert [1] == offsets(await waiting)


async def test_nothing_old_is_delivered_after_a_seek() -> None:
    """Neither what is at hand, nor what a read under way brings, which is given up."""
    reader = StoredReader([filled(4), filled(4)])
    subscription = await subscribe(reader)
    assert [0, 1] == offsets(await subscription.next_page(2))
    await subscription.seek({0: at(3)})
    page = await subscription.next_page(10, max_wait_ms=0)
    assert [3] == offsets(one for one in page if one.partition == 0)
    assert [0, 1, 2, 3] == offsets(one for one in page if one.partition == 1)
    waiting = asyncio.ensure_future(subscription.next_page(10, max_wait_ms=1000))
    await reader.waiting.wait()
    await subscription.seek({0: at(2)})
    assert [2, 3] == offsets(await waiting)
    assert 1 == reader.cancelled


class MovingReader(StoredReader):
    """Has the subscription move just when a read is over, before it has been taken."""

    subscription: OffsetSubscription | None = None

    async def read(
        self, positions: Mapping[int, int], *, max_bytes: int, max_wait_ms: int
    ) -> Answers[PartitionBatches]:
        answers = await super().read(positions, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
        moving, self.subscription = self.subscription, None
        if moving is not None:
            self.seek = asyncio.ensure_future(moving.seek({0: at(0)}))
        return answers


async def test_a_read_that_ends_with_a_seek_is_given_up() -> None:
    """Its batches are those of the old position: records at the new one would be skipped."""
    reader = MovingReader([filled(4, 4)])
    subscription = await subscribe(reader, {0: at(4)})
    reader.subscription = subscription

    assert list(range(8)) == offsets(await subscription.next_page(10))
    assert {0: 0} == await reader.seek


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_batch_unpacked_during_a_seek_is_given_up(
    monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    """Whether it comes out whole or damaged: what was asked for meanwhile is delivered."""
    loop, has_begun, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    unpack = SubscribedPartition.unpack

    def unpack_slowly(self: SubscribedPartition, *arguments: Any) -> list[ReadRecord]:
        records = unpack(self, *arguments)
        loop.call_soon_threadsafe(has_begun.set)
        assert may_end.wait(patience.seconds(10))
        if is_damaged:
            raise DamagedRangeError(0, 0, 4)
        return records

    log = StoredLog()
    log.add(0, 1, 2, 3, compression=Compression.GZIP)
    log.add(4, 5)
    subscription = await subscribe(StoredReader([log]))
    with monkeypatch.context() as patched:
        patched.setattr(SubscribedPartition, "unpack", unpack_slowly)
        waiting = asyncio.ensure_future(subscription.next_page(10))
        await has_begun.wait()
    await subscription.seek({0: at(4)})
    may_end.set()

    assert [4, 5] == offsets(await waiting)


async def test_a_seek_frees_what_was_in_flight() -> None:
    """Acknowledgements of before it count for nothing, though offsets come again."""
    reader = StoredReader([filled(4)])
    subscription = await subscribe(reader, delivery=Delivery(max_in_flight_records=3))
    before = await subscription.next_page(10)
    await subscription.seek({0: at(0)})
    assert 0 == subscription.in_flight
    assert [0, 1, 2] == offsets(await subscription.next_page(10))
    subscription.acknowledge(before)
    assert 3 == subscription.in_flight


async def test_a_seek_that_fails_moves_nothing() -> None:
    """All partitions move, or none."""
    reader = StoredReader([filled(4), filled(4)])
    subscription = await subscribe(reader)
    await subscription.next_page(1)
    with pytest.raises(SeekOutOfRangeError):
        await subscription.seek({0: at(3), 1: at(9)})
    with pytest.raises(ValueError, match="partition 5 is not subscribed"):
        await subscription.seek({5: at(0)})
    assert {0: 1, 1: 0} == subscription.positions


async def test_damage_is_told_and_can_be_passed() -> None:
    """What lies before it and in other partitions is delivered first; then again and again."""
    log = filled(2, 2, 2)
    log.damaged = range(2, 4)
    reader = StoredReader([log, filled(1)])
    subscription = await subscribe(reader)
    page = await subscription.next_page(10)
    assert [0, 1] == offsets(one for one in page if one.partition == 0)
    assert [0] == offsets(one for one in page if one.partition == 1)
    for _ in range(2):
        with pytest.raises(DamagedRangeError) as caught:
            await subscription.next_page(10)
        error = caught.value
        assert (0, 2, 4) == (error.partition, error.start_offset, error.end_offset)
        assert ErrorCode.CORRUPT_MESSAGE is error.code
    assert caught.value.end_offset is not None
    await subscription.seek({0: at(caught.value.end_offset)})
    assert [4, 5] == offsets(await subscription.next_page(10))


async def test_a_batch_that_cannot_be_unpacked_is_damage() -> None:
    """A CRC that is wrong, or records that no codec gives."""
    log = filled(2, 3)
    log.batches[1].buffer[-1] ^= 1
    subscription = await subscribe(StoredReader([log]))
    assert [0, 1] == offsets(await subscription.next_page(10))
    for _ in range(2):
        with pytest.raises(DamagedRangeError, match="2 to 4 are damaged"):
            await subscription.next_page(10)


async def test_records_removed_meanwhile_are_told() -> None:
    """Retention that passes a reader is an error with the range, never a jump."""
    reader = StoredReader([filled(2, 2, 2)], batches_a_read=1)
    subscription = await subscribe(reader)
    assert [0, 1] == offsets(await subscription.next_page(2))
    reader.logs[0].start = 4
    with pytest.raises(SeekOutOfRangeError, match="it goes from 4 to 6"):
        await subscription.next_page(2)


async def test_lag_is_what_is_left() -> None:
    """Up to the end now, or to the end of the range."""
    reader = StoredReader([filled(6), filled(3), filled(9)])
    subscription = await subscribe(reader, None, {2: RecordFilter(end_offset=5)})
    await subscription.next_page(2)
    assert {0: 4, 1: 3, 2: 5} == await subscription.lag()
    reader.logs[0].add(1)
    assert 5 == (await subscription.lag())[0]


async def test_a_cancelled_page_loses_nothing() -> None:
    """What was read for it is in the next one, and nothing goes on behind it."""
    reader = StoredReader([filled(1)])
    subscription = await subscribe(reader)
    await subscription.next_page(1)
    waiting = asyncio.ensure_future(subscription.next_page(5, max_wait_ms=10_000))
    await reader.waiting.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert 1 == reader.cancelled
    assert 1 == len(asyncio.all_tasks())
    reader.logs[0].add(5, 6)
    assert [1, 2] == offsets(await subscription.next_page(5))


async def test_closing_ends_the_wait() -> None:
    """And every call after it is refused."""
    reader = StoredReader([filled(1)])
    subscription = await subscribe(reader, {0: at(1)})
    waiting = asyncio.ensure_future(subscription.next_page(5, max_wait_ms=10_000))
    await reader.waiting.wait()
    with pytest.raises(RuntimeError, match="one page at a time"):
        await subscription.next_page(1)
    subscription.close()
    with pytest.raises(SubscriptionClosedError):
        await waiting
    with pytest.raises(SubscriptionClosedError):
        await subscription.seek({0: at(0)})


async def test_records_can_be_iterated() -> None:
    """Each is acknowledged when the next one is asked for."""
    reader = StoredReader([filled(3, 3)])
    subscription = await subscribe(
        reader, None, RecordFilter(end_offset=5), delivery=Delivery(max_in_flight_records=1)
    )
    assert [0, 1, 2, 3, 4] == offsets([one async for one in subscription.records()])


@given(
    batches=st.lists(
        st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), max_size=8),
        min_size=1,
        max_size=3,
    ),
    page=st.integers(1, 7),
    batches_a_read=st.integers(1, 4),
    since=st.none() | st.integers(0, 50),
    compression=st.sampled_from([Compression.NONE, Compression.GZIP]),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_every_record_once_in_order(
    batches: list[list[list[int]]],
    page: int,
    batches_a_read: int,
    since: int | None,
    compression: Compression,
    data: st.DataObject,
) -> None:
    """Whatever the batches, holes, pages, ranges and cursors in between."""
    logs = []
    for sizes in batches:
        log = StoredLog()
        for times_ms in sizes:
            hole = data.draw(st.sampled_from([0, 0, 3]))
            log.add(*times_ms, compression=compression, hole_before=hole)
        logs.append(log)
    begin = [data.draw(st.integers(0, log.end)) for log in logs]
    end = [data.draw(st.integers(0, log.end)) for log in logs]

    async def run() -> None:
        reader = StoredReader(logs, batches_a_read=batches_a_read)
        subscriber = OffsetSubscriber(reader, ManualClock())
        subscription = await subscriber.subscribe(
            {one: at(begin[one]) for one in reader.logs},
            {
                one: RecordFilter(end[one], None if since is None else since * MS)
                for one in reader.logs
            },
        )
        got: list[ReadRecord] = []
        while not subscription.is_done:
            got += await subscription.next_page(page, max_wait_ms=0)
            if data.draw(st.booleans()):
                subscription = await subscriber.resume(
                    Cursor.decode(subscription.cursor().encode())
                )
        for partition, log in reader.logs.items():
            expected = [
                record
                for record in log.records
                if begin[partition] <= record.offset < end[partition]
                and (since is None or record.timestamp_ms >= since)
            ]
            assert expected == [one.record for one in got if one.partition == partition]

    asyncio.run(run())
