"""What went wrong in SMQ's own Kafka gateway, and does not here: a test for each lesson.

One more is in channel/test_channel.py: `test_one_deadline_covers_a_call_and_all_that_is_tried`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend, private_directory
from kgw.backend.seaweedmq.options import SeaweedMqOptions
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.config import Config
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.testing.clock import ManualClock
from kgw.testing.filer import CallKind, FilerStore, MemoryFiler
from kgw.testing.gateway import InProcessGateway
from tests.groups.wire import WireMember, settle
from tests.handlers.support import (
    batch,
    call,
    create_topic,
    fetch,
    fetch_request,
    offsets_in,
    produce,
)
from tests.turns import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.backend.seaweedmq.conftest import TakenLocks

GROUP = "readers"
SMALL = SeaweedMqOptions(cache_bytes=0, chunk_cache_bytes=0, file_bytes=1_000)
"""Everything is read from the filer, and files end after a few batches."""


class Parts:
    """A gateway, its way to the filer, and a clock that stands still."""

    def __init__(self, store: FilerStore) -> None:
        self.clock = ManualClock()
        self.filer = MemoryFiler(store, self.clock)
        directory = f"{private_directory('kafka')}/state"
        state = ChainStateStore(self.filer, self.clock, directory)
        backend = SeaweedMqBackend(self.filer, "kafka", state, SMALL, self.clock)
        self.gateway = InProcessGateway(
            Config.of(lag_interval_ms=0, group_initial_rebalance_delay_ms=0), backend, self.clock
        )


@asynccontextmanager
async def serving(store: FilerStore) -> AsyncIterator[Parts]:
    """Serve what a filer has."""
    parts = Parts(store)
    async with parts.gateway:
        yield parts
    assert {} == parts.gateway.internal_errors


async def latest(gateway: InProcessGateway) -> Any:
    """Return what ListOffsets says of the end of the first partition."""
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    answer = await call(gateway, ApiKey.LIST_OFFSETS, 5, replica_id=-1, topics=topics)
    return answer.topics[0].partitions[0]


# --- no lock is taken twice ---


async def test_no_lock_is_taken_twice(taken_locks: TakenLocks) -> None:
    """Not in what a gateway is asked for, nor where files end, move and go meanwhile.

    Every other test of this folder is watched in the same way.
    """
    store = FilerStore()
    async with serving(store) as parts:
        gateway = parts.gateway
        topic = await create_topic(gateway, partitions=2, segment_bytes="1024")
        for number in range(12):
            assert not (await produce(gateway, batch(b"%d" % number * 200))).error_code
        assert offsets_in(await fetch(gateway, fetch_request()))
        await asyncio.gather(*(produce(gateway, batch(b"x" * 300)) for _ in range(8)))
        member = WireMember(GROUP, gateway.request)
        assert ErrorCode.NONE is await member.commit("orders", {0: 3})
        await topic.partitions[0].delete_before(5)
        await gateway.checkpoint()
        await gateway.log_manager.retain()
        await call(
            gateway,
            ApiKey.CREATE_PARTITIONS,
            2,
            topics=[{"name": "orders", "count": 4, "assignments": None}],
            timeout_ms=1000,
        )
    async with serving(store) as parts:
        assert 20 == (await latest(parts.gateway)).offset
        await call(parts.gateway, ApiKey.DELETE_TOPICS, 4, topic_names=["orders"], timeout_ms=1000)
    assert taken_locks.count


async def test_a_lock_that_is_taken_twice_is_found() -> None:
    """The control."""
    async with (lock := asyncio.Lock()):
        with pytest.raises(AssertionError, match="is taken twice"):
            await lock.acquire()
        assert lock.locked()
    async with lock:
        waiting = asyncio.ensure_future(lock.acquire())
        await turns()
    assert await waiting


# --- a failed look-up of the high watermark is never "no data" ---


async def test_a_failed_look_up_of_the_high_watermark_is_never_no_data() -> None:
    """Whichever call of a start fails, the gateway does not serve, or says where the log ends."""
    store = FilerStore()
    async with serving(store) as parts:
        await create_topic(parts.gateway)
        for value in (b"first", b"second"):
            assert not (await produce(parts.gateway, batch(value))).error_code
    outcomes: Counter[str] = Counter()
    for number in range(100):
        # Every start leaves something: each begins with what the first gateway has left.
        parts = Parts(deepcopy(store))
        starting = asyncio.ensure_future(parts.gateway.open())
        if not await refuse_call(parts, number, starting):
            outcomes["all calls answered"] += 1
        parts.filer.hold_all()
        if starting.exception() is not None:
            outcomes["does not start"] += 1
        else:
            outcomes["serves"] += 1
            found = await latest(parts.gateway)
            if found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # The partition could not be opened, and is tried again: clients ask again.
                outcomes["is asked again"] += 1
                assert found.offset == -1
            else:
                assert (ErrorCode.NONE, 2) == (found.error_code, found.offset)
                assert [(0, 0), (1, 1)] == offsets_in(await fetch(parts.gateway, fetch_request()))
        closing = asyncio.ensure_future(parts.gateway.aclose())
        while not closing.done():
            parts.clock.advance(1)
            await turns()
        if outcomes["all calls answered"]:
            break
    assert outcomes["all calls answered"]
    assert outcomes["does not start"] > 5


async def refuse_call(parts: Parts, number: int, task: asyncio.Future[None]) -> bool:
    """Refuse one call of what a task makes, and answer all others; say whether there was one."""
    filer = parts.filer
    filer.hold_all(*CallKind)
    count = 0
    while not task.done():
        await turns()
        # Some are made again after a pause.
        parts.clock.advance(1)
        while filer.held:
            request = filer.held.pop(0)
            if count == number:
                request.refuse()
            else:
                request.answer()
            count += 1
    return count > number


async def test_records_that_cannot_be_read_now_are_never_no_data() -> None:
    """The filer is away: the end of the log stays where it is, readers are told to try again."""
    async with serving(FilerStore()) as parts:
        await create_topic(parts.gateway)
        for value in (b"first", b"second"):
            assert not (await produce(parts.gateway, batch(value))).error_code
        parts.filer.is_away = True
        answer = await fetch(parts.gateway, fetch_request())
        found = await latest(parts.gateway)
        parts.filer.is_away = False
        assert ErrorCode.KAFKA_STORAGE_ERROR == answer.error_code
        assert (ErrorCode.NONE, 2) == (found.error_code, found.offset)
        assert [(0, 0), (1, 1)] == offsets_in(await fetch(parts.gateway, fetch_request()))


# --- a consumer that resumes after everyone left ---


async def test_a_consumer_that_resumes_after_everyone_left_gets_its_records_at_once() -> None:
    """The clock stands still from when it asks to join: no answer waits for time to pass."""
    async with serving(FilerStore()) as parts:
        gateway = parts.gateway
        await create_topic(gateway)
        assert not (await produce(gateway, batch(b"read"))).error_code
        members = [WireMember(GROUP, gateway.request) for _ in range(2)]
        for member in members:
            await settle([member])
            assert ErrorCode.NONE is await member.commit("orders", {0: 1})
            assert ErrorCode.NONE is await member.leave()
        assert not (await produce(gateway, batch(b"written while nobody was there"))).error_code

        before_s = parts.clock.monotonic_s()
        back = WireMember(GROUP, gateway.request)
        await settle([back])
        topics = [{"name": "orders", "partition_indexes": [0]}]
        told = await call(gateway, ApiKey.OFFSET_FETCH, 7, group_id=GROUP, topics=topics)
        offset = told.topics[0].partitions[0].committed_offset
        assert 1 == offset
        answer = await fetch(gateway, fetch_request(offset, max_wait_ms=60_000))
        assert [(1, 1)] == offsets_in(answer)
        assert before_s == parts.clock.monotonic_s()
