"""Fetch of many small batches: each is looked at, so an answer has some of them at a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kgw.backend.memory import MemoryBackend
from kgw.partitions.read.answer_room import AnswerRoom
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.handlers.support import LoopTurns, batch, create_topic, offsets_in, produce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import PartitionLog, ReadResult
    from kgw.testing.gateway import InProcessGateway

PARTITIONS = 4
BATCHES = 4


@pytest.fixture
def backend() -> MemoryBackend:
    """One that looks at three batches at a time."""
    return MemoryBackend(hot_batches=3)


async def _fill(gateway: InProcessGateway) -> None:
    metrics = gateway.metrics
    gateway.answer_room = AnswerRoom(metrics, batches_per_turn=5)
    await create_topic(gateway, partitions=PARTITIONS)
    for index in range(PARTITIONS):
        for _ in range(BATCHES):
            await produce(gateway, batch(b"x"), index=index)


def _request(
    offsets: Sequence[int], *, min_bytes: int = 1, session_epoch: int = -1
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=10_000,
        min_bytes=min_bytes,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic="orders",
                partitions=[
                    FetchPartition(
                        partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                    for index, offset in enumerate(offsets)
                ],
            )
        ],
    )


def _counts(response: FetchResponse) -> list[int]:
    return [len(offsets_in(one)) for one in response.responses[0].partitions]


@pytest.mark.parametrize("min_bytes", [1, 1_000_000])
async def test_a_turn_has_so_many_batches_of_all_partitions(
    gateway: InProcessGateway, min_bytes: int
) -> None:
    """There is more, so nothing is waited for: the client asks again, and gets on everywhere."""
    await _fill(gateway)
    offsets = [0] * PARTITIONS
    expected = [[3, 3, 0, 0], [1, 1, 3, 0], [0, 0, 1, 3], [0, 0, 0, 1]]
    for counts in expected:
        pending = gateway.start(_request(offsets, min_bytes=min_bytes), 12)
        if counts is not expected[-1]:
            assert pending.done
        elif min_bytes > 1:
            # All that is left has been looked at: more may come.
            assert not pending.done
            break
        response = await pending.response()
        assert isinstance(response, FetchResponse)
        assert counts == _counts(response)
        assert {BATCHES} == {one.high_watermark for one in response.responses[0].partitions}
        offsets = [offset + count for offset, count in zip(offsets, counts, strict=True)]


async def test_partitions_that_were_left_out_are_not_forgotten_by_a_session(
    gateway: InProcessGateway,
) -> None:
    """They have something to say still: the next request need not name them."""
    await _fill(gateway)
    first = await gateway.ask(_request([0] * PARTITIONS, session_epoch=0), 12, FetchResponse)
    assert [3, 3, 0, 0] == _counts(first)
    served: list[list[int]] = []
    for epoch in (1, 2):
        request = FetchRequest(
            max_wait_ms=10_000, min_bytes=1, session_id=first.session_id, session_epoch=epoch
        )
        response = await gateway.ask(request, 12, FetchResponse)
        partitions = response.responses[0].partitions
        served.append([one.partition_index for one in partitions if one.records])
    assert [[0, 1], [2, 3]] == served


async def test_an_answer_that_waits_for_a_disk_is_read_in_turns(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All partitions are read for it, and the loop serves others between them."""
    await _fill(gateway)
    topic = gateway.catalog.get("orders")
    assert topic is not None
    log_type = type(topic.partitions[0].log)
    real = log_type.read_hot
    turns = LoopTurns()
    looked: Counter[int] = Counter()

    def read_hot(log: PartitionLog, *arguments: int) -> ReadResult | None:
        if log.key.partition == 1:
            return None
        result = real(log, *arguments)
        assert result is not None
        looked[turns.count] += result.batches
        return result

    monkeypatch.setattr(log_type, "read_hot", read_hot)
    async with turns:
        response = await gateway.ask(_request([0] * PARTITIONS), 12, FetchResponse)
    assert [3, 4, 3, 3] == _counts(response)
    assert max(looked.values()) <= 5 + 2
