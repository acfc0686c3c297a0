"""A compacted topic as Streams and Connect use one: the newest record of each key, in order."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from kgw.client import AdminClient, AsyncClient
from kgw.records.batch import split_batches
from kgw.testing.process import GatewayProcess
from tests.interop.client import Topic
from tests.interop.drivers.loop import Record
from tests.interop.libraries import PYTHON
from tests.interop.scenario import START_MS, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.client import Client

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

TOPIC = "states"
KEYS = 20
UPDATES = 400
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
    # The active segment is closed after that, and compacted like the others.
    "max.compaction.lag.ms": "500",
}


@pytest.fixture
def compacting_gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that compacts several times a second."""
    settings = ("log.cleaner.backoff.ms=200", "log.initial.task.delay.ms=0")
    with GatewayProcess(tmp_path / "data", *settings) as gateway:
        yield gateway


def updates() -> list[Record]:
    """Updates of some keys in no particular order; a few keys are deleted in the end."""
    return [
        Record(
            b"key %d" % (number * 7 % KEYS),
            None if number > UPDATES - 4 else b"value %d " % number + b"." * 100,
            [("number", b"%d" % number)],
            START_MS + number,
            number,
        )
        for number in range(UPDATES)
    ]


def newest(records: list[Record]) -> list[Record]:
    """Return the last record of each key, in the order of their offsets."""
    last = {record.key: record for record in records}
    return sorted(last.values(), key=lambda record: record.offset)


async def stored_count(gateway: GatewayProcess) -> int:
    """Return how many records the partition holds."""
    async with AsyncClient([(gateway.host, gateway.port)]) as client:
        count = offset = 0
        while True:
            (part,) = await client.fetch(TOPIC, {0: offset}, max_wait_ms=0)
            batches = split_batches(part.records)
            count += sum(batch.record_count for batch in batches)
            if not batches or batches[-1].next_offset >= part.high_watermark:
                return count
            offset = batches[-1].next_offset


async def create(gateway: GatewayProcess) -> None:
    """Create the topic."""
    async with AsyncClient([(gateway.host, gateway.port)]) as client:
        await AdminClient(client).create_topic(TOPIC, partitions=1, config=SETTINGS)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("name", PYTHON)
def test_the_newest_of_each_key_is_read_in_order(
    clients: Callable[[str], Client], compacting_gateway: GatewayProcess, name: str, codec: str
) -> None:
    """After compaction, after a kill, and after more updates and another compaction."""
    gateway = compacting_gateway
    topic = Topic(clients(name), gateway, TOPIC, 0)
    asyncio.run(create(gateway))
    expected: list[Record] = []
    for _ in range(2):
        sent = updates()
        offsets = topic.produce(sent, codec, idempotent=name != "kafka-python-2")
        expected = newest(expected + stored(sent, offsets))
        deadline = time.monotonic() + 30
        while (count := asyncio.run(stored_count(gateway))) != len(expected):
            assert time.monotonic() < deadline, f"{count} records are stored"
            time.sleep(0.1)
        gateway.kill()
        gateway.start()
        assert expected == topic.consume(0, len(expected))
    # A reader in the middle of what is gone gets the next record there is.
    later = [one for one in expected if one.offset > expected[0].offset]
    assert later == topic.consume(expected[0].offset + 1, len(later))
