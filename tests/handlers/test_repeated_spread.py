"""Requests to several partitions are answered as if none had come before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.backend.memory import MemoryBackend
from kgw.errors import ErrorCode
from kgw.handlers import repeated_spread
from kgw.handlers.produce import PARTITIONS_PER_TURN
from kgw.protocol.framing import decode_response, request_frame
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kgw.testing.gateway import InProcessGateway
from tests.handlers.support import LoopTurns, create_topic
from tests.handlers.test_repeated_produce import (
    PlainDispatcher,
    Side,
    batches,
    damage,
    damaged,
    records,
    start_side,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.partitions.partition import Partition
    from kgw.types import Buffer

PARTITIONS = 3
VERSIONS = range(8, 14)


def frame(side: Side, parts: Sequence[tuple[int, bytes | None]], version: int, acks: int) -> bytes:
    """Return a request with a batch for each of some partitions."""
    side.correlation_id += 1
    topic = TopicProduceData(
        name="orders",
        topic_id=side.topic.topic_id,
        partition_data=[PartitionProduceData(index=index, records=batch) for index, batch in parts],
    )
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])
    return b"".join(request_frame(request, version, side.correlation_id, "client"))[4:]


async def produce(
    side: Side, *parts: tuple[int, bytes | None], version: int = 11
) -> list[tuple[int, int, int]]:
    """Return index, error code and base offset of each part."""
    answer = await side.send(frame(side, parts, version, -1))
    assert isinstance(answer, bytes)
    response = decode_response(answer[4:], 0, version)[1]
    assert isinstance(response, ProduceResponse)
    return [
        (one.index, one.error_code, one.base_offset)
        for one in response.responses[0].partition_responses
    ]


@given(
    version=st.sampled_from(VERSIONS),
    sent=st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(-1, PARTITIONS), batches), max_size=4),
            st.sampled_from([-1, -1, -1, 1, 0]),
            damage,
        ),
        max_size=10,
    ),
)
async def test_answers_are_those_of_the_twin(
    version: int,
    sent: list[tuple[list[tuple[int, bytes | None]], int, tuple[str, int, int] | None]],
) -> None:
    """Whatever is sent, byte by byte: known heads change neither answers nor what is stored."""
    async with InProcessGateway() as one, InProcessGateway() as other:
        fast = await start_side(one, partitions=PARTITIONS)
        plain = await start_side(other, PlainDispatcher, partitions=PARTITIONS)
        first: list[tuple[int, bytes | None]] = [(0, records(b"a")), (1, records(b"b"))]
        for parts, acks, harm in [(first, -1, None), *sent]:
            answers = []
            for side in (fast, plain):
                whole = frame(side, parts, version, acks)
                if harm is not None:
                    if version == 13 and (harm[0] == "change" or not parts):
                        # The sides' topic ids differ, and one byte would tell them apart.
                        continue
                    whole = damaged(whole, *harm)
                answers.append(await side.send(whole))
            assert answers[:1] == answers[1:]
        for mine, its in zip(
            fast.topic.partitions.values(), plain.topic.partitions.values(), strict=True
        ):
            assert its.log.end_offset == mine.log.end_offset
            assert its.log.size_bytes == mine.log.size_bytes
        assert other.gateway.metrics.requests == one.gateway.metrics.requests


@pytest.mark.parametrize("version", range(repeated_spread.FIRST_VERSION, 14))
async def test_a_repeated_request_is_not_decoded(
    gateway: InProcessGateway, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second on, whichever partitions follow, in whichever order."""
    side = await start_side(gateway, partitions=200)
    batch = records(b"v" * 200)
    await produce(side, (0, batch), (1, batch), version=version)
    monkeypatch.setattr("kgw.handlers.dispatch.Dispatcher._decode", None)
    assert [(2, 0, 0), (1, 0, 1), (0, 0, 1)] == await produce(
        side, (2, batch), (1, batch), (0, batch), version=version
    )
    everywhere = [(index, batch) for index in range(200)]
    assert [*range(200)] == [
        index for index, *_ in await produce(side, *everywhere, version=version)
    ]


