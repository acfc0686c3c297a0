"""A request is taken apart, answered part by part, and joined: the engine by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.handlers.context import RequestContext, made
from kgw.handlers.parts import AnswerByPartition, Repeated
from kgw.handlers.rights import NO_RIGHTS
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.codec import codec
from kgw.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kgw.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.handlers.support import LoopTurns, create_topic
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.handlers.context import Answer
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic
    from kgw.testing.gateway import InProcessGateway

VERSION = 3
PER_TURN = 10
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Numbers(AnswerByPartition):
    """A made-up API in the words of OffsetForLeaderEpoch: it answers with the number asked."""

    response_type = OffsetForLeaderEpochResponse
    rights = NO_RIGHTS
    per_turn = PER_TURN
    repeated = Repeated.ANSWERED

    def part(self, topic: Topic, partition: Partition, asked: OffsetForLeaderPartition) -> Any:
        return EpochEndOffset(partition=asked.partition, end_offset=asked.leader_epoch)


class Refusing(Numbers):
    """Refuses partition 1; partition 2 meets a bug."""

    def part(self, topic: Topic, partition: Partition, asked: OffsetForLeaderPartition) -> Any:
        if asked.partition == 1:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        if asked.partition == 2:
            raise ValueError("a bug")
        return super().part(topic, partition, asked)


class Waiting(Numbers):
    """Answers for each partition when the test lets it."""

    waits = True

    def __init__(self, request: Any, context: RequestContext) -> None:
        super().__init__(request, context)
        self.begun: list[int] = []
        self.waiting: dict[int, asyncio.Future[Exception | None]] = {}

    async def part(
        self, topic: Topic, partition: Partition, asked: OffsetForLeaderPartition
    ) -> EpochEndOffset:
        self.begun.append(asked.leader_epoch)
        future = asyncio.get_running_loop().create_future()
        self.waiting[asked.leader_epoch] = future
        error = await future
        if error is not None:
            raise error
        return EpochEndOffset(partition=asked.partition, end_offset=asked.leader_epoch)

    def end(self, *numbers: int, error: Exception | None = None) -> None:
        """Let some of what waits end, or all of it."""
        for number in numbers or [*self.waiting]:
            self.waiting.pop(number).set_result(error)


class TurnByTurn(Waiting):
    turn_by_turn = True


class AnsweredOnce(Numbers):
    repeated = Repeated.LAST


class RefusedTwice(Numbers):
    repeated = Repeated.REFUSED


def request(*topics: tuple[str, list[int]]) -> OffsetForLeaderEpochRequest:
    """Return a request for partitions of topics. The numbers count through all of them."""
    numbers = iter(range(100_000))
    return OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic=name,
                partitions=[
                    OffsetForLeaderPartition(partition=index, leader_epoch=next(numbers))
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ]
    )


def begin(gateway: InProcessGateway, api: type[Numbers], *topics: tuple[str, list[int]]) -> Any:
    """Return a request on its way."""
    context = RequestContext(
        gateway.gateway, gateway.session, ApiKey.OFFSET_FOR_LEADER_EPOCH, VERSION, 1
    )
    return api(request(*topics), context)


async def answered(answer: Answer) -> list[tuple[str, list[tuple[int, int, int]]]]:
    """Return what a client reads: by topic the index, the code and the number."""
    response: Any = await made(answer)
    ours = codec(OffsetForLeaderEpochResponse, VERSION)
    decoded = ours.decode(ours.encode(response))
    return [
        (topic.topic, [(one.partition, one.error_code, one.end_offset) for one in topic.partitions])
        for topic in decoded.topics
    ]


async def test_a_refused_partition_costs_itself_alone(gateway: InProcessGateway) -> None:
    """So does one that does not exist, and a bug, which is reported."""
    await create_topic(gateway, partitions=4)
    for extra in (0, PER_TURN):
        topics = ("orders", [0, 1, 2, 3, 4]), ("missing", [0]), ("orders", [0] * extra)
        found = await answered(begin(gateway, Refusing, *topics).answer())
        assert [
            (
                "orders",
                [
                    (0, 0, 0),
                    (1, ErrorCode.POLICY_VIOLATION, -1),
                    (2, ErrorCode.UNKNOWN_SERVER_ERROR, -1),
                    (3, 0, 3),
                    (4, UNKNOWN, -1),
                ],
            ),
            ("missing", [(0, UNKNOWN, -1)]),
            ("orders", [(0, 0, number) for number in range(6, 6 + extra)]),
        ] == found
    assert {"OFFSET_FOR_LEADER_EPOCH": 2} == gateway.internal_errors
    gateway.internal_errors.clear()


async def test_partitions_that_are_waited_for(gateway: InProcessGateway) -> None:
    """They are answered in the order of the request, whatever ends first and however it ends."""
    await create_topic(gateway, partitions=4)
    api = begin(gateway, Waiting, ("orders", [3, 9, 1, 2, 0]))
    answer = asyncio.ensure_future(answered(api.answer()))
    await turns()
    api.end(4)
    api.end(3, error=StorageError("the disk is gone"))
    api.end(2, error=ValueError("a bug"))
    await turns()
    assert not answer.done()
    api.end(0)
    assert [
        (
            "orders",
            [
                (3, 0, 0),
                (9, UNKNOWN, -1),
                (1, ErrorCode.UNKNOWN_SERVER_ERROR, -1),
                (2, StorageError.code, -1),
                (0, 0, 4),
            ],
        )
    ] == await answer
    assert {"OFFSET_FOR_LEADER_EPOCH": 1} == gateway.internal_errors
    gateway.internal_errors.clear()


async def test_a_topic_that_is_deleted_while_its_partitions_wait(
    gateway: InProcessGateway,
) -> None:
    """What fails by it is unknown to the client, and so is what comes later."""
    await create_topic(gateway, partitions=4)
    api = begin(gateway, TurnByTurn, ("orders", [0, 1] + [2] * PER_TURN))
    answer = asyncio.ensure_future(answered(api.answer()))
    await turns()
    await gateway.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6)
    api.end(0)
    api.end(error=StorageError("its files are gone"))
    ((_, found),) = await answer
    assert [0, *[UNKNOWN] * (PER_TURN + 1)] == [code for _, code, _ in found]


@pytest.mark.parametrize("extra", [0, PER_TURN])
async def test_partitions_that_are_named_twice(gateway: InProcessGateway, extra: int) -> None:
    """Each API says what becomes of them, in a small request and in a large one."""
    await create_topic(gateway, partitions=30)
    rest = [*range(10, 10 + extra)]
    topics: Any = ("orders", [0, 1, 0]), ("missing", []), ("orders", [2, 0, *rest])
    tail = [(index, 0, number) for number, index in enumerate(rest, 5)]
    each = await answered(begin(gateway, Numbers, *topics).answer())
    assert [
        ("orders", [(0, 0, 0), (1, 0, 1), (0, 0, 2)]),
        ("missing", []),
        ("orders", [(2, 0, 3), (0, 0, 4), *tail]),
    ] == each
    once = await answered(begin(gateway, AnsweredOnce, *topics).answer())
    assert [("orders", [(0, 0, 4), (1, 0, 1), (2, 0, 3), *tail])] == once
    refused = await answered(begin(gateway, RefusedTwice, *topics).answer())
    first = (0, ErrorCode.INVALID_REQUEST, -1)
    assert [("orders", [first, (1, 0, 1), (2, 0, 3), *tail])] == refused


@pytest.mark.parametrize("count", [PER_TURN, 10 * PER_TURN, 10 * PER_TURN + 1])
async def test_many_partitions_give_the_loop_back(gateway: InProcessGateway, count: int) -> None:
    """So many are answered for in one turn, of one topic and of several; none is left out."""
    await create_topic(gateway, partitions=4)
    together = [("orders", [0] * count)]
    spread = [("orders", [number % 4]) for number in range(count)]
    for topics in [together, spread]:
        answer = begin(gateway, Numbers, *topics).answer()
        async with LoopTurns() as loop_turns:
            found = await answered(answer)
        assert loop_turns.count >= count // PER_TURN - 1
        numbers = [number for _, partitions in found for _, _, number in partitions]
        assert [*range(count)] == numbers
        assert [name for name, _ in topics] == [name for name, _ in found]


@pytest.mark.parametrize("api_type", [Waiting, TurnByTurn])
async def test_the_next_turn_begins_when_the_last_one_has_ended(
    gateway: InProcessGateway, api_type: type[Waiting]
) -> None:
    """Only where an API says so: else all begin, and wait side by side."""
    await create_topic(gateway)
    api = begin(gateway, api_type, ("orders", [0] * (2 * PER_TURN + 1)))
    answer = asyncio.ensure_future(answered(api.answer()))
    await turns(20)
    is_by_turn = api_type.turn_by_turn
    assert [*range(PER_TURN if is_by_turn else 2 * PER_TURN + 1)] == api.begun
    api.end(*range(1, PER_TURN))
    await turns(20)
    assert (PER_TURN if is_by_turn else 2 * PER_TURN + 1) == len(api.begun)
    for _ in range(3):
        api.end()
        await turns(20)
    ((_, found),) = await answer
    assert [(0, 0, number) for number in range(2 * PER_TURN + 1)] == found
