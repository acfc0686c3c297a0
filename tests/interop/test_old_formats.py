"""Today's libraries told that the broker is an old one: they send and read message sets then.

librdkafka's format 0, LZ4's wrong checksum included, and kafka-python's formats 0 and 1: each reads
what it has written, and so does a client of today; librdkafka also what that has written.
"""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import patience

with warnings.catch_warnings():
    # It reads its definitions with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as KafkaTopicPartition


if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.testing.process import GatewayProcess
    from tests.interop.libraries import NewGateway

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

TIMEOUT_S = 20.0
START_MS = 1_700_000_000_000
COUNT = 500
CODECS = ["none", "gzip", "snappy", "lz4"]
NEW: dict[str, object] = {}
OLD: dict[str, object] = {"api.version.request": False, "broker.version.fallback": "0.9.0"}
"""From 0.10 on librdkafka asks for the versions of APIs, and believes what it is told."""
_SILENT = logging.getLogger("old_formats")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

Found = tuple[int, int | None, bytes | None, bytes | None]


@pytest.fixture(scope="module")
def gateway(
    new_gateway: NewGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that says what it has counted."""
    directory = tmp_path_factory.mktemp("old")
    with new_gateway(directory / "data", "kgw.admin.listeners=127.0.0.1:0") as process:
        yield process


def expected(*, has_times: bool) -> list[Found]:
    """Return what is read of what is written."""
    return [
        (
            index,
            START_MS + index if has_times else None,
            None if index % 3 == 0 else b"k%d" % index,
            b"value %d" % index * 5,
        )
        for index in range(COUNT)
    ]


def create(gateway: GatewayProcess, topic: str) -> None:
    """Create a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap}, logger=_SILENT)
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(patience.seconds(TIMEOUT_S))


def write(gateway: GatewayProcess, topic: str, codec: str, settings: dict[str, object]) -> None:
    """Write all records with librdkafka."""
    producer = Producer(
        {"bootstrap.servers": gateway.bootstrap, "compression.type": codec, "linger.ms": 20}
        | settings,
        logger=_SILENT,
    )
    offsets: dict[int, int] = {}

    def told(error: object, message: Message) -> None:
        assert error is None
        offset = message.offset()
        assert offset is not None
        offsets[len(offsets)] = offset

    for _, timestamp_ms, key, value in expected(has_times=True):
        producer.produce(
            topic, value, key, partition=0, timestamp=timestamp_ms or 0, on_delivery=told
        )
    assert 0 == producer.flush(TIMEOUT_S)
    assert list(range(COUNT)) == list(offsets.values())


def conversions(gateway: GatewayProcess) -> set[str]:
    """Return how many requests in old formats were counted: a line for each API."""
    with urlopen(
        f"http://127.0.0.1:{gateway.admin_port}/metrics", timeout=patience.seconds(TIMEOUT_S)
    ) as page:
        lines = page.read().decode().splitlines()
    return {line for line in lines if line.startswith("kgw_converted_requests_total{")}


def read(
    gateway: GatewayProcess, topic: str, settings: dict[str, object], offset: int = 0
) -> list[Found]:
    """Read all records from an offset with librdkafka."""
    consumer = Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": "g", "enable.auto.commit": False}
        | settings,
        logger=_SILENT,
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[Found] = []
    while len(found) < COUNT - offset:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        time_type, timestamp_ms = message.timestamp()
        found.append(
            (
                message.offset() or 0,
                timestamp_ms if time_type else None,
                message.key(),
                message.value(),
            )
        )
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka(gateway: GatewayProcess, codec: str) -> None:
    """Written and read by an old client, and each by the other."""
    before = conversions(gateway)
    name = f"old-{codec}"
    create(gateway, name)
    write(gateway, name, codec, OLD)
    assert expected(has_times=False) == read(gateway, name, OLD)
    assert expected(has_times=False)[COUNT // 2 :] == read(gateway, name, OLD, COUNT // 2)
    found = read(gateway, name, NEW)
    assert expected(has_times=False) == [(one[0], None, *one[2:]) for one in found]
    assert [-1] * COUNT == [one[1] for one in found]
    assert 2 == len(conversions(gateway) - before)

    create(gateway, name + "-new")
    write(gateway, name + "-new", codec, NEW)
    assert expected(has_times=False) == read(gateway, name + "-new", OLD)


# For the wrong checksum of LZ4 in format 0 it needs one more package.
@pytest.mark.parametrize(
    ("version", "codec"),
    [
        (version, codec)
        for version in ((0, 9), (0, 10, 0), (0, 10, 1))
        for codec in CODECS
        if (version, codec) != ((0, 9), "lz4")
    ],
)
def test_kafka_python(gateway: GatewayProcess, version: tuple[int, ...], codec: str) -> None:
    """Written by an old kafka-python and read by it, and by librdkafka of today."""
    before = conversions(gateway)
    topic = f"python-{version[1]}-{version[-1]}-{codec}"
    create(gateway, topic)
    options: dict[str, Any] = {
        "bootstrap_servers": gateway.bootstrap,
        "api_version": version,
        "request_timeout_ms": 10_000,
    }
    producer = KafkaProducer(
        **options,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=False,
        linger_ms=20,
    )
    has_times = version >= (0, 10)
    sent = [
        producer.send(topic, value, key, partition=0, timestamp_ms=timestamp_ms)
        for _, timestamp_ms, key, value in expected(has_times=True)
    ]
    assert list(range(COUNT)) == [one.get(TIMEOUT_S).offset for one in sent]
    producer.close()
    consumer = KafkaConsumer(**options, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    consumer.assign([KafkaTopicPartition(topic, 0)])
    consumer.seek(KafkaTopicPartition(topic, 0), 0)
    found: list[Found] = []
    for one in consumer:
        found.append((one.offset, one.timestamp if has_times else None, one.key, one.value))
        if len(found) == COUNT:
            break
    consumer.close()
    assert 2 == len(conversions(gateway) - before)
    assert expected(has_times=has_times) == found
    assert expected(has_times=False) == [
        (one[0], None, *one[2:]) for one in read(gateway, topic, NEW)
    ]
