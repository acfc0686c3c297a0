"""Each step of a transaction is done, or the one who asked for it hears that it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kgw.client import (
    AsyncClient,
    ClientError,
    NewRecord,
    Producer,
    ServerRefusedError,
    TransactionalClient,
)

if TYPE_CHECKING:
    from kgw.testing.broker import Broker

STEPS = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


async def transact(client: AsyncClient) -> None:
    """Commit a record and an offset of a group in one transaction. Raises ClientError."""
    transactions = TransactionalClient(client)
    transaction = await transactions.begin("id", timeout_ms=60_000)
    async with Producer(client, transaction=transaction) as producer:
        await (await producer.send("orders", 0, [NewRecord(None, b"v", 0)]))
    await transactions.commit_offsets(transaction, "group", {("orders", 0): (7, "noted")})
    await transactions.end(transaction, is_commit=True)


def committed(broker: Broker) -> tuple[list[bytes | None], dict[tuple[str, int], int]]:
    """Return the values that readers of committed records get, and the group's offsets."""
    values = [one.value for one in broker.records("orders", read_committed=True)]
    return values, broker.committed("group")


@pytest.mark.kgw_topics("orders")
@pytest.mark.parametrize("step", STEPS)
async def test_a_step_that_is_refused_for_now_is_asked_for_again(
    kgw_broker: Broker, step: str
) -> None:
    """The transaction has all that belongs to it, once."""
    kgw_broker.faults.refuse(step, "COORDINATOR_LOAD_IN_PROGRESS", times=2, must_strike=True)
    async with AsyncClient([("127.0.0.1", kgw_broker.port)]) as client:
        await transact(client)
    assert ([b"v"], {("orders", 0): 7}) == committed(kgw_broker)


@pytest.mark.kgw_topics("orders")
@pytest.mark.parametrize("step", STEPS)
async def test_a_step_that_is_refused_is_told(kgw_broker: Broker, step: str) -> None:
    """Nothing of the transaction is there for readers; none of it is done without the rest."""
    error = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    kgw_broker.faults.refuse(step, error, must_strike=True)
    async with AsyncClient([("127.0.0.1", kgw_broker.port)]) as client:
        with pytest.raises(ClientError, match=error) as told:
            await transact(client)
    assert isinstance(told.value, ServerRefusedError)
    assert ([], {}) == committed(kgw_broker)


@pytest.mark.kgw_topics("orders")
@pytest.mark.parametrize("step", STEPS)
async def test_a_step_whose_answer_is_lost_is_done_once(kgw_broker: Broker, step: str) -> None:
    """It is asked for again: the server has done it, and says the same."""
    kgw_broker.faults.drop(step, must_strike=True)
    async with AsyncClient([("127.0.0.1", kgw_broker.port)]) as client:
        await transact(client)
    assert ([b"v"], {("orders", 0): 7}) == committed(kgw_broker)
