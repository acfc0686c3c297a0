"""What every client library is put through, in this language and in others (e2e/).

The records hold everything that a record can: headers (several, repeated, empty, null), null and
empty keys and values, text beyond ASCII, and a value of 1 MB that does not compress.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from tests.interop.drivers.loop import Record

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess
    from tests.interop.client import Client

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITION = 1
PARTITIONS = 2
START_MS = 1_700_000_000_000
STEP_MS = 1_000
# The largest round size that fits, with its framing, in the default message.max.bytes of 1,048,588.
LARGE_BYTES = 1_000_000


def noise(size: int) -> bytes:
    """Bytes that no codec makes smaller, the same ones every time."""
    return hashlib.shake_128(b"kgw").digest(size)


class Limits(NamedTuple):
    """What a library cannot do, whatever the server; docs/clients/ says more."""

    sends_neither_key_nor_value: bool = True
    sends_null_headers: bool = True
    tells_empty_from_null: bool = True


NO_LIMITS = Limits()
LIMITS = {
    "kafka-python-2": Limits(sends_neither_key_nor_value=False, sends_null_headers=False),
    "kafka-python-3": Limits(sends_neither_key_nor_value=False, sends_null_headers=False),
    "aiokafka": Limits(sends_neither_key_nor_value=False),
    "kafka-go": Limits(tells_empty_from_null=False),
}


def records(client: Client) -> list[Record]:
    """The records that a client can send, one second apart."""
    kinds: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"key", b"value", []),
        (None, b"null key", []),
        (b"null value", None, []),
        (b"", b"", []),
        ("ключ".encode(), "値".encode(), [("заголовок", "🜁".encode())]),
        (
            b"headers",
            b"headers",
            [("one", b"1"), ("two", b"2"), ("one", b"again"), ("empty", b"")],
        ),
        (b"headers alone", None, [("alone", b"\x00\xff")]),
        (b"large", noise(LARGE_BYTES), []),
        (b"compressible", b"all work and no play " * 2_000, [("h", b"v" * 300)]),
        *((f"key {index}".encode(), f"value {index}".encode(), []) for index in range(40)),
    ]
    limits = LIMITS.get(client.name, NO_LIMITS)
    if limits.sends_neither_key_nor_value:
        kinds.append((None, None, [("all that there is", b"x")]))
    if limits.sends_null_headers:
        kinds.append((b"null header", b"", [("null", None)]))
    return [
        Record(key, value, headers, START_MS + index * STEP_MS)
        for index, (key, value, headers) in enumerate(kinds)
    ]


def stored(sent: list[Record]) -> list[Record]:
    """The same records as they must be read back: offsets dense from 0."""
    return [record._replace(offset=offset) for offset, record in enumerate(sent)]


def as_read_by(client: Client, expected: list[Record]) -> list[Record]:
    """The records as a client can tell them: to some, empty bytes and null are the same."""
    if LIMITS.get(client.name, NO_LIMITS).tells_empty_from_null:
        return expected
    return [
        record._replace(
            key=record.key or None,
            value=record.value or None,
            headers=[(name, value or None) for name, value in record.headers],
        )
        for record in expected
    ]


def write(
    client: Client, gateway: GatewayProcess, topic: str, *, codec: str, idempotent: bool
) -> list[Record]:
    """Creates the topic, sends the records, and returns what a reader must find."""
    sent = records(client)
    client.create_topic(gateway.bootstrap, topic, PARTITIONS)
    offsets = client.produce(
        gateway.bootstrap, topic, PARTITION, sent, codec=codec, idempotent=idempotent
    )
    assert list(range(len(sent))) == offsets
    return stored(sent)


def check_reading(
    client: Client, gateway: GatewayProcess, topic: str, expected: list[Record]
) -> None:
    """All records from the start, and from an offset in the middle of a batch."""
    expected = as_read_by(client, expected)
    everything = client.consume(gateway.bootstrap, topic, PARTITION, offset=0, count=len(expected))
    assert expected == everything
    middle = len(expected) - 17
    rest = client.consume(gateway.bootstrap, topic, PARTITION, offset=middle, count=17)
    assert expected[middle:] == rest


def check_bounds(
    client: Client, gateway: GatewayProcess, topic: str, expected: list[Record]
) -> None:
    """Earliest and latest offset of the partition, and of its empty neighbour."""
    assert (0, len(expected)) == client.bounds(gateway.bootstrap, topic, PARTITION)
    assert (0, 0) == client.bounds(gateway.bootstrap, topic, 1 - PARTITION)


def check_times(
    client: Client, gateway: GatewayProcess, topic: str, expected: list[Record]
) -> None:
    """Seek by time: exactly, between two records, before the first, after the last."""
    last = len(expected) - 1
    questions = {
        START_MS: 0,
        START_MS + 3 * STEP_MS: 3,
        START_MS + 3 * STEP_MS + 1: 4,
        START_MS - 3_600_000: 0,
        START_MS + last * STEP_MS: last,
        START_MS + last * STEP_MS + 1: None,
    }
    answers = {
        timestamp_ms: client.offset_for_time(gateway.bootstrap, topic, PARTITION, timestamp_ms)
        for timestamp_ms in questions
    }
    assert questions == answers


def check_all(client: Client, gateway: GatewayProcess, topic: str, expected: list[Record]) -> None:
    """Everything that a reader can ask about a topic that was written."""
    check_reading(client, gateway, topic, expected)
    check_bounds(client, gateway, topic, expected)
    check_times(client, gateway, topic, expected)


def check_restarts(client: Client, gateway: GatewayProcess, topic: str) -> None:
    """The same records at the same offsets after a kill right behind the last ack, and a stop."""
    expected = write(client, gateway, topic, codec="zstd", idempotent=False)
    gateway.kill()
    gateway.start()
    check_all(client, gateway, topic, expected)
    assert gateway.stop() == 0
    gateway.start()
    check_all(client, gateway, topic, expected)
    # What is written next follows without a gap.
    more = records(client)[:5]
    offsets = client.produce(
        gateway.bootstrap, topic, PARTITION, more, codec="none", idempotent=False
    )
    assert [len(expected) + index for index in range(len(more))] == offsets
