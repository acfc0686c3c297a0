"""Reads transfers and writes the two bookings of each, exactly once.

Bookings and the offset of the transfer are in one transaction: readers of committed records see
both bookings or none, and no transfer is booked twice, whatever fails in between.
"""

from __future__ import annotations

import json
from typing import Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

GROUP = "bookings"


class RefusedTransferError(Exception):
    """A transfer that must not be booked."""


class Transfers:
    """One worker. A context manager."""

    def __init__(self, bootstrap: str, *, transactional_id: str = "bookings-1") -> None:
        self.consumer = AIOKafkaConsumer(
            "transfers",
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        self.producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=20_000,
        )

    async def __aenter__(self) -> Self:
        await self.producer.start()
        await self.consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.stop()
        await self.producer.stop()

    async def book_next(self) -> None:
        """Book one transfer. Raises RefusedTransferError, and books nothing then."""
        record = await self.consumer.getone()
        transfer = json.loads(record.value)
        async with self.producer.transaction():
            await self.book(transfer["from"], -transfer["amount"])
            if transfer["amount"] <= 0:
                raise RefusedTransferError(transfer)
            await self.book(transfer["to"], transfer["amount"])
            place = TopicPartition(record.topic, record.partition)
            await self.producer.send_offsets_to_transaction({place: record.offset + 1}, GROUP)

    async def book(self, account: str, amount: int) -> None:
        """Write one booking into the transaction."""
        await self.producer.send_and_wait("bookings", str(amount).encode(), key=account.encode())
