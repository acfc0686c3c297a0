from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from tests.handlers.support import START_MS, batch, call, call_in_turns, create_topic, produce
from tests.handlers.transactions import Transactions

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway


async def describe(gateway: InProcessGateway, *places: tuple[str, int]) -> list[Any]:
    """Ask about partitions, each by itself, and return their answers."""
    topics = [{"name": name, "partition_indexes": [index]} for name, index in places]
    response = await call(gateway, ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    assert [name for name, _ in places] == [topic.name for topic in response.topics]
    return [one for topic in response.topics for one in topic.partitions]


def fields(one: Any) -> tuple[int, ...]:
    """Return what an answer says of a producer."""
    return (
        one.producer_id,
        one.producer_epoch,
        one.last_sequence,
        one.last_timestamp,
        one.coordinator_epoch,
        one.current_txn_start_offset,
    )


async def test_says_what_is_known_of_each_producer(gateway: InProcessGateway) -> None:
    """With an open transaction, with an ended one, with none, and of a marker alone."""
    await create_topic(gateway, partitions=2)
    transactions = Transactions(gateway)
    await produce(gateway, batch(b"a", b"b", producer_id=1, producer_epoch=4, base_sequence=0))
    await transactions.write(2, b"c")
    await transactions.write(3, b"d")
    await transactions.end(3, is_commit=True)
    await transactions.end(5, is_commit=False)
    gateway.manual_clock.advance(1)
    await transactions.write(2, b"e")
    known, none = await describe(gateway, ("orders", 0), ("orders", 1))
    assert [
        (1, 4, 1, START_MS, -1, -1),
        (2, 0, 1, START_MS + 1_000, -1, 2),
        (3, 0, 0, START_MS, 0, -1),
        (5, 0, -1, START_MS, 0, -1),
    ] == sorted(fields(one) for one in known.active_producers)
    assert (0, 1, []) == (none.error_code, none.partition_index, none.active_producers)


async def test_a_partition_that_is_not_here_is_an_error_of_its_own(
    gateway: InProcessGateway,
) -> None:
    """With words, as the others are answered."""
    await create_topic(gateway)
    found, no_partition, no_topic = await describe(
        gateway, ("orders", 0), ("orders", 1), ("missing", 0)
    )
    assert (ErrorCode.NONE, None) == (found.error_code, found.error_message)
    for one, name in ((no_partition, "partition 1 of topic orders"), (no_topic, "topic missing")):
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == one.error_code
        assert name in one.error_message


async def test_thousands_are_described_in_turns(gateway: InProcessGateway) -> None:
    """The loop serves others meanwhile."""
    await create_topic(gateway)
    for producer_id in range(2_000):
        records = batch(producer_id=producer_id, base_sequence=0)
        await Transactions(gateway).partition.admission.append(records).result  # type: ignore[misc]
    response = await call_in_turns(
        gateway,
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        least=5,
        topics=[{"name": "orders", "partition_indexes": [0]}],
    )
    (answer,) = response.topics[0].partitions
    assert [*range(2_000)] == [one.producer_id for one in answer.active_producers]
