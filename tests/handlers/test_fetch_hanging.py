"""Fetch over a storage that hangs for some partitions: its time holds for all that it does."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from kgw.errors import CorruptionError, ErrorCode, StorageError
from kgw.partitions.read.cold_parts import PATIENCE_S, SIDE_BY_SIDE
from kgw.partitions.read.cold_reads import HANGS_S, STALLED_S, ColdLimits, ColdReads
from kgw.partitions.read.reading import PARTS_PER_TURN
from kgw.partitions.waits import STORAGE_S
from kgw.problems import READS
from kgw.protocol.messages.fetch import FetchResponse
from tests.handlers.support import (
    batch,
    create_topic,
    fetch_many,
    offsets_in,
    produce,
    topic_of,
)
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.backend.base import ReadResult
    from kgw.protocol.messages.fetch import FetchRequest
    from kgw.testing.gateway import InProcessGateway, PendingResponse

VERSION = 12
SOON_S = STALLED_S + PATIENCE_S
"""When a request that has enough is answered without what hangs."""


class Storage:
    """Where the logs of "orders" are read from: partitions hang, fail, or take their time."""

    def __init__(self, gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch) -> None:
        self._may_go_on: dict[int, asyncio.Event] = {}
        self.errors: dict[int, Exception] = {}
        self.hot: set[int] = set()
        """Partitions that are in memory."""
        self.running = 0
        self.most_running = 0
        self.begun: list[int] = []
        """The partitions that were read from, in order."""
        self.asked: list[tuple[int, bool]] = []
        """For how many bytes, and whether for one batch at least."""
        partitions = topic_of(gateway).partitions
        indexes = {id(one.log): index for index, one in partitions.items()}
        kind = type(partitions[0].log)
        read_hot = kind.read_hot

        def look(log: object, offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
            if indexes[id(log)] not in self.hot and offset < upper_bound:
                return None
            return read_hot(log, offset, max_bytes, upper_bound)  # type: ignore[arg-type]

        async def read(
            log: object, offset: int, max_bytes: int, upper_bound: int, *, at_least_one: bool = True
        ) -> ReadResult:
            index = indexes[id(log)]
            self.begun.append(index)
            self.asked.append((max_bytes, at_least_one))
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            try:
                await asyncio.sleep(0)
                if index in self._may_go_on:
                    await self._may_go_on[index].wait()
                if index in self.errors:
                    raise self.errors[index]
            finally:
                self.running -= 1
            result = read_hot(log, offset, max_bytes, upper_bound)  # type: ignore[arg-type]
            assert result is not None
            if result.size_bytes > max_bytes and not at_least_one:
                return result._replace(buffers=[], size_bytes=0, next_offset=offset)
            return result

        monkeypatch.setattr(kind, "read_hot", look)
        monkeypatch.setattr(kind, "read", read)

    def hang(self, *indexes: int) -> None:
        """Answer no read of these partitions any more."""
        for index in indexes:
            self._may_go_on.setdefault(index, asyncio.Event())

    def go_on(self, *indexes: int) -> None:
        """Answer those of some partitions, or all."""
        for index in indexes or list(self._may_go_on):
            self._may_go_on.pop(index).set()


async def storage_of(
    gateway: InProcessGateway,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    value: bytes = b"v",
    batches: int = 1,
) -> Storage:
    """Return what the reads of so many partitions go to; each has some batches."""
    await create_topic(gateway, partitions=partitions)
    for index in range(partitions):
        for _ in range(batches):
            await produce(gateway, batch(value), index=index)
    return Storage(gateway, monkeypatch)


async def after(gateway: InProcessGateway, request: FetchRequest, seconds: float) -> FetchResponse:
    """Send a request, let so much time pass, in small steps, and return its answer."""
    pending = gateway.start(request, VERSION)
    await passes(gateway, seconds)
    assert pending.done
    return await answer(pending)


async def passes(gateway: InProcessGateway, seconds: float) -> None:
    """Let time pass in small steps."""
    await turns(20)
    for _ in range(round(seconds * 100)):
        gateway.manual_clock.advance(0.01)
        await turns(20)
    # Sums of hundredths may be a little less than they should be.
    gateway.manual_clock.advance(0.0001)
    await turns(20)


async def answer(pending: PendingResponse) -> FetchResponse:
    """Wait for an answer."""
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    return response


def with_records(response: FetchResponse) -> set[int]:
    """Return the partitions that an answer has records of."""
    return {
        one.partition_index
        for topic in response.responses
        for one in topic.partitions
        if one.records
    }


def errors_in(response: FetchResponse) -> dict[int, int]:
    """Return the errors of the partitions that have one."""
    return {
        one.partition_index: one.error_code
        for topic in response.responses
        for one in topic.partitions
        if one.error_code
    }


def cold_reads(gateway: InProcessGateway) -> ColdReads:
    """Return what knows of late reads."""
    return gateway.cold_reads


HUNG = range(50)
HEALTHY = range(50, 100)


@pytest.mark.parametrize("order", ["hung first", "hung last", "mixed"])
async def test_what_hangs_holds_up_no_other_partition(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Fifty hang, in any order: the other fifty are answered before the time is over."""
    storage = await storage_of(gateway, monkeypatch, 100)
    storage.hang(*HUNG)
    indexes = [*HUNG, *HEALTHY]
    if order == "hung last":
        indexes.reverse()
    elif order == "mixed":
        Random(5).shuffle(indexes)
    response = await after(gateway, fetch_many(indexes, max_wait_ms=500), 0.5)
    assert set(HEALTHY) == with_records(response)
    assert {} == errors_in(response)
    assert 50 == len(cold_reads(gateway))
    storage.go_on()
    await turns(20)
    response = await after(gateway, fetch_many(indexes, max_wait_ms=500), 0.1)
    assert {*HUNG, *HEALTHY} == with_records(response)
    assert 0 == len(cold_reads(gateway))
    assert 0 == cold_reads(gateway).late_bytes


