"""Topics of a real broker of SeaweedMQ, read and written by Kafka's requests; and ours under it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from grpc.aio import insecure_channel

from kgw.backend.registry import open_backend
from kgw.backend.seaweedmq.partition_log import SeaweedMqPartitionLog
from kgw.backend.seaweedmq.protos import mq_broker_pb2, mq_broker_pb2_grpc, schema_pb2
from kgw.clock import SystemClock
from kgw.config import load_config
from kgw.errors import ErrorCode
from kgw.testing.batches import StoredRecord, read_stored
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.handlers.support import batch, create_topic, fetch, fetch_request, produce
from tests.seaweedfs.cluster import Setup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.seaweedfs.cluster import Cluster
    from tests.seaweedfs.fixtures import NewSeaweedfs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

DEADLINE_S = 30


class NativeClient:
    """A publisher of SeaweedMQ's own, which knows nothing of Kafka."""

    def __init__(self, stub: mq_broker_pb2_grpc.SeaweedMessagingStub, namespace: str) -> None:
        self.stub = stub
        self.namespace = namespace

    def topic(self, name: str) -> schema_pb2.Topic:
        """Return a topic of this namespace."""
        return schema_pb2.Topic(namespace=self.namespace, name=name)

    async def create(self, name: str, partitions: int) -> None:
        """Make a topic."""
        await self.stub.ConfigureTopic(
            mq_broker_pb2.ConfigureTopicRequest(topic=self.topic(name), partition_count=partitions)
        )

    async def publish(
        self, name: str, values: Sequence[bytes], *, partition: int = 0, ts_ns: int = 0
    ) -> list[int]:
        """Publish to a partition, leave, and return the offsets."""
        request = mq_broker_pb2.LookupTopicBrokersRequest(topic=self.topic(name))
        answer = await self.stub.LookupTopicBrokers(request)
        partitions = sorted(
            (one.partition for one in answer.broker_partition_assignments),
            key=lambda one: one.range_start,
        )
        stream = self.stub.PublishMessage()
        init = mq_broker_pb2.PublishMessageRequest.InitMessage(
            topic=self.topic(name), partition=partitions[partition], publisher_name="sensor"
        )
        await stream.write(mq_broker_pb2.PublishMessageRequest(init=init))
        hello = await stream.read()
        assert not hello.error_code, hello
        offsets = []
        for number, value in enumerate(values):
            message = mq_broker_pb2.DataMessage(
                key=b"k", value=value, ts_ns=ts_ns + number if ts_ns else 0
            )
            await stream.write(mq_broker_pb2.PublishMessageRequest(data=message))
            offsets.append((await stream.read()).assigned_offset)
        await stream.done_writing()
        while isinstance(await stream.read(), mq_broker_pb2.PublishMessageResponse):
            pass
        return offsets


@asynccontextmanager
async def native_client(cluster: Cluster, namespace: str) -> AsyncIterator[NativeClient]:
    """Connect to a broker."""
    async with insecure_channel(cluster.grpc_address("broker")) as channel:
        yield NativeClient(mq_broker_pb2_grpc.SeaweedMessagingStub(channel), namespace)


