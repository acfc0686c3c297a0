"""Cold segments in zstd, read by clients of today, by those that know no zstd, and by old ones."""

from __future__ import annotations

import json
import logging
import warnings
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import patience

with warnings.catch_warnings():
    # It reads its definitions with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as KafkaTopicPartition


if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.testing.process import GatewayProcess
    from tests.interop.libraries import NewGateway

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

TIMEOUT_S = 30.0
TOPIC = "cold"
START_MS = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
A_CODEC = 200
LIBRDKAFKA: dict[str, dict[str, Any]] = {
    "today": {},
    "0.11": {"api.version.request": False, "broker.version.fallback": "0.11.0.0"},
    "0.10": {"api.version.request": False, "broker.version.fallback": "0.10.0"},
    "0.9": {"api.version.request": False, "broker.version.fallback": "0.9.0"},
}
"""What each takes the broker for: it fetches in a version that such a broker has."""
_SILENT = logging.getLogger("cold_compression")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

Sent = tuple[bytes | None, bytes]


def record(codec: str, number: int) -> Sent:
    """Return key and value of one record: a line as logs have it."""
    line = f"{START_MS + number} INFO {codec} user-{number % 17} requested /orders/{number} 200 "
    return None if number % 5 == 0 else b"k%d" % number, line.encode() * 3


def expected(*codecs: str) -> list[Sent]:
    """Return what has been written in some codecs."""
    return [record(codec, number) for codec in codecs for number in range(A_CODEC)]


@pytest.fixture(scope="module")
def gateway(
    new_gateway: NewGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway whose closed segments are in zstd; the last one, which is written to, is not."""
    with new_gateway(
        tmp_path_factory.mktemp("cold") / "data",
        "kgw.admin.listeners=127.0.0.1:0",
        "kgw.cold.compression=zstd",
        "kgw.cold.compression.after.ms=0",
        "log.initial.task.delay.ms=0",
        "log.cleaner.backoff.ms=200",
        "log.segment.bytes=8192",
    ) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap}, logger=_SILENT)
        for future in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            future.result(patience.seconds(TIMEOUT_S))
        for codec in CODECS:
            producer = Producer(
                {
                    "bootstrap.servers": process.bootstrap,
                    "compression.type": codec,
                    "linger.ms": 20,
                    "batch.num.messages": 10,
                },
                logger=_SILENT,
            )
            for key, value in expected(codec):
                producer.produce(TOPIC, value, key, partition=0)
            assert 0 == producer.flush(TIMEOUT_S)
        until_cold(process)
        yield process


def until_cold(process: GatewayProcess) -> None:
    """Wait until what was written without compression, in gzip, snappy and lz4 has been tried."""
    limit = patience.Limit(60)
    while (row := state(process))["recompressed_end"] < 4 * A_CODEC:
        assert not limit.is_over, row


def state(process: GatewayProcess) -> dict[str, int]:
    """Return what the admin side says of the partition."""
    url = f"http://127.0.0.1:{process.admin_port}/api/v1/offsets?topic={TOPIC}"
    with urlopen(url, timeout=patience.seconds(TIMEOUT_S)) as page:
        (row,) = json.load(page)["partitions"]
    found: dict[str, int] = row
    return found


def test_what_it_saved_is_shown(gateway: GatewayProcess) -> None:
    """On the admin side, by partition and by metric."""
    row = state(gateway)
    saved = row["recompressed_bytes_before"] - row["recompressed_bytes_after"]
    assert saved > row["recompressed_bytes_before"] // 3
    # A run is counted when it has come to its end.
    line = f'kgw_cold_bytes_total{{form="before"}} {row["recompressed_bytes_before"]}.0'
    limit = patience.Limit(TIMEOUT_S)
    while line not in (found := metrics(gateway)):
        assert not limit.is_over, found


def metrics(gateway: GatewayProcess) -> list[str]:
    """Return the lines about cold segments."""
    with urlopen(
        f"http://127.0.0.1:{gateway.admin_port}/metrics", timeout=patience.seconds(TIMEOUT_S)
    ) as page:
        lines = page.read().decode().splitlines()
    return [line for line in lines if line.startswith("kgw_cold_")]


@pytest.mark.parametrize("version", LIBRDKAFKA)
def test_librdkafka(gateway: GatewayProcess, version: str) -> None:
    """Everything is read, whatever it was written in; by one without zstd what others wrote."""
    codecs = CODECS if version in {"today", "0.11"} else CODECS[:-1]
    consumer = Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": "g", "enable.auto.commit": False}
        | LIBRDKAFKA[version],
        logger=_SILENT,
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[Sent] = []
    while len(found) < len(codecs) * A_CODEC:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        assert len(found) == message.offset()
        found.append((message.key(), message.value() or b""))
    consumer.close()
    assert expected(*codecs) == found


@pytest.mark.parametrize("version", [(0, 10, 1), (0, 11), (1, 0)])
def test_kafka_python(gateway: GatewayProcess, version: tuple[int, ...]) -> None:
    """As far as it can read what producers wrote."""
    consumer = KafkaConsumer(
        bootstrap_servers=gateway.bootstrap,
        api_version=version,
        request_timeout_ms=10_000,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    partition = KafkaTopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found: list[Sent] = []
    for one in consumer:
        found.append((one.key, one.value))
        if len(found) == 4 * A_CODEC:
            break
    consumer.close()
    assert expected(*CODECS[:-1]) == found