async def test_one_part_may_fail() -> None:
    """Refused before it is submitted or after: the others are stored, and each says its own."""
    backend = MemoryBackend()
    async with InProcessGateway(backend=backend) as gateway:
        side = await start_side(gateway, partitions=PARTITIONS)
        good = records(b"a")
        await produce(side, (0, good), (1, good))
        damaged_batch = good[:-1] + bytes([good[-1] ^ 1])
        assert [(0, 0, 1), (1, ErrorCode.CORRUPT_MESSAGE, -1), (2, 0, 0)] == await produce(
            side, (0, good), (1, damaged_batch), (2, good)
        )
        backend.fail_next_append()
        assert [(0, ErrorCode.KAFKA_STORAGE_ERROR, -1), (1, 0, 1)] == await produce(
            side, (0, good), (1, good)
        )


async def test_a_duplicate_among_others() -> None:
    """A retry gets its first offset, what is new beside it the next."""
    async with InProcessGateway() as gateway:
        side = await start_side(gateway, partitions=PARTITIONS)
        first, second = records(b"a", sequence=0), records(b"b", sequence=1)
        await produce(side, (0, first), (1, first))
        assert [(0, 0, 0), (1, 0, 1)] == await produce(side, (0, first), (1, second))
        assert [(0, 0, 0), (1, 0, 1)] == await produce(side, (0, first), (1, second))


async def test_a_topic_that_is_made_again_is_another() -> None:
    """What was known of a deleted topic is forgotten."""
    async with InProcessGateway() as gateway:
        side = await start_side(gateway, partitions=PARTITIONS)
        batch = records(b"a")
        for _ in range(2):
            await produce(side, (0, batch), (1, batch))
        await gateway.gateway.catalog.delete(side.topic)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [(0, unknown, -1), (1, unknown, -1)] == await produce(side, (0, batch), (1, batch))
        side.topic = await create_topic(gateway, partitions=PARTITIONS)
        for offset in range(2):
            assert [(0, 0, offset), (1, 0, offset)] == await produce(side, (0, batch), (1, batch))


async def test_more_than_a_turn_takes_is_left_to_turns(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only as many as hold the loop for a short time are taken at once, whatever is known."""
    most = repeated_spread.MOST_PARTITIONS
    side = await start_side(gateway, partitions=most + 1)
    taken: list[int] = []
    append = repeated_spread.KnownTopic.append

    def counting(
        topic: repeated_spread.KnownTopic,
        parts: Sequence[tuple[Partition, memoryview]],
        correlation_id: int,
    ) -> list[Buffer] | repeated_spread.SpreadAnswer:
        taken.append(len(parts))
        return append(topic, parts, correlation_id)

    monkeypatch.setattr(repeated_spread.KnownTopic, "append", counting)
    batch = records(b"v")
    everywhere = [(index, batch) for index in range(most + 1)]
    for count, known in [(most + 1, []), (most, []), (most, [most]), (most + 1, [most])]:
        answered = await produce(side, *everywhere[:count])
        assert [*range(count)] == [index for index, _, _ in answered]
        assert {0} == {code for _, code, _ in answered}
        assert known == taken
    assert 4 == side.topic.partitions[0].log.high_watermark
    assert 2 == side.topic.partitions[most].log.high_watermark


async def test_a_large_request_takes_turns_each_time(gateway: InProcessGateway) -> None:
    """Though the head that it begins with is known, from a smaller one."""
    count = repeated_spread.MOST_PARTITIONS + 2 * PARTITIONS_PER_TURN
    side = await start_side(gateway, partitions=count)
    batch = records(b"v")
    await produce(side, (0, batch), (1, batch))
    everywhere = [(index, batch) for index in range(count)]
    for _ in range(2):
        async with LoopTurns() as turns:
            await produce(side, *everywhere)
        assert turns.count >= 2 * count // PARTITIONS_PER_TURN
