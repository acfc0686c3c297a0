from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.handlers.context import Session
from kgw.partitions.view import AbortedRange, Isolation, PartitionView
from kgw.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kgw.testing.batches import make_batch
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import (
    batch,
    create_topic,
    fetch,
    fetch_request,
    let_be_stable_below,
    offsets_in,
    produce,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.testing.gateway import PendingResponse

COMMITTED = Isolation.READ_COMMITTED


@pytest.fixture
async def gateway() -> AsyncIterator[InProcessGateway]:
    """A gateway without topics. A bug met on the way fails the test."""
    async with InProcessGateway() as running:
        yield running
        assert {} == running.gateway.internal_errors


async def answer_of(pending: PendingResponse) -> PartitionData:
    """Wait for the answer of the one partition asked for."""
    response = await pending.response()
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


async def test_without_transactions_both_isolation_levels_see_the_same(
    gateway: InProcessGateway,
) -> None:
    """Everything up to the high watermark, none of it aborted; other numbers are uncommitted."""
    topic = await create_topic(gateway)
    await produce(gateway, batch(b"a", b"b"))
    partition = topic.partitions[0]
    views = [partition.view(isolation) for isolation in (0, 1)]
    assert [Isolation.READ_UNCOMMITTED, COMMITTED] == [view.isolation for view in views]
    assert [(0, 2, 2, 2)] * 2 == [view.bounds() for view in views]
    assert [[], []] == [[*view.aborted(0, 2)] for view in views]
    assert partition.view(7) is views[0]


async def test_records_from_elsewhere_wake_whoever_waits(gateway: InProcessGateway) -> None:
    """A log that advances by itself, not by an append to the partition, ends long polls."""
    topic = await create_topic(gateway)
    request = fetch_request(max_wait_ms=10_000)
    plain = gateway.start(request, 12)
    opened = await gateway.ask(
        FetchRequest(session_epoch=0, topics=request.topics), 12, FetchResponse
    )
    incremental = gateway.start(
        FetchRequest(
            max_wait_ms=10_000,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=opened.session_id,
            session_epoch=1,
        ),
        12,
        session=Session(),
    )
    await asyncio.sleep(0)
    assert [False, False] == [plain.done, incremental.done]
    await topic.partitions[0].log.append([make_batch([b"a", b"b"])])
    for pending in (plain, incremental):
        data = await answer_of(pending)
        assert (2, [(0, 1)]) == (data.high_watermark, offsets_in(data))


async def test_readers_of_committed_records_stop_at_the_last_stable_offset(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are told what was aborted: by what the view says, and nothing else."""
    await create_topic(gateway)
    for value in (b"a", b"b", b"c"):
        await produce(gateway, batch(value))
    let_be_stable_below(2, monkeypatch)
    asked: list[tuple[int, int]] = []

    def aborted(_: PartitionView, from_offset: int, to_offset: int) -> list[AbortedRange]:
        asked.append((from_offset, to_offset))
        return [AbortedRange(7, 1)]

    monkeypatch.setattr(PartitionView, "aborted", aborted)
    data = await fetch(gateway, fetch_request())
    assert ([(0, 0), (1, 1), (2, 2)], None) == (offsets_in(data), data.aborted_transactions)
    data = await fetch(gateway, fetch_request(isolation_level=1))
    assert ([(0, 0), (1, 1)], [(0, 2)]) == (offsets_in(data), asked)
    assert (3, 2) == (data.high_watermark, data.last_stable_offset)
    assert data.aborted_transactions is not None
    assert [(7, 1)] == [(one.producer_id, one.first_offset) for one in data.aborted_transactions]
    # At the end of what is stable there is something to wait for.
    pending = gateway.start(fetch_request(2, isolation_level=1, max_wait_ms=500), 12)
    assert not pending.done
    gateway.manual_clock.advance(0.6)
    data = await answer_of(pending)
    assert ([], []) == (offsets_in(data), data.aborted_transactions)
