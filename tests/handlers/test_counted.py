"""What requests leave in the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.metrics import Histogram
from tests.handlers.support import batch, create_topic, fetch, fetch_request, produce

if TYPE_CHECKING:
    from kgw.testing.gateway import InProcessGateway


async def test_appended(gateway: InProcessGateway) -> None:
    """Batches, records and bytes of producers, in all topics together."""
    await create_topic(gateway, "orders")
    two, one = batch(b"a", b"b"), batch(b"c")
    size_bytes = len(two) + len(one)
    await produce(gateway, two)
    await produce(gateway, one)
    gateway.metrics.refresh()
    metrics = gateway.metrics
    assert (2, 3, size_bytes) == (
        metrics.appended_batches,
        metrics.appended_records,
        metrics.appended_bytes,
    )


async def test_fetched(gateway: InProcessGateway) -> None:
    """The bytes of the records in answers, and nothing for an empty one."""
    await create_topic(gateway, "orders")
    await produce(gateway, batch(b"a"))
    answer = await fetch(gateway, fetch_request())
    size_bytes = len(bytes(answer.records or b""))  # type: ignore[arg-type]
    assert 0 < size_bytes == gateway.metrics.fetched_bytes
    await fetch(gateway, fetch_request(offset=1))
    assert size_bytes == gateway.metrics.fetched_bytes


async def test_times(gateway: InProcessGateway) -> None:
    """A request counts once, when it is answered, with what it has waited for."""
    await create_topic(gateway, "orders")
    pending = gateway.start(fetch_request(max_wait_ms=2_000), 12)
    metrics = gateway.metrics
    metrics.refresh()
    assert ("FETCH" in metrics.request_times, metrics.waiting_fetches) == (False, 1)
    gateway.manual_clock.advance(2)
    await pending.response()
    metrics.refresh()
    expected = Histogram()
    expected.observe(2.0)
    found = metrics.request_times["FETCH"]
    assert (expected.counts, 2.0) == (found.counts, found.sum_s)
    assert 0 == metrics.waiting_fetches
