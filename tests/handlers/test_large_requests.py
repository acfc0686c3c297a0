"""Requests about many partitions: cut into turns of the loop, answered as small ones are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.errors import ErrorCode, ProtocolError
from kgw.handlers.context import DueAnswer
from kgw.handlers.produce import PARTITIONS_PER_TURN
from kgw.protocol.decoding import ELEMENTS_PER_TURN
from kgw.protocol.framing import request_frame
from kgw.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.handlers.support import LoopTurns, batch, create_topic, produce_request

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway

MANY = 3 * PARTITIONS_PER_TURN
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def produce_to_many(partitions: int, *values: bytes, acks: int = -1) -> ProduceRequest:
    """Return a request with a batch for each partition, and one for a partition too many."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="orders",
                partition_data=[
                    PartitionProduceData(index=index, records=batch(*values))
                    for index in range(partitions)
                ],
            ),
        ],
    )


@pytest.mark.parametrize("version", [8, 9])
async def test_produce_to_many_partitions(gateway: InProcessGateway, version: int) -> None:
    """Batches enter some at a time, and each is answered, those that are refused as well."""
    topic = await create_topic(gateway, partitions=MANY)
    request = produce_to_many(MANY + 1, b"v")
    async with LoopTurns() as turns:
        response = await gateway.ask(request, version, ProduceResponse)
    assert turns.count >= 6
    (answer,) = response.responses
    assert answer.name == "orders"
    assert [*range(MANY + 1)] == [one.index for one in answer.partition_responses]
    codes = [ErrorCode.NONE] * MANY + [UNKNOWN]
    assert codes == [one.error_code for one in answer.partition_responses]
    assert {1} == {one.log.high_watermark for one in topic.partitions}
    assert topic.partitions[-1].log.high_watermark == 1


async def test_what_follows_waits_until_all_is_submitted(gateway: InProcessGateway) -> None:
    """The answer says when a later Produce of the connection may begin: before it is there."""
    topic = await create_topic(gateway, partitions=MANY)
    frame = b"".join(request_frame(produce_to_many(MANY, b"v"), 9, 1, "test"))
    answer = gateway.dispatcher.start(memoryview(bytearray(frame))[4:], gateway.session)
    assert isinstance(answer, DueAnswer)
    submission = answer.submission
    assert submission is not None
    assert not submission.is_over
    assert topic.partitions[-1].log.end_offset == 0
    ends: list[int] = []
    submission.when_over(lambda: ends.append(topic.partitions[-1].log.end_offset))
    done = asyncio.Event()
    answer.when_done(lambda _: done.set())
    await done.wait()
    assert ends == [1]


async def test_acks_0_to_many_partitions(gateway: InProcessGateway) -> None:
    """There is no answer, and a refusal closes the connection, in whichever turn."""
    topic = await create_topic(gateway, partitions=MANY)
    request = produce_to_many(MANY, b"v", acks=0)
    assert await gateway.start(request, 9).response() is None
    assert {1} == {one.log.high_watermark for one in topic.partitions}
    with pytest.raises(ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await gateway.start(produce_to_many(MANY + 1, b"v", acks=0), 9).response()


async def test_few_partitions_take_one_turn(gateway: InProcessGateway) -> None:
    """Nothing waits for them, whatever the size of the batch."""
    topic = await create_topic(gateway)
    frame = b"".join(request_frame(produce_request(batch(bytes(100_000))), 9, 1, "test"))
    answer = gateway.dispatcher.start(memoryview(bytearray(frame))[4:], gateway.session)
    assert isinstance(answer, DueAnswer)
    assert answer.submission is None
    assert topic.partitions[0].log.end_offset == 1


async def test_a_damaged_large_request_closes_the_connection(gateway: InProcessGateway) -> None:
    """What cannot be decoded behind the first turn is told as anywhere else."""
    topics = [MetadataRequestTopic(name=f"{number:020}") for number in range(ELEMENTS_PER_TURN * 2)]
    frame = b"".join(request_frame(MetadataRequest(topics=topics), 9, 1, "test"))
    answer = gateway.dispatcher.start(memoryview(bytearray(frame[:-20]))[4:], gateway.session)
    assert isinstance(answer, DueAnswer)
    assert gateway.dispatcher.has_large_work
    done = asyncio.Event()
    answer.when_done(lambda _: done.set())
    await done.wait()
    with pytest.raises(ProtocolError):
        answer.result()
    assert not gateway.dispatcher.has_large_work