async def test_time_is_over_for_what_hangs(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before, and no later; the answer says nothing is wrong, and where the log ends."""
    storage = await storage_of(gateway, monkeypatch, 2)
    storage.hang(0, 1)
    pending = gateway.start(fetch_many([0, 1], max_wait_ms=500), VERSION)
    await passes(gateway, 0.45)
    is_early = pending.done
    assert not is_early
    await passes(gateway, 0.05)
    response = await answer(pending)
    assert set() == with_records(response)
    assert [1, 1] == [one.high_watermark for one in response.responses[0].partitions]
    assert 0 == gateway.answer_room.reading_bytes


async def test_what_came_late_is_there_for_the_next_request(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read once."""
    storage = await storage_of(gateway, monkeypatch, 1)
    storage.hang(0)
    for _ in range(3):
        response = await after(gateway, fetch_many([0], max_wait_ms=200), 0.23)
        assert set() == with_records(response)
    storage.go_on()
    await turns(20)
    assert 1 == len(cold_reads(gateway))
    assert {0} == with_records(await after(gateway, fetch_many([0], max_wait_ms=200), 0))
    assert [0] == storage.begun
    assert 0 == len(cold_reads(gateway))


async def test_a_request_hears_of_what_comes_late(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for the end of its time."""
    storage = await storage_of(gateway, monkeypatch, 1)
    storage.hang(0)
    pending = gateway.start(fetch_many([0], max_wait_ms=5000), VERSION)
    await passes(gateway, 1)
    is_early = pending.done
    storage.go_on()
    await turns(20)
    assert (False, True) == (is_early, pending.done)
    assert {0} == with_records(await answer(pending))


async def test_an_append_elsewhere_ends_the_wait(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer at the end of one partition is not kept from it by another one that hangs."""
    storage = await storage_of(gateway, monkeypatch, 2)
    storage.hang(0)
    storage.hot.add(1)
    request = fetch_many([0, 1], max_wait_ms=5000)
    request.topics[0].partitions[1].fetch_offset = 1
    pending = gateway.start(request, VERSION)
    await passes(gateway, 1)
    assert not pending.done
    await produce(gateway, batch(b"new"), index=1)
    await turns(20)
    assert {1} == with_records(await answer(pending))


async def test_an_error_is_one_partitions_alone(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others' records come with it."""
    storage = await storage_of(gateway, monkeypatch, 6)
    storage.errors[0] = StorageError("broken")
    storage.errors[3] = CorruptionError("a flipped bit")
    response = await after(gateway, fetch_many(range(6), max_wait_ms=500), 0)
    assert {1, 2, 4, 5} == with_records(response)
    assert {
        0: ErrorCode.KAFKA_STORAGE_ERROR,
        3: ErrorCode.CORRUPT_MESSAGE,
    } == errors_in(response)


async def test_an_error_that_comes_late_is_told_once(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To who waits for it; the next request reads again."""
    storage = await storage_of(gateway, monkeypatch, 1)
    storage.hang(0)
    storage.errors[0] = StorageError("broken")
    pending = gateway.start(fetch_many([0], max_wait_ms=5000), VERSION)
    await passes(gateway, 1)
    storage.go_on()
    await turns(20)
    assert {0: ErrorCode.KAFKA_STORAGE_ERROR} == errors_in(await answer(pending))
    del storage.errors[0]
    assert {0} == with_records(await after(gateway, fetch_many([0], max_wait_ms=500), 0))
    assert 2 == len(storage.begun)


async def test_a_bug_that_comes_late_is_told(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, though nobody waits for the read any more."""
    storage = await storage_of(gateway, monkeypatch, 1)
    storage.hang(0)
    storage.errors[0] = RuntimeError("a bug")
    await after(gateway, fetch_many([0], max_wait_ms=100), 0.1)
    storage.go_on()
    await turns(20)
    assert {"a read from the storage": 1} == gateway.internal_errors
    gateway.internal_errors.clear()
    assert 0 == len(cold_reads(gateway))


async def test_zero_wait_is_no_promise_that_there_is_nothing(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for what there is, is told of an error after five seconds, not of no records."""
    storage = await storage_of(gateway, monkeypatch, 1)
    storage.hang(0)
    pending = gateway.start(fetch_many([0], max_wait_ms=0), VERSION)
    await passes(gateway, 4.9)
    assert not pending.done
    await passes(gateway, 0.1)
    assert {0: ErrorCode.KAFKA_STORAGE_ERROR} == errors_in(await answer(pending))


async def test_zero_wait_gets_what_others_have(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, but for the moment in which it is not known which of them stall."""
    storage = await storage_of(gateway, monkeypatch, 2)
    storage.hang(0)
    response = await after(gateway, fetch_many([0, 1], max_wait_ms=0), SOON_S)
    assert {1} == with_records(response)


async def test_few_are_read_side_by_side_from_a_storage_that_answers(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them with the one answer."""
    storage = await storage_of(gateway, monkeypatch, 30)
    response = await after(gateway, fetch_many(range(30), max_wait_ms=500), 0)
    assert set(range(30)) == with_records(response)
    assert SIDE_BY_SIDE == storage.most_running
    assert 30 == len(storage.begun)


def _size_bytes(response: FetchResponse) -> int:
    found = [one.records for topic in response.responses for one in topic.partitions]
    return sum(len(one) for one in found if isinstance(one, bytes | bytearray | memoryview))


# --- bytes ----------------------------------------------------------------------------------------


async def test_the_limit_holds_for_all_that_is_read_side_by_side(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where reads that stalled come back together."""
    storage = await storage_of(gateway, monkeypatch, 40, b"x" * 20_000, batches=3)
    request = fetch_many(range(40), max_wait_ms=500, max_bytes=200_000)
    response = await after(gateway, request, 0.04)
    assert 150_000 < _size_bytes(response) <= 200_000
    storage.hang(*range(40))
    pending = gateway.start(fetch_many(range(40), max_wait_ms=5000, max_bytes=200_000), VERSION)
    await passes(gateway, 1)
    storage.go_on()
    await turns(50)
    response = await answer(pending)
    assert 0 < _size_bytes(response) <= 200_000


async def test_what_comes_late_has_room_once_others_are_late(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while all of the answer is reserved for reads that will not come."""
    storage = await storage_of(gateway, monkeypatch, 60, b"x" * 30_000)
    storage.hang(*range(60))
    pending = gateway.start(fetch_many(range(60), max_wait_ms=1000, max_bytes=640_000), VERSION)
    await passes(gateway, 0.12)
    storage.go_on(3, 4, 5)
    await passes(gateway, 1)
    assert pending.done
    assert {3, 4, 5} == with_records(await answer(pending))


async def test_a_partition_gets_no_more_than_it_was_asked_for(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a read has brought for one request may be too much for the next."""
    storage = await storage_of(gateway, monkeypatch, 1, b"x" * 1000, batches=10)
    storage.hang(0)
    await after(gateway, fetch_many([0], max_wait_ms=100), 0.1)
    storage.go_on()
    await turns(20)
    request = fetch_many([0], max_wait_ms=100, partition_max_bytes=2500)
    response = await after(gateway, request, 0)
    assert [(0, 0), (1, 1)] == offsets_in(response.responses[0].partitions[0])
    assert [0] == storage.begun


async def test_what_was_read_for_less_is_answered_at_once(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is more of it: no client waits for its `min_bytes` while that lies in the storage."""
    storage = await storage_of(gateway, monkeypatch, 1, b"x" * 1000, batches=10)
    storage.hang(0)
    await after(gateway, fetch_many([0], max_wait_ms=100, partition_max_bytes=2500), 0.1)
    storage.go_on()
    await turns(20)
    response = await after(gateway, fetch_many([0], max_wait_ms=5000, min_bytes=5000), 0)
    assert [(0, 0), (1, 1)] == offsets_in(response.responses[0].partitions[0])
    request = fetch_many([0], offset=2, max_wait_ms=5000, min_bytes=5000)
    response = await after(gateway, request, 0)
    assert 8 == len(offsets_in(response.responses[0].partitions[0]))


async def test_who_wants_more_than_there_is_waits(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a read has brought all that there is, or all that its client has room for."""
    await storage_of(gateway, monkeypatch, 1, b"x" * 1000, batches=4)
    for fields in ({}, {"partition_max_bytes": 2500}):
        request = fetch_many([0], max_wait_ms=500, min_bytes=50_000, **fields)
        pending = gateway.start(request, VERSION)
        await passes(gateway, 0.4)
        assert not pending.done
        await passes(gateway, 0.2)
        assert {0} == with_records(await answer(pending))


async def test_batches_larger_than_their_part_of_the_answer_come_once_it_is_known_what_hangs(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those beside many others are asked for a little; the room of what hangs is theirs then."""
    await create_topic(gateway, partitions=11)
    for index in range(10):
        await produce(gateway, batch(b"x" * 200_000), index=index)
    await produce(gateway, batch(b"y"), index=10)
    storage = Storage(gateway, monkeypatch)
    storage.hang(*range(5))
    storage.hot.add(10)
    request = fetch_many(range(11), max_wait_ms=500, max_bytes=1_100_000)
    response = await after(gateway, request, 0.5)
    assert {*range(5, 11)} == with_records(response)
    request = fetch_many(range(11), max_wait_ms=500, max_bytes=500_000)
    response = await after(gateway, request, 0.5)
    assert 3 == len(with_records(response))
    assert _size_bytes(response) <= 500_000


@pytest.mark.parametrize("max_bytes", [50_000, 1 << 20])
async def test_a_first_batch_comes_behind_what_hangs(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """What has come from memory stands behind it in the line (KIP-74)."""
    await create_topic(gateway, partitions=4)
    for index in range(3):
        await produce(gateway, batch(b"x" * 100_000), index=index)
    await produce(gateway, batch(b"y"), index=3)
    storage = Storage(gateway, monkeypatch)
    storage.hang(0)
    storage.hot.add(3)
    for line, expected in (([0, 1, 3, 2], 1), ([0, 3, 1], None)):
        request = fetch_many(line, max_wait_ms=500, partition_max_bytes=50_000, max_bytes=max_bytes)
        found = with_records(await after(gateway, request, 0.5))
        if expected is None:
            # What comes from memory is the first now.
            assert {3} == found
        else:
            assert found == ({expected} if max_bytes == 50_000 else {expected, 3})


async def test_a_batch_that_came_late_is_not_read_again_for_its_size(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the first, and others have come before it: it is kept until it is the first again."""
    await create_topic(gateway, partitions=2)
    await produce(gateway, batch(b"x" * 100_000), index=0)
    await produce(gateway, batch(b"y"), index=1)
    storage = Storage(gateway, monkeypatch)
    storage.hang(0)
    storage.hot.add(1)
    request = fetch_many((0, 1), max_wait_ms=500, partition_max_bytes=50_000)
    pending = gateway.start(request, VERSION)
    await passes(gateway, 0.1)
    storage.go_on()
    await passes(gateway, 0.4)
    assert 0 in with_records(await answer(pending))
    assert [0] == storage.begun
    assert 0 == len(cold_reads(gateway))


@pytest.mark.parametrize("max_bytes", [1000, 1 << 20])
@pytest.mark.parametrize("hung", [[], [0, 1]])
async def test_a_first_batch_comes_whatever_its_size(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, hung: list[int], max_bytes: int
) -> None:
    """Of one partition that has records, and is not the first where that hangs (KIP-74)."""
    storage = await storage_of(gateway, monkeypatch, 6, b"x" * 100_000)
    storage.hang(*hung)
    request = fetch_many(range(6), max_wait_ms=1000, max_bytes=max_bytes, partition_max_bytes=1000)
    response = await after(gateway, request, SOON_S + STALLED_S)
    assert 1 == len(with_records(response))
    # No more than one batch is in memory for it, beside those that hang.
    at_least_one = [size for size, wants_one in storage.asked if wants_one]
    assert 1 + len(hung) >= len(at_least_one)


@pytest.mark.parametrize(
    ("batch_bytes", "partition_max_bytes", "max_bytes"),
    [(100_000, 50_000, 50 << 20), (500_000, 1 << 20, 1 << 20), (100_000, 1 << 20, 50_000)],
    ids=["above the partition's limit", "within the limits", "above the answer's limit"],
)
async def test_a_first_batch_comes_beside_what_is_in_memory(
    gateway: InProcessGateway,
    monkeypatch: pytest.MonkeyPatch,
    batch_bytes: int,
    partition_max_bytes: int,
    max_bytes: int,
) -> None:
    """What is first in the line stays that: the others' records take no room from it (KIP-74)."""
    await create_topic(gateway, partitions=3)
    await produce(gateway, batch(b"x" * batch_bytes), index=0)
    await produce(gateway, batch(b"x" * batch_bytes), index=1)
    await produce(gateway, batch(b"y"), index=2)
    storage = Storage(gateway, monkeypatch)
    storage.hot.add(2)
    request = fetch_many(
        range(3), max_wait_ms=500, partition_max_bytes=partition_max_bytes, max_bytes=max_bytes
    )
    response = await after(gateway, request, 0)
    assert 0 in with_records(response)
    # One batch may be larger than the limit, and then nothing is beside it.
    if len(with_records(response)) > 1:
        assert _size_bytes(response) <= max_bytes


async def test_a_first_batch_takes_the_room_of_what_is_behind_it(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the end of the line, and no more than it needs: the next request gets the rest."""
    await create_topic(gateway, partitions=3)
    for index, size in enumerate((60_000, 20_000, 25_000)):
        await produce(gateway, batch(b"x" * size), index=index)
    storage = Storage(gateway, monkeypatch)
    storage.hot.update((1, 2))
    request = fetch_many(range(3), max_wait_ms=500, partition_max_bytes=50_000, max_bytes=100_000)
    assert {0, 1} == with_records(await after(gateway, request, 0))
    request = fetch_many((1, 2), max_wait_ms=500, partition_max_bytes=50_000, max_bytes=100_000)
    assert {1, 2} == with_records(await after(gateway, request, 0))


async def test_a_first_batch_comes_where_the_first_read_fails(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others were asked for what has room, and are asked once more."""
    storage = await storage_of(gateway, monkeypatch, 3, b"x" * 100_000)
    storage.errors[0] = StorageError("broken")
    request = fetch_many(range(3), max_wait_ms=1000, max_bytes=1000, partition_max_bytes=1000)
    response = await after(gateway, request, 0.04)
    assert {0: ErrorCode.KAFKA_STORAGE_ERROR} == errors_in(response)
    assert 1 == len(with_records(response))


async def test_what_stalls_is_bounded_over_all_requests(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In number, and in bytes once it has come, however many requests there are."""
    services = gateway.gateway
    services.cold_reads = ColdReads(
        gateway.clock, lambda _: None, ColdLimits(reads=5, size_bytes=3_000)
    )
    storage = await storage_of(gateway, monkeypatch, 20, b"x" * 1000)
    storage.hang(*range(20))
    for number in range(4):
        request = fetch_many(
            range(5 * number, 5 * number + 5), max_wait_ms=200, partition_max_bytes=100_000
        )
        await after(gateway, request, 0.23)
        assert len(services.cold_reads) <= 5
        assert 0 == services.answer_room.reading_bytes
    assert (5, 0) == (len(services.cold_reads), services.cold_reads.late_bytes)
    storage.go_on()
    await turns(20)
    assert 2 == len(services.cold_reads)
    assert 0 < services.cold_reads.late_bytes <= 3_000
    gateway.manual_clock.advance(ColdLimits().kept_s)
    assert (0, 0) == (len(services.cold_reads), services.cold_reads.late_bytes)
    everything = fetch_many(range(20), max_wait_ms=200)
    assert set(range(20)) == with_records(await after(gateway, everything, 0))


async def test_each_partition_that_hangs_costs_one_read(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many consumers ask, and how often: a read holds its thread until the disk answers."""
    storage = await storage_of(gateway, monkeypatch, 37)
    storage.hang(*range(36))
    for _ in range(2):
        for index in range(36):
            await after(gateway, fetch_many([index], max_wait_ms=60), 0.07)
    assert [*range(36)] == storage.begun
    assert 36 == storage.running
    assert {36} == with_records(await after(gateway, fetch_many([36], max_wait_ms=60), 0))


async def test_what_is_left_when_a_client_goes_is_read_on(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is counted for its request any more."""
    storage = await storage_of(gateway, monkeypatch, 1)
    storage.hang(0)
    pending = gateway.start(fetch_many([0], max_wait_ms=5000), VERSION)
    await turns(20)
    pending.cancel()
    await turns(20)
    assert 0 == gateway.answer_room.reading_bytes
    storage.go_on()
    await turns(20)
    assert {0} == with_records(await after(gateway, fetch_many([0], max_wait_ms=500), 0))
    assert [0] == storage.begun


async def poll_until_it_comes(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, empty_polls: int
) -> None:
    """Repeat a Fetch of a hanging partition, which then goes on."""
    storage = await storage_of(gateway, monkeypatch, 1)
    storage.hang(0)
    request = fetch_many([0], max_wait_ms=200)
    for _ in range(empty_polls):
        assert set() == with_records(await after(gateway, request, 0.23))
    storage.go_on()
    await turns(20)
    assert {0} == with_records(await after(gateway, request, 0.23))


async def test_a_repeated_poll_reads_what_hung(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty answer is kept for the same request only where there was nothing to read."""
    await poll_until_it_comes(gateway, monkeypatch, empty_polls=2)


async def test_a_repeated_poll_reads_what_was_given_up(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no room for what is late, nobody would say that it has come."""
    gateway.cold_reads = ColdReads(gateway.clock, lambda _: None, ColdLimits(reads=0))
    await poll_until_it_comes(gateway, monkeypatch, empty_polls=3)


async def test_sessions_are_told_what_came_late(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An incremental request names nothing, and gets it."""
    storage = await storage_of(gateway, monkeypatch, 3)
    storage.hang(1)
    first = await after(gateway, fetch_many(range(3), max_wait_ms=500, session_epoch=0), SOON_S)
    assert {0, 2} == with_records(first)
    request = fetch_many([], max_wait_ms=300, session_epoch=1)
    request.session_id = first.session_id
    request.topics = _at(range(3), {0: 1, 2: 1})
    second = await after(gateway, request, 0.33)
    assert set() == with_records(second)
    storage.go_on()
    await turns(20)
    request = fetch_many([], max_wait_ms=300, session_epoch=2)
    request.session_id, request.topics = first.session_id, []
    assert {1} == with_records(await after(gateway, request, 0.33))


def _at(indexes: Iterable[int], offsets: dict[int, int]) -> list:  # type: ignore[type-arg]
    request = fetch_many(indexes)
    for place in request.topics[0].partitions:
        place.fetch_offset = offsets.get(place.partition, 0)
    return request.topics


async def many_of(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> Storage:
    """Return the storage of so many partitions; one that is not in memory has a record."""
    await create_topic(gateway, partitions=partitions)
    await produce(gateway, batch(b"v"), index=0)
    storage = Storage(gateway, monkeypatch)
    storage.hot.update(range(1, partitions))
    return storage


async def begun(
    gateway: InProcessGateway, partitions: int, *, in_session: bool, min_bytes: int = 1
) -> PendingResponse:
    """Send a request for all of them, the first at its beginning; one of a session names that."""
    if not in_session:
        request = fetch_many(range(partitions), max_wait_ms=500, min_bytes=min_bytes)
        return gateway.start(request, VERSION)
    request = fetch_many(range(partitions), session_epoch=0)
    request.topics[0].partitions[0].fetch_offset = 1
    session_id = (await gateway.ask(request, VERSION, FetchResponse)).session_id
    assert session_id
    request = fetch_many([0], max_wait_ms=500, min_bytes=min_bytes, session_epoch=1)
    request.session_id = session_id
    return gateway.start(request, VERSION)


SIZES = pytest.mark.parametrize("partitions", [2, PARTS_PER_TURN + 1], ids=["few", "many"])
KINDS = pytest.mark.parametrize("in_session", [False, True], ids=["named", "session"])


@SIZES
@KINDS
async def test_who_waits_is_told_of_an_error_that_comes_late(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, partitions: int, in_session: bool
) -> None:
    """At once, however it asks: the next request would read again, and wait again."""
    storage = await many_of(gateway, monkeypatch, partitions)
    storage.hang(0)
    storage.errors[0] = CorruptionError("a flipped bit")
    pending = await begun(gateway, partitions, in_session=in_session)
    await passes(gateway, 0.3)
    is_early = pending.done
    storage.go_on()
    await turns(100)
    assert (False, True) == (is_early, pending.done)
    assert {0: ErrorCode.CORRUPT_MESSAGE} == errors_in(await answer(pending))
    assert [0] == storage.begun


@SIZES
@KINDS
async def test_what_was_read_before_the_wait_is_answered_after_it(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, partitions: int, in_session: bool
) -> None:
    """Though another partition has got a record since: both come, once, and are read once."""
    storage = await many_of(gateway, monkeypatch, partitions)
    pending = await begun(gateway, partitions, in_session=in_session, min_bytes=100_000)
    await passes(gateway, 0.3)
    is_early = pending.done
    await produce(gateway, batch(b"new"), index=1)
    await passes(gateway, 0.3)
    await turns(100)
    assert (False, True) == (is_early, pending.done)
    response = await answer(pending)
    assert {0, 1} == with_records(response)
    assert [0] == storage.begun
    for one in response.responses[0].partitions:
        if one.records:
            assert [(0, 0)] == offsets_in(one)


async def test_what_was_read_before_the_wait_is_not_answered_once_it_is_deleted(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of others come, and an error in its place."""
    await many_of(gateway, monkeypatch, 2)
    pending = await begun(gateway, 2, in_session=True, min_bytes=100_000)
    await passes(gateway, 0.3)
    await topic_of(gateway).partitions[0].delete_before(1)
    await produce(gateway, batch(b"new"), index=1)
    await passes(gateway, 0.3)
    response = await answer(pending)
    assert {0: ErrorCode.OFFSET_OUT_OF_RANGE} == errors_in(response)
    assert {1} == with_records(response)


@SIZES
async def test_what_was_read_before_the_wait_is_not_answered_once_its_aborts_are_forgotten(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """Nobody could say which of its records were given up; the next request reads what is left."""
    await many_of(gateway, monkeypatch, partitions)
    request = fetch_many(range(partitions), max_wait_ms=500, min_bytes=100_000)
    request.isolation_level = 1
    pending = gateway.start(request, VERSION)
    await passes(gateway, 0.3)
    monkeypatch.setattr(topic_of(gateway).partitions[0].producers, "aborted_from", 1)
    await produce(gateway, batch(b"new"), index=1)
    await passes(gateway, 0.3)
    await turns(100)
    assert {1} == with_records(await answer(pending))
    pending = gateway.start(request, VERSION)
    await passes(gateway, 0.6)
    await turns(100)
    assert {0, 1} == with_records(await answer(pending))


async def test_a_repeated_poll_of_many_partitions_hears_of_what_comes(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the limits of the request that repeats it, though it has to come from the storage."""
    partitions = PARTS_PER_TURN + 1
    storage = await many_of(gateway, monkeypatch, partitions)
    request = fetch_many(range(partitions), max_wait_ms=500)
    request.topics[0].partitions[0].fetch_offset = 1
    pending = gateway.start(request, VERSION)
    await passes(gateway, 0.53)
    await turns(100)
    assert set() == with_records(await answer(pending))
    pending = gateway.start(request, VERSION)
    await passes(gateway, 0.1)
    storage.hot.discard(0)
    await produce(gateway, batch(b"new"), index=0)
    await turns(100)
    assert pending.done
    assert {0} == with_records(await answer(pending))


async def test_a_read_that_has_no_room_to_be_late_ends_once_its_records_are_in_memory(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it any more, nor would anybody find it."""
    gateway.cold_reads = ColdReads(gateway.clock, lambda _: None, ColdLimits(reads=0))
    storage = await many_of(gateway, monkeypatch, PARTS_PER_TURN + 1)
    storage.hang(0)
    pending = await begun(gateway, PARTS_PER_TURN + 1, in_session=False)
    await passes(gateway, 0.3)
    storage.hot.add(0)
    await produce(gateway, batch(b"new"), index=1)
    await turns(100)
    assert {0, 1} == with_records(await answer(pending))
    assert 0 == storage.running


async def test_reads_that_hang_are_a_problem(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which names the partition, and is over when they come."""
    storage = await storage_of(gateway, monkeypatch, 2)
    storage.hang(0, 1)
    await after(gateway, fetch_many([0, 1], max_wait_ms=100), 0.1)
    assert [] == gateway.problems
    gateway.manual_clock.advance(HANGS_S)
    (problem,) = gateway.problems
    assert READS is problem.reason
    assert "orders-0 from offset 0" in problem.text
    assert "and 1 more" in problem.text
    storage.go_on()
    await turns(20)
    assert [] == gateway.problems


async def test_deleted_records_do_not_come_late(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before they were deleted is not answered."""
    storage = await storage_of(gateway, monkeypatch, 1, batches=2)
    storage.hang(0)
    await after(gateway, fetch_many([0], max_wait_ms=100), 0.1)
    storage.go_on()
    await turns(20)
    await topic_of(gateway).partitions[0].delete_before(1)
    response = await after(gateway, fetch_many([0], max_wait_ms=100), 0)
    assert {0: ErrorCode.OFFSET_OUT_OF_RANGE} == errors_in(response)


async def test_records_that_are_deleted_while_they_are_read_are_not_answered(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for them is told."""
    storage = await storage_of(gateway, monkeypatch, 1, batches=2)
    storage.hang(0)
    pending = gateway.start(fetch_many([0], max_wait_ms=5000), VERSION)
    await turns(20)
    await topic_of(gateway).partitions[0].delete_before(1)
    storage.go_on()
    await turns(20)
    assert {0: ErrorCode.OFFSET_OUT_OF_RANGE} == errors_in(await answer(pending))


async def test_records_of_a_topic_that_is_deleted_while_they_are_read_are_not_answered(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read succeeds, and the answer says that the topic is gone."""
    storage = await storage_of(gateway, monkeypatch, 1)
    storage.hang(0)
    pending = gateway.start(fetch_many([0], max_wait_ms=5000), VERSION)
    await turns(20)
    await gateway.topic_manager.delete(topic_of(gateway))
    storage.go_on()
    await turns(20)
    assert {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == errors_in(await answer(pending))


async def test_what_has_no_room_to_be_late_holds_up_no_answer(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up, and asked for again with the next request."""
    gateway.cold_reads = ColdReads(gateway.clock, lambda _: None, ColdLimits(reads=0))
    storage = await storage_of(gateway, monkeypatch, 8)
    storage.hang(0, 1)
    response = await after(gateway, fetch_many(range(8), max_wait_ms=5000), SOON_S)
    assert set(range(2, 8)) == with_records(response)
    storage.go_on()
    assert set(range(8)) == with_records(
        await after(gateway, fetch_many(range(8), max_wait_ms=500), 0.04)
    )


async def test_an_append_ends_the_wait_beside_what_has_no_room_to_be_late(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its read goes on for the one request, which hears of all else meanwhile."""
    gateway.cold_reads = ColdReads(gateway.clock, lambda _: None, ColdLimits(reads=0))
    storage = await storage_of(gateway, monkeypatch, 2)
    storage.hang(0)
    storage.hot.add(1)
    request = fetch_many([0, 1], max_wait_ms=5000)
    request.topics[0].partitions[1].fetch_offset = 1
    pending = gateway.start(request, VERSION)
    await passes(gateway, 1)
    is_early = pending.done
    assert [0] == storage.begun
    await produce(gateway, batch(b"new"), index=1)
    await turns(20)
    assert (False, True) == (is_early, pending.done)
    assert {1} == with_records(await answer(pending))
    await turns(20)
    assert 0 == storage.running


@SIZES
async def test_what_has_no_room_to_be_late_comes_all_the_same(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """To the request that waits for it, and at once."""
    gateway.cold_reads = ColdReads(gateway.clock, lambda _: None, ColdLimits(reads=0))
    storage = await many_of(gateway, monkeypatch, partitions)
    storage.hang(0)
    pending = await begun(gateway, partitions, in_session=True)
    await passes(gateway, 0.45)
    is_early = pending.done
    storage.go_on()
    await turns(100)
    assert (False, True) == (is_early, pending.done)
    assert {0} == with_records(await answer(pending))
    assert [0] == storage.begun


async def test_what_had_no_room_to_be_late_is_an_error_where_nothing_waits(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each partition, also of those that were given up so that others were read."""
    gateway.cold_reads = ColdReads(gateway.clock, lambda _: None, ColdLimits(reads=0))
    storage = await storage_of(gateway, monkeypatch, 10)
    storage.hang(*range(10))
    response = await after(gateway, fetch_many(range(10), max_wait_ms=0), STORAGE_S)
    assert dict.fromkeys(range(10), ErrorCode.KAFKA_STORAGE_ERROR) == errors_in(response)
    await turns(20)
    assert 0 == storage.running
    storage.go_on()
    assert set(range(10)) == with_records(await after(gateway, fetch_many(range(10)), 0))


async def test_nobody_is_kept_in_memory_by_what_hangs(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that hangs for long knows those alone who wait for it now."""
    storage = await storage_of(gateway, monkeypatch, 2)
    storage.hang(0)
    for max_wait_ms in (0, 100, 200):
        await after(gateway, fetch_many([0, 1], max_wait_ms=max_wait_ms), SOON_S)
    pending = gateway.start(fetch_many([0], max_wait_ms=5000), VERSION)
    await turns(20)
    view = topic_of(gateway).partitions[0].view()
    read = cold_reads(gateway).find(view, 0, 1)
    assert read is not None
    assert 1 == len(read.followers)
    pending.cancel()
    assert {} == read.followers