@asynccontextmanager
async def serving(
    cluster: Cluster, namespace: str, **settings: str
) -> AsyncIterator[InProcessGateway]:
    """Serve a namespace of kgw's own, and the topics of another."""
    clock = SystemClock()
    given = {
        "kgw.backend": cluster.url(f"{namespace}-kgw"),
        "kgw.seaweedmq.native": f"{namespace}.*,{namespace}-kgw.*",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    config = load_config(overrides=[(name, text, "the test") for name, text in given.items()])
    backend = open_backend(config, clock)
    async with InProcessGateway(config, backend, clock) as gateway:
        yield gateway


async def records_of(
    gateway: InProcessGateway, name: str, count: int, *, index: int = 0
) -> list[StoredRecord]:
    """Wait for so many records of a partition, and return them."""
    found: list[StoredRecord] = []
    async with asyncio.timeout(patience.seconds(DEADLINE_S)):
        while len(found) < count:
            offset = found[-1].offset + 1 if found else 0
            request = fetch_request(offset, name=name, index=index, max_wait_ms=1_000)
            answer = await fetch(gateway, request)
            assert ErrorCode.NONE == answer.error_code
            records: Any = answer.records
            found += [
                one for one in read_stored([records] if records else []) if one.offset >= offset
            ]
    return found


async def test_what_others_publish_is_read(seaweedfs_broker: Cluster) -> None:
    """Every partition, from the files that there are and those that come, with its own offsets."""
    namespace = seaweedfs_broker.new_namespace()
    async with native_client(seaweedfs_broker, namespace) as client:
        await client.create("heat", 2)
        await client.publish("heat", [b"%d" % number for number in range(50)])
        await client.publish("heat", [b"x"], partition=1)
        async with serving(seaweedfs_broker, namespace) as gateway:
            name = f"{namespace}.heat"
            before = await records_of(gateway, name, 50)
            await client.publish("heat", [b"%d" % number for number in range(50, 300)])
            found = before + (await records_of(gateway, name, 300))[50:]
            assert [(n, b"%d" % n, b"k") for n in range(300)] == [
                (one.offset, one.value, one.key) for one in found
            ]
            assert [b"x"] == [one.value for one in await records_of(gateway, name, 1, index=1)]
            assert () == gateway.backend.health.problems


@pytest.mark.parametrize("acks", ["filer", "broker"])
async def test_kafka_clients_write(seaweedfs_broker: Cluster, acks: str) -> None:
    """What is acknowledged has the offsets that are read, beside what others publish."""
    namespace = seaweedfs_broker.new_namespace()
    settings = {"kgw_seaweedmq_native_write": "true", "kgw_seaweedmq_acks": acks}
    async with native_client(seaweedfs_broker, namespace) as client:
        await client.create("heat", 1)
        async with serving(seaweedfs_broker, namespace, **settings) as gateway:
            name = f"{namespace}.heat"
            first = await produce(gateway, batch(b"a", b"b"), name=name)
            await client.publish("heat", [b"c"])
            second = await produce(gateway, batch(b"d"), name=name)
            assert [(ErrorCode.NONE, 0), (ErrorCode.NONE, 3)] == [
                (one.error_code, one.base_offset) for one in (first, second)
            ]
            found = await records_of(gateway, name, 4)
            assert [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")] == [
                (one.offset, one.value) for one in found
            ]
            assert () == gateway.backend.health.problems


@pytest.mark.full
async def test_a_broker_is_killed_in_the_middle_of_it(new_seaweedfs: NewSeaweedfs) -> None:
    """With acks=filer nothing acknowledged is lost, and no offset is given out again."""
    cluster = new_seaweedfs(Setup(has_broker=True))
    async with native_client(cluster, "ns") as client:
        await client.create("heat", 1)
    acknowledged: dict[int, bytes] = {}
    async with serving(cluster, "ns", kgw_seaweedmq_native_write="true") as gateway:

        async def write(number: int) -> None:
            value = b"%d" % number
            answer = await produce(gateway, batch(value), name="ns.heat")
            if answer.error_code == ErrorCode.NONE:
                assert answer.base_offset not in acknowledged
                acknowledged[answer.base_offset] = value

        await asyncio.gather(*map(write, range(20)))
        waiting = [asyncio.ensure_future(write(number)) for number in range(20, 40)]
        await asyncio.sleep(0)
        await asyncio.to_thread(cluster.kill, "broker")
        await asyncio.to_thread(cluster.start, "broker")
        async with asyncio.timeout(patience.seconds(90)):
            while len(acknowledged) < 21:
                await write(100)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        end = max(acknowledged)
        found: dict[int, bytes] = {}
        async with asyncio.timeout(patience.seconds(DEADLINE_S)):
            while not found or max(found) < end:
                found = {
                    one.offset: one.value
                    for one in await records_of(gateway, "ns.heat", len(found) + 1)
                }
        assert acknowledged.items() <= found.items()
        assert () == gateway.backend.health.problems


async def test_a_broker_publishes_to_a_topic_of_ours(seaweedfs_broker: Cluster) -> None:
    """Nothing of ours is harmed, and what was written beside it is named."""
    namespace = seaweedfs_broker.new_namespace()
    async with (
        native_client(seaweedfs_broker, f"{namespace}-kgw") as client,
        serving(seaweedfs_broker, namespace) as gateway,
    ):
        await create_topic(gateway, "orders")
        await produce(gateway, batch(b"a"), name="orders")
        # In the second of our file, in which the broker adds to what it finds there; and later.
        log = gateway.catalog.topics["orders"].partitions[0].log
        assert isinstance(log, SeaweedMqPartitionLog)
        (segment,) = await log.segments()
        await client.publish("orders", [b"theirs"], ts_ns=segment.begun_ms * 1_000_000)
        await produce(gateway, batch(b"b"), name="orders")
        await client.publish("orders", [b"theirs again"] * 5)
        await gateway.checkpoint()
        assert 1 == len(gateway.backend.health.problems)
    async with serving(seaweedfs_broker, namespace) as gateway:
        answer = await produce(gateway, batch(b"c"), name="orders")
        assert 2 == answer.base_offset
        assert [b"a", b"b", b"c"] == [one.value for one in await records_of(gateway, "orders", 3)]
        await gateway.checkpoint()
        (problem,) = gateway.backend.health.problems
        assert "not written by kgw, and not read" in problem
