"""What healthy gateways are busy with while they are scraped: every panel has something to show.

Producers of several codecs, a group that rebalances, a group that is behind, transactions that
commit and abort, an old client, topics that are compacted, cut, recompressed and relaxed, requests
that are refused, and publishers of the agent's API.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as ClientLibraryError
from kafka import KafkaProducer

from kgw.client import AdminClient, AsyncClient, ClientError, GroupClient
from kgw.protocol.messages.describe_cluster import DescribeClusterRequest
from tests import patience
from tests.agent.smq_client import AgentClient
from tests.monitoring.stage import client_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kgw.testing.process import GatewayProcess

_OFTEN_CLOSED = {"segment.ms": "2000", "segment.bytes": "20000"}
TOPICS: dict[str, dict[str, str]] = {
    "orders": {},
    "behind": {},
    "relaxed": {"kgw.durability": "relaxed"},
    "latest": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "1000",
        **_OFTEN_CLOSED,
    },
    "short": {"retention.bytes": "30000", **_OFTEN_CLOSED},
    "packed": {"compression.type": "zstd"},
    "cold": {
        "kgw.cold.compression": "zstd",
        "kgw.cold.compression.after.ms": "1000",
        **_OFTEN_CLOSED,
    },
}
SETTINGS = (
    "log.retention.check.interval.ms=2000",
    "kgw.metrics.labels=topic,partition,group",
)
ONLY_EMBEDDED = {"latest", "short", "cold", "relaxed"}
"""What a gateway over SeaweedFS is not asked for here: its own tests are elsewhere."""
_ENCODED = b"0123456789abcdef" * 16


async def prepare(gateway: GatewayProcess, topics: set[str]) -> None:
    """Create the topics."""
    async with client_of(gateway) as client:
        for name in sorted(topics):
            await AdminClient(client).create_topic(name, partitions=3, config=TOPICS[name])


async def be_busy(gateway: GatewayProcess, topics: set[str], seconds: float) -> None:
    """Keep a gateway busy for so long. Raises what a client did not expect."""
    until_s = time.monotonic() + seconds
    works: list[Coroutine[None, None, None]] = [
        *(_produce(gateway, topic, until_s) for topic in sorted(topics)),
        _consume(gateway, until_s),
        _join_and_leave(gateway, until_s),
        _be_behind(gateway),
        _transact(gateway, until_s),
        _ask_wrongly(gateway, until_s),
        asyncio.to_thread(_produce_as_of_old, gateway, until_s),
    ]
    if gateway.agent_port:
        works.append(_publish(gateway, until_s))
    await asyncio.gather(*works)


async def _produce(gateway: GatewayProcess, topic: str, until_s: float) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=gateway.bootstrap,
        compression_type="gzip" if topic == "orders" else None,
        linger_ms=5,
    )
    async with producer:
        number = 0
        while time.monotonic() < until_s:
            number += 1
            key = str(number % 50).encode()
            value = None if topic == "latest" and not number % 7 else _ENCODED
            await producer.send_and_wait(topic, value, key=key)
            await asyncio.sleep(0.005)


def _consumer(gateway: GatewayProcess, group: str, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=gateway.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=500,
        heartbeat_interval_ms=500,
    )


async def _consume(gateway: GatewayProcess, until_s: float) -> None:
    async with _consumer(gateway, "readers", "orders") as consumer:
        while time.monotonic() < until_s:
            await consumer.getmany(timeout_ms=500)


async def _join_and_leave(gateway: GatewayProcess, until_s: float) -> None:
    """Have the group of readers rebalance every few seconds."""
    while time.monotonic() < until_s:
        async with _consumer(gateway, "readers", "orders") as consumer:
            ends_s = min(until_s, time.monotonic() + 4)
            while time.monotonic() < ends_s:
                await consumer.getmany(timeout_ms=500)
        await asyncio.sleep(2)


async def _be_behind(gateway: GatewayProcess) -> None:
    """Commit the beginning of a topic, and read no more of it."""
    async with client_of(gateway) as client:
        await GroupClient(client).commit("late", {("behind", one): 0 for one in range(3)})


async def _transact(gateway: GatewayProcess, until_s: float) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=gateway.bootstrap, transactional_id=f"billing-{os.getpid()}"
    )
    async with producer:
        number = 0
        while time.monotonic() < until_s:
            await producer.begin_transaction()
            await producer.send_and_wait("orders", _ENCODED)
            number += 1
            if number % 4:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
            await asyncio.sleep(0.1)


async def _ask_wrongly(gateway: GatewayProcess, until_s: float) -> None:
    """Ask for what there is not, and have records deleted."""
    async with AsyncClient([(gateway.host, gateway.port)], retry_s=0) as client:
        while time.monotonic() < until_s:
            with suppress(ClientError):
                await client.request(DescribeClusterRequest(endpoint_type=7), version=1)
            _, high_watermark = (await client.bounds("orders", [0]))[0]
            await AdminClient(client).delete_records("orders", {0: max(0, high_watermark - 100)})
            await asyncio.sleep(1)


def _produce_as_of_old(gateway: GatewayProcess, until_s: float) -> None:
    """Produce as clients did before Kafka 0.11."""
    with suppress(ClientLibraryError):
        producer = KafkaProducer(bootstrap_servers=gateway.bootstrap, api_version=(0, 10, 0))
        while time.monotonic() < until_s:
            producer.send("behind", _ENCODED).get(timeout=patience.seconds(10))
            time.sleep(0.5)
        producer.close()


async def _publish(gateway: GatewayProcess, until_s: float) -> None:
    """Publish through the agent's API, a stream every few seconds."""
    async with AgentClient(gateway.agent_port) as agent:
        while time.monotonic() < until_s:
            publisher = await agent.publisher("published", partition_count=1)
            for number in range(20):
                await publisher.send(b"k", v=number)
                await publisher.answer()
                await asyncio.sleep(0.1)
            await publisher.close()
