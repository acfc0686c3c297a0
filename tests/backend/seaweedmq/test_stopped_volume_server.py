"""A real SeaweedFS of which one volume server is there and does not answer (SIGSTOP)."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kgw.backend.seaweedmq.backend import SeaweedMqBackend
from kgw.backend.seaweedmq.channel.channel import FilerChannel
from kgw.backend.seaweedmq.channel.options import ChannelOptions
from kgw.backend.seaweedmq.offline.opening import state_directory
from kgw.backend.seaweedmq.state.store import ChainStateStore
from kgw.clock import SystemClock
from kgw.errors import ErrorCode
from kgw.metrics import Metrics
from kgw.problems import READS, VOLUME_SERVER
from kgw.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kgw.testing.gateway import InProcessGateway
from tests import patience
from tests.handlers.support import batch, create_topic, produce
from tests.seaweedfs.cluster import Cluster, Setup
from tests.seaweedfs.fixtures import seaweedfs_or_skip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

EACH = 20
NAMES = ("away", "here")


@asynccontextmanager
async def served(cluster: Cluster) -> AsyncIterator[InProcessGateway]:
    """Open a gateway that has read nothing yet."""
    clock = SystemClock()
    options = ChannelOptions(cluster.address("filer"), path="/topics/kafka/")
    channel = FilerChannel(options, clock, Metrics())
    state = ChainStateStore(channel, clock, state_directory("kafka"))
    backend = SeaweedMqBackend(channel, "kafka", state, None, clock)
    async with InProcessGateway(backend=backend, clock=clock) as gateway:
        await gateway.topic_manager.partitions.opened()
        yield gateway


async def fill(gateway: InProcessGateway, name: str) -> None:
    """Append a record to each partition of a new topic, as often as it takes."""
    await create_topic(gateway, name, EACH)
    async with asyncio.timeout(patience.seconds(30)):
        for index in range(EACH):
            while (await produce(gateway, batch(b"x" * 2_000), name=name, index=index)).error_code:
                pass


async def read(gateway: InProcessGateway, max_wait_ms: int) -> set[tuple[str, int]]:
    """Return the partitions that a Fetch of all has records of: the ones that hang come first."""
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                    for index in range(EACH)
                ],
            )
            for name in NAMES
        ],
    )
    response = await gateway.ask(request, 12, FetchResponse)
    places = [(topic.topic, one) for topic in response.responses for one in topic.partitions]
    assert {one.error_code for _, one in places} <= {
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
    return {(name, one.partition_index) for name, one in places if one.records}


async def test_what_it_has_holds_up_nothing_else(tmp_path: Path) -> None:
    """The others are read at once, it is named, and all is read when it goes on."""
    setup = Setup(volume_servers=2)
    with seaweedfs_or_skip():
        cluster = Cluster(tmp_path / "seaweedfs", setup)
    everything = {(name, index) for name in NAMES for index in range(EACH)}
    here = {one for one in everything if one[0] == "here"}
    with seaweedfs_or_skip(), cluster.running("master", "volume", "filer"):
        async with served(cluster) as gateway:
            await fill(gateway, "away")
            cluster.start("volume2")
            cluster.terminate("volume")
            await fill(gateway, "here")
        cluster.start("volume")
        async with served(cluster) as gateway:
            cluster.send_signal("volume", signal.SIGSTOP)
            try:
                found: set[tuple[str, int]] = set()
                async with asyncio.timeout(patience.seconds(10)):
                    while not found >= here:
                        found |= await read(gateway, round(1000 * patience.seconds(0.5)))
                assert here == found
                reasons: set[str] = set()
                async with asyncio.timeout(patience.seconds(20)):
                    while not reasons >= {READS.name, VOLUME_SERVER.name}:
                        problems = await gateway.gateway.problem_watch.look()
                        reasons = {one.reason.name for one in problems}
                        told = [one.text for one in problems if one.reason is VOLUME_SERVER]
                        await read(gateway, 100)
                assert cluster.address("volume") in told[0]
            finally:
                cluster.send_signal("volume", signal.SIGCONT)
            async with asyncio.timeout(patience.seconds(30)):
                while found != everything:
                    found |= await read(gateway, 500)
