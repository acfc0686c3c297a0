"""A real client that was away, and the gateway restarted, killed and cleaned up meanwhile.

Thirty days are for a clock that stands still between steps (tests/test_thirty_days.py); here the
topic's retention is short instead.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests import patience

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kgw.testing.process import GatewayProcess
    from tests.interop.libraries import NewGateway

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

TOPIC = "orders"
GROUP = "away"
READ_UNTIL = 1_000
MORE = 4_000
TIMEOUT_S = 30.0
_SILENT = logging.getLogger("thirty-days")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

SETTINGS = (
    "log.retention.check.interval.ms=200",
    "log.initial.task.delay.ms=0",
    "log.cleaner.backoff.ms=200",
    "kgw.lag.interval.ms=200",
    "kgw.admin.listeners=127.0.0.1:0",
    # Twice the topic's retention: what is there now is about to go.
    "kgw.lag.risk.ms=7200000",
)


@pytest.fixture
def gateway(new_gateway: NewGateway, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that looks after its logs all the time."""
    with new_gateway(tmp_path / "data", *SETTINGS) as process:
        yield process


def _admin(gateway: GatewayProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": gateway.bootstrap}, logger=_SILENT)


def _create_topic(gateway: GatewayProcess) -> None:
    config = {
        "cleanup.policy": "compact,delete",
        "segment.bytes": "20000",
        "retention.ms": "3600000",
        "min.cleanable.dirty.ratio": "0",
    }
    topic = NewTopic(TOPIC, 1, 1, config=config)
    admin = _admin(gateway)
    admin.create_topics([topic])[TOPIC].result(patience.seconds(TIMEOUT_S))


def _produce(gateway: GatewayProcess, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "acks": "all"}, logger=_SILENT)
    for number in range(first, end):
        producer.produce(TOPIC, key=b"%d" % number, value=b"record %d" % number)
    assert 0 == producer.flush(TIMEOUT_S)


def _consumer(gateway: GatewayProcess) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        },
        logger=_SILENT,
    )


def _next(consumer: Consumer) -> Message:
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    return message


def _commit(gateway: GatewayProcess) -> None:
    """Commit as a consumer does that has read up to offset 1,000."""
    consumer = _consumer(gateway)
    offset = TopicPartition(TOPIC, 0, READ_UNTIL + 1)
    consumer.commit(offsets=[offset], asynchronous=False)
    consumer.close()


def _wait_for_retention(gateway: GatewayProcess) -> None:
    """Return once the record after the committed one is gone."""
    limit = patience.Limit(TIMEOUT_S)
    consumer = _consumer(gateway)
    low = 0
    while low <= READ_UNTIL + 1:
        assert not limit.is_over, "retention removes nothing"
        low, _ = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=TIMEOUT_S)
    consumer.close()


def _marks(gateway: GatewayProcess) -> list[str]:
    """Return what `kgw offsets lag` says is wrong with the group, or about to be."""
    servers = ["--bootstrap", gateway.bootstrap, "--admin", f"127.0.0.1:{gateway.admin_port}"]
    result = subprocess.run(
        [sys.executable, "-m", "kgw", "offsets", "lag", "--group", GROUP, "--json", *servers],
        capture_output=True,
        check=True,
        timeout=patience.seconds(TIMEOUT_S),
    )
    (partition,) = json.loads(result.stdout)["groups"][0]["partitions"]
    assert READ_UNTIL + 1 == partition["committed_offset"]
    return list(partition["marks"])


def _away(gateway: GatewayProcess) -> None:
    _create_topic(gateway)
    _produce(gateway, 0, READ_UNTIL + 1)
    _commit(gateway)
    _produce(gateway, READ_UNTIL + 1, READ_UNTIL + 1 + MORE)
    gateway.stop()
    gateway.start()
    gateway.kill()
    gateway.start()


def test_a_client_goes_on_at_exactly_the_next_record(gateway: GatewayProcess) -> None:
    """After a restart, a kill, and compaction that has been over its records."""
    _away(gateway)
    consumer = _consumer(gateway)
    consumer.subscribe([TOPIC])
    offsets: list[int] = []
    values: list[bytes | None] = []
    while len(offsets) < MORE:
        message = _next(consumer)
        assert message.error() is None, message.error()
        offsets.append(message.offset())
        values.append(message.value())
    consumer.close()
    assert list(range(READ_UNTIL + 1, READ_UNTIL + 1 + MORE)) == offsets
    assert [b"record %d" % offset for offset in offsets] == values


def test_a_client_is_told_that_retention_has_passed_it_by(gateway: GatewayProcess) -> None:
    """OFFSET_OUT_OF_RANGE, not a place that nobody asked for; and the lag said so before."""
    _away(gateway)
    assert ["at risk"] == _marks(gateway)
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        TOPIC,
        incremental_configs=[
            ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin = _admin(gateway)
    admin.incremental_alter_configs([resource])[resource].result(patience.seconds(TIMEOUT_S))
    _wait_for_retention(gateway)
    # What is left may be at risk, too, until the next pass removes it.
    assert "committed-below-start" in _marks(gateway)
    consumer = _consumer(gateway)
    consumer.subscribe([TOPIC])
    message = _next(consumer)
    consumer.close()
    assert message.error() is not None
    assert message.error().code() in {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}
