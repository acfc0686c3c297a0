"""Groups that come back to a SeaweedFS after thirty days, to gateways that have never seen them.

What a clock that stands still can tell of thirty days is in tests/test_thirty_days.py.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_STORED, Consumer, TopicPartition

from kgw.client import AdminClient, AsyncClient, GroupClient
from kgw.testing.batches import make_batch
from kgw.testing.process import GatewayProcess
from tests.agent.smq_client import RESUME_OR_EARLIEST, AgentClient
from tests.campaigns.jumping_serve import CLOCK_FILE, last_retention, set_clock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.seaweedfs.fixtures import NewSeaweedfs

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(180)]

TOPIC = "orders"
PARTITIONS = 3
RECORDS = 120
GROUPS = 100
DAYS_MS = 30 * 86_400_000
TIMEOUT_S = 30.0
SETTINGS = (
    "log.initial.task.delay.ms=0",
    "log.retention.check.interval.ms=100",
    "offsets.retention.check.interval.ms=100",
    "kgw.smq.agent.listener=127.0.0.1:0",
)
JUMPING = (sys.executable, "-m", "tests.campaigns.jumping_serve", "serve", "--take-over")
SILENT = logging.getLogger("resumption")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def offset_of(group: int, partition: int) -> int:
    """Return where a group is in a partition: at the beginning, at the end, and between."""
    return (group * 7 + partition) % (RECORDS + 1)


def client_of(gateway: GatewayProcess) -> AsyncClient:
    """Return a client of a gateway, not yet open."""
    return AsyncClient([(gateway.host, gateway.port)])


async def write(client: AsyncClient, first: int) -> None:
    """Write as many records as a partition begins with, to each partition."""
    for partition in range(PARTITIONS):
        values = [b"%d" % number for number in range(first, first + RECORDS)]
        produced = await client.produce(TOPIC, partition, make_batch(values).buffer)
        assert first == produced.base_offset


async def begin(gateway: GatewayProcess) -> None:
    """Write records, and commit for every group."""
    async with client_of(gateway) as client:
        config = {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
        await AdminClient(client).create_topic(TOPIC, partitions=PARTITIONS, config=config)
        await write(client, 0)
        groups = GroupClient(client)
        for group in range(GROUPS):
            offsets = {(TOPIC, index): offset_of(group, index) for index in range(PARTITIONS)}
            await groups.commit(f"group-{group}", offsets)


async def go_on(gateway: GatewayProcess) -> None:
    """Write more, thirty days later, and look at what is committed."""
    async with client_of(gateway) as client:
        await write(client, RECORDS)
        thirty_days_later_ms = int(time.time() * 1000) + DAYS_MS - 3_600_000
        found = await client.list_offsets(
            TOPIC, dict.fromkeys(range(PARTITIONS), thirty_days_later_ms)
        )
        assert [RECORDS] * PARTITIONS == [found[index].offset for index in range(PARTITIONS)]
        groups = GroupClient(client)
        for group in range(GROUPS):
            offsets = await groups.offsets(f"group-{group}")
            assert {(TOPIC, index): offset_of(group, index) for index in range(PARTITIONS)} == {
                place: one.offset for place, one in offsets.items()
            }


def first_records(gateway: GatewayProcess, group: str) -> dict[int, tuple[int, bytes]]:
    """Return offset and value of the record of each partition with which a consumer goes on."""
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        },
        logger=SILENT,
    )
    consumer.assign([TopicPartition(TOPIC, index, OFFSET_STORED) for index in range(PARTITIONS)])
    found: dict[int, tuple[int, bytes]] = {}
    while len(found) < PARTITIONS:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.setdefault(message.partition(), (message.offset(), message.value()))
    consumer.close()
    return found


async def read_by_agent(gateway: GatewayProcess, group: str, count: int) -> Counter[int]:
    """Return how often each offset is among the first records of a subscription of SMQ's agent."""
    async with AgentClient(gateway.agent_port) as agent:
        subscriber = await agent.subscribe(
            TOPIC,
            consumer_group=group,
            offset_type=RESUME_OR_EARLIEST,
            sliding_window_size=count,
        )
        return Counter(record.offset for record in await subscriber.take(count))


def check_agent(gateway: GatewayProcess, group: str, first: Sequence[int]) -> None:
    """A subscription has every record of each partition from an offset on, and no other."""
    expected = Counter(offset for begin in first for offset in range(begin, 2 * RECORDS))
    assert expected == asyncio.run(read_by_agent(gateway, group, expected.total()))


def test_a_hundred_groups_resume_after_thirty_days(
    new_seaweedfs: NewSeaweedfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything has stopped meanwhile; each goes on at its offset, two gateways later."""
    cluster = new_seaweedfs()
    clock = tmp_path / "clock"
    set_clock(clock, 0, 0)
    monkeypatch.setenv(CLOCK_FILE, str(clock))
    first, second, third = (
        GatewayProcess(tmp_path / name, *SETTINGS, command=JUMPING, backend=cluster.url("kafka"))
        for name in ("first", "second", "third")
    )
    with first:
        asyncio.run(begin(first))
    cluster.stop(signal.SIGKILL)
    cluster.start()
    set_clock(clock, 1, DAYS_MS)
    second.start()
    asyncio.run(go_on(second))
    while last_retention(clock) < 1:
        pass
    second.kill()
    with third:
        names = [f"group-{group}" for group in range(GROUPS)]
        with ThreadPoolExecutor(8) as threads:
            resumed = [*threads.map(partial(first_records, third), names)]
        for group, found in enumerate(resumed):
            offsets = [offset_of(group, index) for index in range(PARTITIONS)]
            assert {index: (one, b"%d" % one) for index, one in enumerate(offsets)} == found
        check_agent(third, "group-5", [offset_of(5, index) for index in range(PARTITIONS)])
        check_agent(third, "new", [0] * PARTITIONS)
