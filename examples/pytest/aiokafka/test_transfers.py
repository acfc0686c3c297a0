"""Bookings are exactly once, whatever the broker does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from transfers import GROUP, RefusedTransferError, Transfers

if TYPE_CHECKING:
    from kgw.testing.broker import Broker

pytestmark = pytest.mark.kgw_topics("transfers", "bookings")


def transfer(amount: int) -> str:
    """Return a transfer as it stands in the topic."""
    return json.dumps({"from": "ann", "to": "bob", "amount": amount})


def bookings(kgw_broker: Broker) -> list[tuple[bytes | None, bytes | None]]:
    """Return what a reader of committed records sees."""
    found = kgw_broker.records("bookings", read_committed=True)
    return [(record.key, record.value) for record in found]


async def test_a_transfer_is_two_bookings(kgw_broker: Broker) -> None:
    """They are committed together with the offset."""
    kgw_broker.produce("transfers", [transfer(10)])
    async with Transfers(kgw_broker.bootstrap) as worker:
        await worker.book_next()
    assert [(b"ann", b"-10"), (b"bob", b"10")] == bookings(kgw_broker)
    assert {("transfers", 0): 1} == kgw_broker.committed(GROUP)


async def test_a_refused_transfer_books_nothing(kgw_broker: Broker) -> None:
    """What was written of it is aborted: only readers of all records see it."""
    kgw_broker.produce("transfers", [transfer(-10)])
    async with Transfers(kgw_broker.bootstrap) as worker:
        with pytest.raises(RefusedTransferError):
            await worker.book_next()
    assert [] == bookings(kgw_broker)
    assert 1 == len(kgw_broker.records("bookings"))
    assert {} == kgw_broker.committed(GROUP)


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("Produce", "NOT_LEADER_OR_FOLLOWER"),
        ("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS"),
        ("AddOffsetsToTxn", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("EndTxn", "COORDINATOR_NOT_AVAILABLE"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
async def test_errors_that_pass_book_once(kgw_broker: Broker, api: str, error: str) -> None:
    """The client tries again, and readers see each booking once."""
    kgw_broker.produce("transfers", [transfer(10)])
    with kgw_broker.faults.refuse(api, error, times=1, must_strike=True):
        async with Transfers(kgw_broker.bootstrap) as worker:
            await worker.book_next()
    assert [(b"ann", b"-10"), (b"bob", b"10")] == bookings(kgw_broker)


async def test_a_lost_answer_books_once(kgw_broker: Broker) -> None:
    """The broker has stored the booking and the answer is lost: the producer is idempotent."""
    kgw_broker.produce("transfers", [transfer(10)])
    async with Transfers(kgw_broker.bootstrap) as worker:
        with kgw_broker.faults.drop("Produce", must_strike=True):
            await worker.book_next()
    assert [(b"ann", b"-10"), (b"bob", b"10")] == bookings(kgw_broker)


async def test_a_worker_that_hangs_does_not_hold_up_readers(kgw_broker: Broker) -> None:
    """Its transaction is aborted when its time is over, and a second worker books."""
    kgw_broker.produce("transfers", [transfer(10)])
    async with Transfers(kgw_broker.bootstrap) as hanging:
        await hanging.producer.begin_transaction()
        await hanging.book("ann", -10)
        kgw_broker.clock.advance(40)
        kgw_broker.produce("bookings", ["0"], key="check")
        # Not before the transaction has ended does a reader of committed records get that far.
        assert [(b"check", b"0")] == bookings(kgw_broker)
