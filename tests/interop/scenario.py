"""The records that every client library sends, and what each library cannot do.

They hold everything that a record can: headers (several, repeated, empty, null), null and empty
keys and values, text beyond ASCII, and a value of 1 MB that does not compress.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from tests.interop.drivers.loop import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.interop.client import Client, Topic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
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
    is_idempotent: bool = True
    sets_incrementally: bool = True
    sets_all_at_once: bool = True
    resends_other_settings: bool = False
    deletes_records: bool = True
    tells_deleted_offsets: bool = True
    reads_compacted_codecs: bool = True
    has_transactions: bool = True
    ends_transactions_after_restarts: bool = True


_LIMITS = {
    "kafka-python-2": Limits(
        sends_neither_key_nor_value=False,
        sends_null_headers=False,
        sets_incrementally=False,
        ends_transactions_after_restarts=False,
    ),
    "kafka-python-3": Limits(
        sends_neither_key_nor_value=False, sends_null_headers=False, resends_other_settings=True
    ),
    "aiokafka": Limits(sends_neither_key_nor_value=False, sets_incrementally=False),
    "kafka-go": Limits(
        tells_empty_from_null=False,
        is_idempotent=False,
        deletes_records=False,
        tells_deleted_offsets=False,
        reads_compacted_codecs=False,
        has_transactions=False,
    ),
    "java-2.1": Limits(sets_incrementally=False),
    "java-4": Limits(sets_all_at_once=False),
}


def limits_of(client: Client) -> Limits:
    """What the client cannot do."""
    return limits_by_name(client.name)


def limits_by_name(name: str) -> Limits:
    """What the client of a name cannot do."""
    return _LIMITS.get(name, Limits())


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
    limits = limits_of(client)
    if limits.sends_neither_key_nor_value:
        kinds.append((None, None, [("all that there is", b"x")]))
    if limits.sends_null_headers:
        kinds.append((b"null header", b"", [("null", None)]))
    return [
        Record(key, value, headers, START_MS + index * STEP_MS)
        for index, (key, value, headers) in enumerate(kinds)
    ]


def stored(sent: list[Record], offsets: Iterable[int]) -> list[Record]:
    """The records with the offsets that a producer was told."""
    return [record._replace(offset=offset) for record, offset in zip(sent, offsets, strict=True)]


def write(topic: Topic, codec: str, *, idempotent: bool = False) -> list[Record]:
    """Creates the topic, sends the records, and returns what a reader must find."""
    sent = records(topic.client)
    topic.create()
    offsets = topic.produce(sent, codec, idempotent=idempotent)
    assert list(range(len(sent))) == offsets
    return stored(sent, offsets)
