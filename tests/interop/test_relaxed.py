"""What a real client is told when a power loss has taken what it was about to read.

The power loss: the process is killed, and the unsynced end of the segment is cut off. Side entries
are written after their sync, so that none is there for what is cut.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.backend.embedded.offline.dump import DumpedBatch, dump_segment, segment_paths
from kgw.testing.process import GatewayProcess
from tests import patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

TOPIC = "relaxed"
KEPT = 5
WRITTEN = 10
TIMEOUT_S = 20.0
_SILENT = logging.getLogger("relaxed")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that syncs a relaxed topic once an hour."""
    settings = ("kgw.durability=relaxed", "kgw.flush.ms=3600000")
    with GatewayProcess(tmp_path / "data", *settings) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap}, logger=_SILENT)
        for future in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            future.result(patience.seconds(TIMEOUT_S))
        yield process


def _produce(gateway: GatewayProcess, *values: bytes) -> list[int]:
    """Send each record in a batch of its own; returns where they landed."""
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 0}, logger=_SILENT)
    offsets: list[int] = []
    for value in values:
        producer.produce(
            TOPIC, value, on_delivery=lambda _, message: offsets.append(message.offset())
        )
        assert 0 == producer.flush(TIMEOUT_S)
    return offsets


def _write(gateway: GatewayProcess) -> None:
    """Write records, all but the first few of which are not durable."""
    assert [0] == _produce(gateway, b"0")
    limit = patience.Limit(TIMEOUT_S)
    partitions = gateway.data_dir / "partitions"
    # The first record asked for the reservation, without which appends are made durable.
    while not list(partitions.glob("*/reserved.json")):
        assert not limit.is_over
    values = [b"%d" % number for number in range(1, WRITTEN)]
    assert list(range(1, WRITTEN)) == _produce(gateway, *values)


def _consumer(gateway: GatewayProcess, offset: int, reset: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "relaxed",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        },
        logger=_SILENT,
    )
    consumer.assign([TopicPartition(TOPIC, 0, offset)])
    return consumer


def _read(consumer: Consumer, count: int) -> list[tuple[int, bytes] | KafkaError]:
    """Return so many records, or what came before an error, and the error."""
    found: list[tuple[int, bytes] | KafkaError] = []
    limit = patience.Limit(TIMEOUT_S)
    while len(found) < count and not limit.is_over:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append((message.offset(), message.value()))
        elif error.code() not in {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}:
            found.append(error)
            break
    return found


def _lose_power(gateway: GatewayProcess) -> None:
    """Kill the gateway, cut off what no sync has covered, and start it again."""
    gateway.kill()
    (path,) = segment_paths(str(gateway.data_dir))
    batches = [one for one in dump_segment(path) if isinstance(one, DumpedBatch)]
    assert WRITTEN == len(batches)
    with open(path, "r+b") as file:  # noqa: PTH123 - cut as it is
        file.truncate(batches[KEPT].position)
    gateway.start()


def test_a_consumer_in_the_lost_tail_is_told(gateway: GatewayProcess) -> None:
    """It gets an error instead of records that stand elsewhere; after its reset it goes on."""
    _write(gateway)
    consumer = _consumer(gateway, KEPT + 2, "error")
    assert [(7, b"7"), (8, b"8"), (9, b"9")] == _read(consumer, 3)
    _lose_power(gateway)
    (new_offset,) = _produce(gateway, b"new")
    assert new_offset >= 10_000
    (error,) = _read(consumer, 1)
    assert isinstance(error, KafkaError)
    assert error.code() in {
        KafkaError._LOG_TRUNCATION,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
    consumer.assign([TopicPartition(TOPIC, 0, KEPT)])
    assert [(new_offset, b"new")] == _read(consumer, 1)
    consumer.close()


def test_one_that_begins_in_the_lost_tail_is_reset_as_it_asked(gateway: GatewayProcess) -> None:
    """As after retention: from the beginning, for one that wants all there is."""
    _write(gateway)
    _lose_power(gateway)
    (new_offset,) = _produce(gateway, b"new")
    consumer = _consumer(gateway, KEPT + 2, "earliest")
    expected = [(number, b"%d" % number) for number in range(KEPT)]
    assert [*expected, (new_offset, b"new")] == _read(consumer, KEPT + 1)
    consumer.close()


def test_one_before_the_lost_tail_reads_on_across_the_gap(gateway: GatewayProcess) -> None:
    """What it was at is there; what was left out is skipped, as Kafka skips holes."""
    _write(gateway)
    consumer = _consumer(gateway, 2, "error")
    assert (2, b"2") == _read(consumer, 1)[0]
    consumer.close()
    _lose_power(gateway)
    consumer = _consumer(gateway, 3, "error")
    assert [(3, b"3"), (4, b"4")] == _read(consumer, 2)
    (new_offset,) = _produce(gateway, b"new")
    assert [(new_offset, b"new")] == _read(consumer, 1)
    consumer.close()


def test_a_kill_alone_loses_nothing(gateway: GatewayProcess) -> None:
    """The consumer reads all that was acknowledged, and what comes after the gap."""
    _write(gateway)
    consumer = _consumer(gateway, KEPT, "error")
    assert (5, b"5") == _read(consumer, 1)[0]
    gateway.kill()
    gateway.start()
    (new_offset,) = _produce(gateway, b"new")
    expected = [(number, b"%d" % number) for number in range(KEPT + 1, WRITTEN)]
    assert [*expected, (new_offset, b"new")] == _read(consumer, len(expected) + 1)
    consumer.close()
