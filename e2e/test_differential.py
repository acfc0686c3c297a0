"""A real Apache Kafka 4.4 and a kgw process, asked the same: some 7,000 requests of all APIs.

Kafka is one node without an authoriser; it needs a JDK and Maven (bench/kafka-broker.sh). With
KGW_RECORD_DIFFERENTIAL set what Kafka answers is written to tests/differential, where
test_kafka_answers.py compares kgw with it in a few seconds.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kgw.testing.process import GatewayProcess
from tests import patience
from tests.differential.asking import answers, kept, write
from tests.differential.listed import judge
from tests.differential.requests import PLANS
from tests.differential.servers import Server, Tcp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.protocol.api_keys import ApiKey
    from tests.differential.requests import Case

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(1_800)]

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "bench/kafka-broker.sh"
CACHE = ROOT / ".cache"
SETTINGS = (
    "auto.create.topics.enable=false",
    "group.initial.rebalance.delay.ms=0",
    # The records are from 2023.
    "log.retention.ms=-1",
)
SETTLE_S = 0.03


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Kafka that nobody has asked anything."""
    folder = tmp_path_factory.mktemp("kafka")
    port, controller_port = _free_ports()
    environment = {**os.environ, "KAFKA_HEAP_OPTS": "-Xmx700M -Xms300M"}
    command: list[str | Path] = [SCRIPT, CACHE, folder / "data", str(port), str(controller_port)]
    command += [*SETTINGS, "transaction.state.log.num.partitions=1"]
    subprocess.run([SCRIPT, CACHE], check=True, stdout=subprocess.DEVNULL)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        limit = patience.Limit(90)
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                assert not limit.is_over, "Kafka did not get ready"
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def kgw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a gateway that is set up as Kafka is."""
    gateway = GatewayProcess(tmp_path_factory.mktemp("kgw") / "data", "node.id=1", *SETTINGS)
    gateway.start()
    yield gateway.port
    gateway.stop()


@pytest.mark.parametrize("api", PLANS, ids=lambda api: api.name)
def test_both_answer_alike(kafka: int, kgw: int, api: ApiKey) -> None:
    """To all requests of an API, but for what is listed; and Kafka as it was heard before."""
    theirs = asyncio.run(_ask(Tcp(kafka, SETTLE_S), api))
    ours = asyncio.run(_ask(Tcp(kgw), api))
    if os.environ.get("KGW_RECORD_DIFFERENTIAL"):
        write(api, theirs)
    unlisted = [
        f"{case.name}: {line}"
        for (case, told), (_, answer) in zip(theirs, ours, strict=True)
        for line, row in judge(api.name, case.name, told, answer)
        if row is None
    ]
    assert [] == unlisted
    assert [told for _, told in kept(api)] == [told for _, told in theirs]


async def _ask(transport: Tcp, api: ApiKey) -> list[tuple[Case, Any]]:
    server = Server(transport)
    await server.meet()
    found = await answers(server, api)
    await transport.aclose()
    return found
