"""Fetch and ListOffsets while transactions are open, committed and aborted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.memory import MemoryPartitionLog
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import (
    batch,
    call,
    create_topic,
    fetch,
    fetch_request,
    offsets_in,
    produce,
)
from tests.handlers.transactions import Transactions
from tests.partitions.committed import not_aborted
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.backend.base import ReadResult
    from kgw.backend.memory import MemoryBackend
    from kgw.testing.gateway import PendingResponse


@pytest.fixture
async def transactions(gateway: InProcessGateway) -> Transactions:
    """The topic "orders" with a partition, empty."""
    await create_topic(gateway)
    return Transactions(gateway)


def aborted_in(data: PartitionData) -> list[tuple[int, int]] | None:
    """Return producer ids and first offsets."""
    if data.aborted_transactions is None:
        return None
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions]


async def answer_of(pending: PendingResponse) -> PartitionData:
    """Wait for the answer of the one partition asked for."""
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


@pytest.mark.parametrize("version", range(4, 13))
async def test_readers_of_committed_records_get_those_alone(
    gateway: InProcessGateway, transactions: Transactions, version: int
) -> None:
    """What is open ends the answer, what was aborted is named; others read all, and skip none."""
    await transactions.write(7, b"aborted")
    await transactions.write(8, b"committed")
    await transactions.end(7, is_commit=False)
    await transactions.end(8, is_commit=True)
    await transactions.write(9, b"open")
    await produce(gateway, batch(b"plain"))

    every = await fetch(gateway, fetch_request(), version)
    assert (6, 4, None) == (every.high_watermark, every.last_stable_offset, aborted_in(every))
    assert [0, 1, 2, 3, 4, 5] == [first for first, _ in offsets_in(every)]
    data = await fetch(gateway, fetch_request(isolation_level=1), version)
    assert (6, 4, [(7, 0)]) == (data.high_watermark, data.last_stable_offset, aborted_in(data))
    assert [0, 1, 2, 3] == [first for first, _ in offsets_in(data)]
    assert isinstance(data.records, bytes | bytearray | memoryview)
    assert [(1, b"committed")] == not_aborted([data.records], aborted_in(data) or [])
    behind = await fetch(gateway, fetch_request(3, isolation_level=1), version)
    assert [] == aborted_in(behind)
    at_end = await fetch(gateway, fetch_request(4, isolation_level=1), version)
    assert ([], []) == (offsets_in(at_end), aborted_in(at_end))


async def test_the_end_of_a_transaction_ends_long_polls(
    gateway: InProcessGateway, transactions: Transactions
) -> None:
    """With a session and without one, once what has become stable is enough; no sooner."""
    await transactions.write(7, b"v" * 1000)
    size_bytes = transactions.partition.log.size_bytes
    request = fetch_request(isolation_level=1, max_wait_ms=10_000, min_bytes=size_bytes + 1)
    plain = gateway.start(request, 12)
    opened = await gateway.ask(
        FetchRequest(session_epoch=0, isolation_level=1, topics=request.topics), 12, FetchResponse
    )
    incremental = gateway.start(
        FetchRequest(
            max_wait_ms=10_000,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_id=opened.session_id,
            session_epoch=1,
        ),
        12,
    )
    await produce(gateway, batch(b"plain"))
    await turns()
    assert [False, False] == [plain.done, incremental.done]
    await transactions.end(7, is_commit=True)
    for pending in (plain, incremental):
        data = await answer_of(pending)
        assert (3, 3) == (data.high_watermark, data.last_stable_offset)
        assert [(0, 0), (1, 1), (2, 2)] == offsets_in(data)


async def test_a_poll_that_repeats_is_told_of_the_high_watermark(
    gateway: InProcessGateway, transactions: Transactions
) -> None:
    """It moves while nothing becomes stable: the answer that was kept says otherwise."""
    await transactions.write(7, b"open")
    request = fetch_request(isolation_level=1, max_wait_ms=500)
    for high_watermark in (1, 2):
        pending = gateway.start(request, 12)
        if high_watermark == 2:
            await produce(gateway, batch(b"plain"))
        gateway.manual_clock.advance(0.6)
        assert high_watermark == (await answer_of(pending)).high_watermark


def poll_of(session_id: int, epoch: int, isolation_level: int) -> FetchRequest:
    """Return a request that goes on with a session and changes nothing in it."""
    return FetchRequest(
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=epoch,
    )


async def test_a_session_at_an_open_transaction_reads_it_once_it_asks_for_all(
    gateway: InProcessGateway, transactions: Transactions
) -> None:
    """No record comes meanwhile: what the requests before had no use for is there already."""
    await transactions.write(7, b"open")
    begin = fetch_request(isolation_level=1)
    begin.session_epoch = 0
    opened = await gateway.ask(begin, 12, FetchResponse)
    for epoch in (1, 2, 3):
        answer = await gateway.ask(poll_of(opened.session_id, epoch, 1), 12, FetchResponse)
        assert [] == answer.responses
    answer = await gateway.ask(poll_of(opened.session_id, 4, 0), 12, FetchResponse)
    assert [[(0, 0)]] == [offsets_in(one.partitions[0]) for one in answer.responses]


async def test_a_session_at_an_open_transaction_is_told_of_the_high_watermark(
    gateway: InProcessGateway, transactions: Transactions
) -> None:
    """Each time that it moves, although nothing becomes stable: clients reckon their lag by it."""
    await transactions.write(7, b"open")
    begin = fetch_request(isolation_level=1)
    begin.session_epoch = 0
    opened = await gateway.ask(begin, 12, FetchResponse)
    told = []
    for epoch in range(1, 7):
        if epoch % 2:
            await produce(gateway, batch(b"plain"))
        answer = await gateway.ask(poll_of(opened.session_id, epoch, 1), 12, FetchResponse)
        told.append([one.partitions[0].high_watermark for one in answer.responses])
    assert [[2], [], [3], [], [4], []] == told


async def test_what_was_aborted_is_known_after_a_restart(backend: MemoryBackend) -> None:
    """After one in order, with a snapshot, and after a kill without one."""
    async with InProcessGateway(backend=backend) as gateway:
        await create_topic(gateway)
        transactions = Transactions(gateway)
        await transactions.write(7, b"aborted")
        await transactions.end(7, is_commit=False)
        await transactions.write(8, b"open")
    for _ in range(2):
        async with InProcessGateway(backend=backend) as gateway:
            data = await fetch(gateway, fetch_request(isolation_level=1))
            assert ([(7, 0)], 2) == (aborted_in(data), data.last_stable_offset)


async def test_what_was_read_before_its_abort_was_forgotten_is_not_answered(
    gateway: InProcessGateway, transactions: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction has removed aborted records that were just being read: the client asks again."""
    await transactions.write(7, b"aborted")
    await transactions.end(7, is_commit=False)
    may_answer = asyncio.Event()
    read = MemoryPartitionLog.read

    async def read_slowly(log: MemoryPartitionLog, *given: Any, **named: Any) -> ReadResult:
        result = await read(log, *given, **named)
        await may_answer.wait()
        return result

    with monkeypatch.context() as slow:
        slow.setattr(MemoryPartitionLog, "read", read_slowly)
        slow.setattr(MemoryPartitionLog, "read_hot", lambda *_: None)
        pending = gateway.start(fetch_request(isolation_level=1), 12)
        await turns()
        transactions.partition.producers.forget_aborted_below(2)
        may_answer.set()
        data = await answer_of(pending)
    assert ([], []) == (offsets_in(data), aborted_in(data))
    data = await fetch(gateway, fetch_request(isolation_level=1))
    assert [(0, 0), (1, 1)] == offsets_in(data)


async def test_offsets_are_listed_by_isolation_level(
    gateway: InProcessGateway, transactions: Transactions
) -> None:
    """The end of what is stable, and times below it alone, for readers of committed records."""
    await produce(gateway, batch(b"plain"))
    await transactions.write(7, b"open")
    for isolation_level, end in ((0, 2), (1, 1)):
        found = []
        for timestamp in (-1, -3, 0):
            response = await call(
                gateway,
                ApiKey.LIST_OFFSETS,
                8,
                isolation_level=isolation_level,
                topics=[
                    {
                        "name": "orders",
                        "partitions": [{"partition_index": 0, "timestamp": timestamp}],
                    }
                ],
            )
            found.append(response.topics[0].partitions[0].offset)
        assert [end, 0, 0] == found
