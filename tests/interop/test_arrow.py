"""What librdkafka's producer made, from the gateway's files to Arrow."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kgw.pipeline.arrow.decode import decode_batches
from kgw.records.batch import split_batches
from tests import patience
from tests.interop.libraries import EMBEDDED
from tests.pipeline.arrow.answers import rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.libraries import NewGateway

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

TIMEOUT_S = 30.0
TOPIC = "arrow"
START_MS = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
A_CODEC = 400
_SILENT = logging.getLogger("arrow")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

Sent = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def record(codec: str, number: int) -> Sent:
    """Return time, key, value and headers of one record."""
    key = None if number % 5 == 0 else b"k%d" % number
    value = None if number % 7 == 0 and key else f"{codec} {number} ".encode() * (number % 90)
    headers: list[tuple[str, bytes | None]] | None = None
    if number % 3 == 0:
        headers = [("codec", codec.encode()), ("none", None), ("ü", b"")][: 1 + number % 4]
    return START_MS + number * 7919 % 1000, key, value, headers


def test_librdkafka(new_gateway: NewGateway, backend: str, tmp_path: Path) -> None:
    """Every codec, null keys and values, headers, times that go back."""
    if backend != EMBEDDED:
        pytest.skip("it reads the segments of a data directory")
    data = tmp_path / "data"
    expected = [record(codec, number) for codec in CODECS for number in range(A_CODEC)]
    with new_gateway(data) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap}, logger=_SILENT)
        for future in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            future.result(patience.seconds(TIMEOUT_S))
        for codec in CODECS:
            producer = Producer(
                {
                    "bootstrap.servers": process.bootstrap,
                    "compression.type": codec,
                    "linger.ms": 20,
                    "batch.num.messages": 150,
                },
                logger=_SILENT,
            )
            for number in range(A_CODEC):
                timestamp_ms, key, value, headers = record(codec, number)
                producer.produce(
                    TOPIC, value, key, partition=0, timestamp=timestamp_ms, headers=headers
                )
            assert 0 == producer.flush(TIMEOUT_S)
    (segment,) = data.rglob("*.log")
    raw = segment.read_bytes()
    assert {codec for batch in split_batches(raw) for codec in [int(batch.compression)]} == set(
        range(5)
    )

    decoded = decode_batches(raw, first_offset=0)

    assert len(expected) == decoded.next_offset
    assert expected == [(row[1], *row[4:]) for row in rows(decoded.batch)]
