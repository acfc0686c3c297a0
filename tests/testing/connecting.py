"""A plain connection to a broker of tests, which hides nothing of what the broker does."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kgw.client import Connection, client_security
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kgw.testing.batches import make_batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kgw.testing.broker import Broker


@asynccontextmanager
async def connected(
    broker: Broker, client_id: str = "tester", user: str | None = None
) -> AsyncIterator[Connection]:
    """Give a connection to the broker, and close it."""
    security = client_security(broker.client_config(user))
    connection = await Connection.open(
        "127.0.0.1", broker.port, client_id=client_id, security=security
    )
    try:
        yield connection
    finally:
        await connection.aclose()


def produce_to(*places: tuple[str, int], acks: int = -1) -> ProduceRequest:
    """Return a request that appends one record to each of some partitions."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=partition, records=make_batch([b"x"]).buffer)
                ],
            )
            for topic, partition in places
        ],
    )


def fetch_from(
    *places: tuple[str, int], epoch: int = -1, session_id: int = 0, max_wait_ms: int = 0
) -> FetchRequest:
    """Return a request for the records of some partitions, from the first one on."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=epoch,
        session_id=session_id,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
                ],
            )
            for topic, partition in places
        ],
    )
