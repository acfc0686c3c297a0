"""A real Kafka and a gateway that looks like it, for tests that ask both the same."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.harness.servers import KafkaServer, fetch_kafka
from kgw.errors import ErrorCode
from kgw.protocol.api_keys import ApiKey
from kgw.protocol.framing import decode_response, request_frame
from tests import patience
from tests.handlers.features_off import NODE, PARTITIONS, TOPIC
from tests.handlers.support import request_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.testing.process import GatewayProcess
    from tests.interop.libraries import NewGateway

CACHE = Path(__file__).parents[1] / ".cache"


async def exchange(bootstrap: str, frames: list[bytes]) -> list[bytes]:
    """Send requests over a connection each, and return the frames of the answers."""
    host, port = bootstrap.rsplit(":", 1)
    answers = []
    for frame in frames:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answers.append(await reader.readexactly(size))
        writer.close()
    return answers


def ask(bootstrap: str, api_key: ApiKey, version: int, **fields: Any) -> Any:
    """Send one request whose structures are given as dictionaries, and return the response."""
    frame = b"".join(request_frame(request_of(api_key, **fields), version, 1, "kgw-test"))[4:]
    (answer,) = asyncio.run(exchange(bootstrap, [frame]))
    return decode_response(answer, api_key, version)[1]


def make_topic(bootstrap: str) -> None:
    """Create the topic as soon as the server takes topics."""
    topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
    done = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    limit = patience.Limit(60)
    while True:
        created = ask(bootstrap, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=10_000)
        if created.topics[0].error_code in done and described(bootstrap):
            return
        assert not limit.is_over


def described(bootstrap: str) -> bool:
    """Whether every partition has a leader."""
    metadata = ask(bootstrap, ApiKey.METADATA, 8, topics=[{"name": TOPIC}])
    partitions = metadata.topics[0].partitions
    return len(partitions) == PARTITIONS and all(one.leader_id == NODE for one in partitions)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka that has the consumer group protocol off."""
    fetch_kafka(CACHE)
    server = KafkaServer(
        "kafka",
        tmp_path_factory.mktemp("kafka") / "data",
        "group.coordinator.rebalance.protocols=classic",
        cache_dir=CACHE,
    )
    server.start()
    try:
        make_topic(server.bootstrap)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def one_node(
    new_gateway: NewGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway with the same node id and the same topic."""
    directory = tmp_path_factory.mktemp("gateway")
    with new_gateway(directory / "data", f"node.id={NODE}") as process:
        make_topic(process.bootstrap)
        yield process
