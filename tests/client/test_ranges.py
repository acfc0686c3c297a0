from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.memory import MemoryPartitionLog
from kgw.client import AdminClient, AsyncClient, EpochRange, describe_ranges
from kgw.records.builder import BatchBuilder
from tests.client.serving import ServedGateway

if TYPE_CHECKING:
    from kgw.gateway import Gateway


def batch(timestamp_ms: int) -> bytearray:
    """Return a batch of one record."""
    builder = BatchBuilder()
    builder.add(value=b"v", timestamp_ms=timestamp_ms)
    return builder.build()


def raise_epoch(gateway: Gateway, name: str) -> None:
    """Begin another leader epoch in a topic's first partition, as an unclean stop and a start do.

    A start finds no answers that were kept, either.
    """
    topic = gateway.catalog.get(name)
    assert topic is not None
    log = topic.partitions[0].log
    assert isinstance(log, MemoryPartitionLog)
    log._contents.raise_epoch()
    gateway.catalog.encoded.forget(topic)


async def test_epochs_are_listed_back_from_the_current_one() -> None:
    """Each with the offset at which it ended; those that wrote nothing are passed."""
    async with (
        ServedGateway() as served,
        await AsyncClient.connect(served.host, served.port) as client,
    ):
        await AdminClient(client).create_topic("events", partitions=2)
        for epoch in range(4):
            if epoch != 2:
                await client.produce("events", 0, batch(1000 - epoch))
            raise_epoch(served.gateway, "events")
        await AdminClient(client).delete_records("events", {0: 1})
        first, second = await describe_ranges(client, "events", [0, 1])
        assert (1, 3, 3, 3, 2) == (
            first.log_start_offset,
            first.high_watermark,
            first.last_stable_offset,
            first.end_offset,
            first.offset_count,
        )
        assert (999, 999) == (first.first_timestamp_ms, first.greatest_timestamp_ms)
        assert EpochRange(4, 3) == first.epochs[0]
        assert (EpochRange(1, 2), EpochRange(0, 1)) == first.epochs[-2:]
        assert (EpochRange(0, 0),) == second.epochs


async def test_no_more_epochs_are_asked_for_than_are_shown() -> None:
    """Each costs a request, and every unclean stop begins one."""
    async with (
        ServedGateway() as served,
        await AsyncClient.connect(served.host, served.port) as client,
    ):
        await AdminClient(client).create_topic("events")
        for _ in range(40):
            await client.produce("events", 0, batch(5))
            raise_epoch(served.gateway, "events")
        (found,) = await describe_ranges(client, "events", [0])
        assert list(range(40, 24, -1)) == [one.leader_epoch for one in found.epochs]
