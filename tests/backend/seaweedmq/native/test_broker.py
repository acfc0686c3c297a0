"""What a broker of SeaweedMQ is asked, and what its answers become: a scripted one over gRPC."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest

from kgw.backend.seaweedmq.native.broker import BrokerChannel, BrokerError
from kgw.backend.seaweedmq.native.messages import UnflushedEntry
from kgw.backend.seaweedmq.protos import filer_pb2, mq_broker_pb2, mq_broker_pb2_grpc, schema_pb2
from tests.backend.seaweedmq.channel.scripted import HOST
from tests.backend.seaweedmq.native.scripted import make_topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ORDERS = make_topic()


class Broker(mq_broker_pb2_grpc.SeaweedMessagingServicer):
    """Leads the one partition, and has some entries in memory."""

    def __init__(self) -> None:
        self.address = ""
        self.answers: list[mq_broker_pb2.GetUnflushedMessagesResponse] = []
        self.asked: list[int] = []

    async def LookupTopicBrokers(self, request: Any, context: Any) -> Any:  # noqa: N802
        partition = schema_pb2.Partition(**ORDERS.partitions[0]._asdict())
        assignment = mq_broker_pb2.BrokerPartitionAssignment(
            partition=partition, leader_broker=self.address
        )
        return mq_broker_pb2.LookupTopicBrokersResponse(broker_partition_assignments=[assignment])

    async def GetUnflushedMessages(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.asked.append(request.start_buffer_offset)
        for answer in self.answers:
            yield answer


@asynccontextmanager
async def served(broker: Broker) -> AsyncIterator[BrokerChannel]:
    """Serve a broker, and yield a client of it."""
    server = grpc.aio.server()
    broker.address = f"{HOST}:{server.add_insecure_port(f'{HOST}:0')}"
    mq_broker_pb2_grpc.add_SeaweedMessagingServicer_to_server(broker, server)
    await server.start()

    async def addresses() -> list[str]:
        return [broker.address]

    channel = BrokerChannel(addresses, grpc.aio.insecure_channel)
    try:
        yield channel
    finally:
        await channel.aclose()
        await server.stop(None)


def entry(offset: int, ts_ns: int) -> mq_broker_pb2.GetUnflushedMessagesResponse:
    """Return an answer with an entry."""
    return mq_broker_pb2.GetUnflushedMessagesResponse(
        message=filer_pb2.LogEntry(offset=offset, ts_ns=ts_ns)
    )


async def test_entries_in_memory_come_with_offset_and_time() -> None:
    """By these consumers get records before the broker writes them to a file, minutes later."""
    broker = Broker()
    end = mq_broker_pb2.GetUnflushedMessagesResponse(end_of_stream=True)
    broker.answers = [entry(7, 100), entry(8, 200), end]
    async with served(broker) as channel:
        assert [UnflushedEntry(7, 100), UnflushedEntry(8, 200)] == list(
            await channel.unflushed(ORDERS, 0, 7)
        )
    assert [7] == broker.asked


async def test_an_error_among_the_entries_is_one() -> None:
    """What came before it may not be all."""
    broker = Broker()
    broker.answers = [
        entry(7, 100),
        mq_broker_pb2.GetUnflushedMessagesResponse(error="not the leader"),
    ]
    async with served(broker) as channel:
        with pytest.raises(BrokerError, match="GetUnflushedMessages: not the leader"):
            await channel.unflushed(ORDERS, 0, 7)
