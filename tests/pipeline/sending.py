"""Records for topics of gateways in processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.client import NewRecord, Producer, TransactionalClient

if TYPE_CHECKING:
    from kgw.client import AsyncClient


async def send(
    client: AsyncClient, topic: str, count: int, *, partition: int = 0, value: bytes = b"value"
) -> None:
    """Store so many records, each with its number as its key and its time, in several batches."""
    async with Producer(client) as producer:
        for first in range(0, count, 1000):
            numbers = range(first, min(first + 1000, count))
            batch = [NewRecord(b"%d" % number, value, number) for number in numbers]
            await producer.send(topic, partition, batch)


async def send_aborted(client: AsyncClient, topic: str, *, partition: int = 0) -> None:
    """Have a record and the marker that aborts it take the next two offsets."""
    transactions = TransactionalClient(client)
    producer = await transactions.begin(f"{topic}-transaction", timeout_ms=10_000)
    async with Producer(client, transaction=producer) as sender:
        await sender.send(topic, partition, [NewRecord(b"k", b"aborted", 1)])
    await transactions.end(producer, is_commit=False)
