"""Batches that are sound by their header and their CRC, and whose records are not what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.records.batch import Compression
from kgw.records.builder import encode_batch
from kgw.records.compression import compress
from kgw.records.record import append_varint

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_MS = 1_700_000_000_000


class Parts(NamedTuple):
    """The numbers of one record, any of which may be a lie."""

    offset_delta: int
    key_length: int = 3
    value_length: int = 40
    header_count: int = 0
    length_off: int = 0
    """How much longer the record says it is."""


def record(
    parts: Parts, headers: bytes = b"", *, key: bytes = b"key", value: bytes = b"v" * 40
) -> bytes:
    """Return a record with these numbers, be they true or not of what it holds."""
    body = bytearray(1)  # attributes
    append_varint(body, 0)
    append_varint(body, parts.offset_delta)
    append_varint(body, parts.key_length)
    body += key
    append_varint(body, parts.value_length)
    body += value
    append_varint(body, parts.header_count)
    body += headers
    output = bytearray()
    append_varint(output, len(body) + parts.length_off)
    return bytes(output + body)


def batch(
    payload: bytes,
    count: int,
    compression: Compression = Compression.NONE,
    *,
    producer_id: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Return a batch whose header counts so many records, with a CRC that fits."""
    return encode_batch(
        compress(compression, payload),
        base_offset=0,
        leader_epoch=-1,
        attributes=compression,
        last_offset_delta=count - 1,
        base_timestamp_ms=NOW_MS,
        max_timestamp_ms=NOW_MS,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=base_sequence,
        record_count=count,
    )


def honest(count: int) -> bytes:
    """Return the payload of a batch that tells the truth."""
    return b"".join(record(Parts(delta)) for delta in range(count))


LIES: dict[str, Callable[[], tuple[bytes, int]]] = {
    "three records claimed, one there": lambda: (honest(1), 3),
    "one record claimed, three there": lambda: (honest(3), 1),
    "an offset twice": lambda: (record(Parts(0)) * 2, 2),
    "a hole in the offsets": lambda: (record(Parts(0)) + record(Parts(2)), 2),
    "offsets that begin at 1": lambda: (record(Parts(1)) + record(Parts(2)), 2),
    "a negative offset delta": lambda: (record(Parts(-1)) + record(Parts(1)), 2),
    "a record longer than the batch": lambda: (honest(1) + record(Parts(1, length_off=9)), 2),
    "a record shorter than its content": lambda: (record(Parts(0, length_off=-1)) + honest(1), 2),
    "a record of a negative length": lambda: (b"\x01" + honest(1), 2),
    "a key longer than its record": lambda: (record(Parts(0, key_length=4000)), 1),
    "a key of less than no bytes": lambda: (record(Parts(0, key_length=-2), key=b""), 1),
    "a value longer than its record": lambda: (record(Parts(0, value_length=42)), 1),
    "a value shorter than what is there": lambda: (record(Parts(0, value_length=39)), 1),
    "a value of less than no bytes": lambda: (record(Parts(0, value_length=-2), value=b""), 1),
    "bytes behind the headers": lambda: (record(Parts(0), bytes(4)), 1),
    "headers that are not there": lambda: (record(Parts(0, header_count=1)), 1),
    "a negative count of headers": lambda: (record(Parts(0, header_count=-1)), 1),
    "a header without a key": lambda: (record(Parts(0, header_count=1), b"\x01\x00"), 1),
    "a header longer than its record": lambda: (record(Parts(0, header_count=1), b"\x7e\x00"), 1),
    "a length of more than 32 bits": lambda: (b"\xff" * 5 + b"\x7f" + honest(1), 2),
    "a length that has no end": lambda: (honest(1) + b"\x80" * 40, 2),
    "bytes behind the last record": lambda: (honest(2) + bytes(20), 2),
    "a header of less than no bytes": lambda: (record(Parts(0, header_count=1), b"\x00\x03"), 1),
    "nothing but zeros": lambda: (bytes(100), 2),
}
"""What is wrong: how to make its payload, and the count of records that the header has."""
