from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kgw.backend.memory import MemoryPartitionLog
from kgw.errors import ErrorCode
from kgw.partitions.append.transactions import TransactionMarker
from kgw.protocol.api_keys import ApiKey
from tests.handlers.support import (
    call,
    call_in_turns,
    create_topic,
    fetch,
    fetch_request,
    offsets_in,
    request_of,
)
from tests.handlers.transactions import Transactions
from tests.turns import turns

if TYPE_CHECKING:
    from kgw.backend.memory import MemoryBackend
    from kgw.testing.gateway import InProcessGateway


def marker(
    *indexes: int, producer_id: int = 7, name: str = "orders", **fields: Any
) -> dict[str, Any]:
    """Return an abort marker of epoch 0 for some partitions, unless told otherwise."""
    return {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": name, "partition_indexes": [*(indexes or (0,))]}],
        **fields,
    }


async def write(
    gateway: InProcessGateway, *markers: dict[str, Any], version: int = 2
) -> list[ErrorCode]:
    """Send a request and return the code of each partition; the answer names what was asked."""
    response = await call(gateway, ApiKey.WRITE_TXN_MARKERS, version, markers=[*markers])
    places = [
        (one["producer_id"], topic["name"], index)
        for one in markers
        for topic in one["topics"]
        for index in topic["partition_indexes"]
    ]
    codes = {
        (one.producer_id, topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for one in response.markers
        for topic in one.topics
        for partition in topic.partitions
    }
    assert [*dict.fromkeys(places)] == [*codes]
    return [*codes.values()]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
async def test_ends_a_transaction(
    gateway: InProcessGateway, version: int, *, is_commit: bool
) -> None:
    """Its records are read, or skipped, from then on; others stay open."""
    await create_topic(gateway)
    transactions = Transactions(gateway)
    await transactions.write(7, b"a")
    await transactions.write(8, b"b")
    codes = await write(gateway, marker(transaction_result=is_commit), version=version)
    assert [ErrorCode.NONE] == codes
    data = await fetch(gateway, fetch_request(isolation_level=1))
    assert (3, 1, [(0, 0)]) == (data.high_watermark, data.last_stable_offset, offsets_in(data))
    assert is_commit == (not data.aborted_transactions)


async def test_each_partition_has_its_own_answer(gateway: InProcessGateway) -> None:
    """In the order of the request, whatever keeps others waiting or is wrong with them."""
    topic = await create_topic(gateway, partitions=2)
    assert [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ] == await write(gateway, marker(0, 1, 2, producer_epoch=1, coordinator_epoch=3))
    assert [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ] == await write(
        gateway,
        marker(1),
        marker(0, producer_epoch=1, coordinator_epoch=2),
        marker(name="missing"),
        marker(producer_id=8),
    )
    assert [2, 1] == [partition.log.high_watermark for partition in topic.partitions.values()]


async def test_a_marker_of_version_2_ends_no_later_transaction(gateway: InProcessGateway) -> None:
    """One of its own epoch is one that has begun since (KIP-890)."""
    await create_topic(gateway)
    await Transactions(gateway).write(7, b"a")
    assert [ErrorCode.INVALID_PRODUCER_EPOCH] == await write(gateway, marker(transaction_version=2))
    assert [ErrorCode.NONE] == await write(gateway, marker(transaction_version=1))


@pytest.mark.parametrize("field", ["producer_id", "producer_epoch", "coordinator_epoch"])
@pytest.mark.parametrize("value", [-1, -5])
async def test_nothing_is_below_zero(gateway: InProcessGateway, field: str, value: int) -> None:
    """Such a marker is refused, and nothing is written; the others of the request are."""
    topic = await create_topic(gateway)
    codes = await write(gateway, {**marker(), field: value}, marker(producer_id=8))
    assert [ErrorCode.INVALID_REQUEST, ErrorCode.NONE] == codes
    assert 1 == topic.partitions[0].log.high_watermark


async def test_no_marker_shuts_the_coordinator_out(gateway: InProcessGateway) -> None:
    """A coordinator epoch beyond that of the coordinator, whose markers would all be refused."""
    topic = await create_topic(gateway)
    own = gateway.transactions.coordinator_epoch
    assert [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE] == await write(
        gateway,
        marker(producer_id=6, coordinator_epoch=own + 1),
        marker(producer_id=7, coordinator_epoch=(1 << 31) - 1),
        marker(producer_id=8, coordinator_epoch=own),
    )
    # One that is known already shuts nobody out who is not shut out: kafka-transactions repeats it.
    ahead = TransactionMarker(9, 0, own + 7, is_commit=False)
    await topic.partitions[0].admission.append_marker(ahead)
    for epoch, code in ((own + 7, ErrorCode.NONE), (own + 8, ErrorCode.INVALID_REQUEST)):
        assert [code] == await write(gateway, marker(producer_id=9, coordinator_epoch=epoch))


async def test_is_answered_when_the_markers_are_stored(
    gateway: InProcessGateway, backend: MemoryBackend
) -> None:
    """Or when they are not: the client sends them again."""
    await create_topic(gateway)
    backend.hold()
    request = marker()
    pending = gateway.start(request_of(ApiKey.WRITE_TXN_MARKERS, markers=[request]), 2)
    await turns()
    assert not pending.done
    backend.release()
    await pending.response()
    backend.fail_next_append()
    assert [ErrorCode.KAFKA_STORAGE_ERROR] == await write(gateway, request)
    assert [ErrorCode.NONE] == await write(gateway, request)


async def test_a_bug_costs_its_partition_only(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported, and the others are answered."""
    topic = await create_topic(gateway, partitions=2, kgw_durability="relaxed")

    async def make_durable(log: MemoryPartitionLog, _: int) -> None:
        if log.key.partition == 0:
            raise ValueError("a bug")

    monkeypatch.setattr(MemoryPartitionLog, "make_durable", make_durable)
    codes = await write(gateway, marker(0, 1))
    assert [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE] == codes
    assert [1, 1] == [partition.log.high_watermark for partition in topic.partitions.values()]
    assert 1 == sum(gateway.internal_errors.values())
    gateway.internal_errors.clear()


async def test_many_markers_are_written_in_turns(gateway: InProcessGateway) -> None:
    """The loop serves others meanwhile."""
    await create_topic(gateway, partitions=10)
    response = await call_in_turns(
        gateway,
        ApiKey.WRITE_TXN_MARKERS,
        2,
        least=10,
        markers=[marker(*range(10), producer_id=number) for number in range(100)],
    )
    assert 1000 == sum(
        one.error_code == 0
        for answered in response.markers
        for topic in answered.topics
        for one in topic.partitions
    )
