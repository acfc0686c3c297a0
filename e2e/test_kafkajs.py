"""KafkaJS commits -1 and -2 where it means the end and the start of a log."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import patience
from tests.interop.client import Client, Topic
from tests.interop.drivers.loop import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.testing.process import GatewayProcess

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

DRIVER = Path(__file__).with_name("javascript") / "driver.js"
TOPIC = "orders"
GROUP = "billing"
RECORDS = 10


@pytest.fixture
def kafkajs(tmp_path: Path) -> Iterator[Client]:
    """Gives a client with a driver of its own."""
    command = ["node", str(DRIVER)]
    log_path = tmp_path / "kafkajs.log"
    with closing(Client("kafkajs", command, cwd=DRIVER.parent, log_path=log_path)) as client:
        yield client


@pytest.fixture
def topic(kafkajs: Client, own_gateway: GatewayProcess, tmp_path: Path) -> Topic:
    """Gives a topic of one partition with ten records, of which a group has read three."""
    topic = Topic(kafkajs, own_gateway, TOPIC, partition=0)
    topic.create(partitions=1)
    topic.produce([Record(None, b"%d" % number, [], 0) for number in range(RECORDS)])
    undo = str(tmp_path / "undo.json")
    reset = ("groups", "reset-offsets", GROUP, "--topic", TOPIC, "--to-offset", "3")
    kgw(own_gateway, *reset, "--execute", "--undo-file", undo)
    return topic


def kgw(gateway: GatewayProcess, *arguments: str) -> Any:
    """Return what a command of kgw prints as JSON."""
    command = [sys.executable, "-m", "kgw", *arguments, "--bootstrap", gateway.bootstrap, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("earliest", "expected"), [(True, 0), (False, RECORDS)])
def test_reset_offsets(
    kafkajs: Client, own_gateway: GatewayProcess, topic: Topic, *, earliest: bool, expected: int
) -> None:
    """resetOffsets() comes to its end, and the group stands at the start or the end of the log."""
    answer = kafkajs.ask(
        "reset_offsets",
        bootstrap=own_gateway.bootstrap,
        group=GROUP,
        topic=topic.name,
        earliest=earliest,
    )
    assert [[0, expected]] == answer["offsets"]


def test_a_consumer_whose_offset_was_deleted_goes_on(
    kafkajs: Client, own_gateway: GatewayProcess, topic: Topic
) -> None:
    """After OFFSET_OUT_OF_RANGE it reads from the start of the log."""
    kgw(own_gateway, "topics", "delete-records", topic.name, "--before", "8", "--yes")
    kafkajs.open_member(
        "one", bootstrap=own_gateway.bootstrap, group=GROUP, topic=topic.name, strategy="range"
    )
    read: list[tuple[int, int]] = []
    limit = patience.Limit(60)
    while len(read) < 2 and not limit.is_over:
        read += kafkajs.poll_members(["one"])["one"][0]
    kafkajs.close_member("one")
    assert [(0, 8), (0, 9)] == read
