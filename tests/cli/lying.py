"""Batches that no producer would send, sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.client import AsyncClient
from kgw.errors import ErrorCode
from kgw.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def send(bootstrap: str, topic: str, batches: Sequence[bytes | bytearray]) -> list[int]:
    """Produce batches as they are to partition 0, one request each; return their base offsets."""
    host, _, port = bootstrap.rpartition(":")

    async def run() -> list[int]:
        offsets = []
        async with AsyncClient([(host, int(port))]) as client:
            connection = await client.any_connection()
            for batch in batches:
                data = PartitionProduceData(index=0, records=batch)
                request = ProduceRequest(
                    acks=-1,
                    timeout_ms=5000,
                    topic_data=[TopicProduceData(name=topic, partition_data=[data])],
                )
                answer = await connection.ask(request, ProduceResponse, version=9)
                (one,) = answer.responses[0].partition_responses
                assert ErrorCode.NONE == one.error_code, one.error_message
                offsets.append(one.base_offset)
        return offsets

    return asyncio.run(run())
