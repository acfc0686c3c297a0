"""Retention in a server of its own, with a disk under it and kills in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kgw.client import AdminClient, AsyncClient, NewRecord, Producer, ServerRefusedError
from kgw.client.values import EARLIEST, LATEST
from kgw.testing.process import GatewayProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

RECORDS = 60


async def bounds(client: AsyncClient) -> tuple[int, int]:
    """Return both ends of the topic's partition."""
    earliest = await client.list_offsets("old", {0: EARLIEST})
    latest = await client.list_offsets("old", {0: LATEST})
    return earliest[0].offset, latest[0].offset


async def emptied(client: AsyncClient) -> None:
    """Return when nothing is left: the server's clock is its own."""
    while True:
        if await bounds(client) == (RECORDS, RECORDS):
            return
        await asyncio.sleep(0.05)


async def produce(client: AsyncClient, count: int) -> None:
    """Send old records, each in a batch of its own."""
    async with Producer(client) as producer:
        for number in range(count):
            await producer.send("old", 0, [NewRecord(b"key", b"v" * 50, 1000 + number)])


def test_what_has_expired_is_gone_for_good(tmp_path: Path) -> None:
    """Removed while the server runs, out of range after kill -9, and the next offset follows."""
    settings = ("log.retention.check.interval.ms=200", "log.initial.task.delay.ms=0")

    async def expire(port: int) -> None:
        async with AsyncClient([("127.0.0.1", port)]) as client:
            admin = AdminClient(client)
            await admin.create_topic("old", partitions=1, config={"segment.bytes": "1024"})
            await produce(client, RECORDS)
            assert (0, RECORDS) == await bounds(client)
            await admin.alter_settings(
                2, "old", {"retention.ms": "3600000", "file.delete.delay.ms": "0"}
            )
            async with asyncio.timeout(15):
                await emptied(client)

    async def check(port: int) -> None:
        async with AsyncClient([("127.0.0.1", port)]) as client:
            assert (RECORDS, RECORDS) == await bounds(client)
            with pytest.raises(ServerRefusedError, match="OFFSET_OUT_OF_RANGE"):
                await client.fetch("old", {0: RECORDS - 1})
            await produce(client, 1)
            assert RECORDS + 1 == (await bounds(client))[1]

    with GatewayProcess(tmp_path / "data", *settings) as gateway:
        asyncio.run(expire(gateway.port))
        gateway.kill()
        # Files may have been left between the new log start and their removal.
        gateway.start()
        left = [path for path in tmp_path.glob("data/partitions/*/*.log") if path.stat().st_size]
        assert [] == left
        asyncio.run(check(gateway.port))
