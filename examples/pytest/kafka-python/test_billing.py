"""What the billing does when all is well, and when the broker or a worker fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from billing import Billing
from kafka.errors import CommitFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kgw.testing.broker import Broker

pytestmark = pytest.mark.kgw_topics("invoices", orders=2)


@pytest.fixture
def new_worker(kgw_broker: Broker) -> Iterator[Callable[[], Billing]]:
    """Give a function that starts a worker."""
    workers: list[Billing] = []

    def start() -> Billing:
        workers.append(Billing(kgw_broker.bootstrap))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def order(number: int, price: int = 5) -> str:
    """Return an order as it stands in the topic."""
    return json.dumps({"id": number, "price": price, "count": 2})


def billed(kgw_broker: Broker) -> list[int]:
    """Return the orders that have an invoice."""
    return sorted(json.loads(value)["order"] for value in kgw_broker.values("invoices"))


def work(worker: Billing, count: int) -> None:
    """Have a worker bill so many orders."""
    while count > 0:
        count -= worker.work()


def test_each_order_has_an_invoice(kgw_broker: Broker, new_worker: Callable[[], Billing]) -> None:
    """The totals are right, and the group has committed what it has read."""
    kgw_broker.produce("orders", [order(1), order(2, price=7)], partition=0)
    kgw_broker.produce("orders", [order(3)], partition=1)
    work(new_worker(), 3)
    totals = {one["order"]: one["total"] for one in map(json.loads, kgw_broker.values("invoices"))}
    assert {1: 10, 2: 14, 3: 10} == totals
    assert {("orders", 0): 2, ("orders", 1): 1} == kgw_broker.committed("billing")


def test_an_invoice_is_sent_again_when_the_leader_moves(
    kgw_broker: Broker, new_worker: Callable[[], Billing]
) -> None:
    """The producer asks for the new leader and sends once more; no invoice is there twice."""
    kgw_broker.produce("orders", [order(1)])
    with kgw_broker.faults.not_leader(api="Produce", topic="invoices", must_strike=True):
        work(new_worker(), 1)
    assert [1] == billed(kgw_broker)


def test_a_lost_connection_costs_no_order(
    kgw_broker: Broker, new_worker: Callable[[], Billing]
) -> None:
    """Here the connection ends before the request is carried out."""
    kgw_broker.produce("orders", [order(1)])
    with kgw_broker.faults.drop("Produce", before=True, must_strike=True):
        work(new_worker(), 1)
    assert [1] == billed(kgw_broker)


def test_a_crash_before_the_commit_bills_again(
    kgw_broker: Broker, new_worker: Callable[[], Billing]
) -> None:
    """At least once: the invoice is there twice, under the same key."""
    kgw_broker.produce("orders", [order(1)])
    first = new_worker()
    with (
        kgw_broker.faults.refuse("OffsetCommit", "UNKNOWN_MEMBER_ID", must_strike=True),
        pytest.raises(CommitFailedError),
    ):
        work(first, 1)
    # The broker does not wait for a worker that is gone longer than its session lasts.
    kgw_broker.clock.advance(11)
    work(new_worker(), 1)
    assert [b"1", b"1"] == [record.key for record in kgw_broker.records("invoices")]


def test_a_worker_that_hangs_is_replaced(
    kgw_broker: Broker, new_worker: Callable[[], Billing]
) -> None:
    """Its session times out: by the broker's clock, without ten seconds of waiting."""
    hanging = new_worker()
    while not hanging.consumer.assignment():
        hanging.work()
    assert 1 == len(kgw_broker.members("billing"))
    kgw_broker.clock.advance(11)
    assert () == kgw_broker.members("billing")
    kgw_broker.produce("orders", [order(1)], partition=1)
    work(new_worker(), 1)
    assert [1] == billed(kgw_broker)
