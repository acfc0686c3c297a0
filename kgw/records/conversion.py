"""Converts message sets of old clients to batches, and batches to message sets.

The rules are those of Kafka's brokers up to 3.9. A produced message set becomes one batch with the
same codec. For a consumer, a compressed batch becomes a wrapper with the same codec, and an
uncompressed batch becomes one message for each record. Headers, producer ids and control batches
are left out, because these formats cannot represent them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode
from kgw.records.batch import LOG_APPEND_TIME_FLAG, Compression, split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.errors import RecordError
from kgw.records.message_set import encode_message, encode_wrapper, read_message_set
from kgw.records.reader import RecordFields, unpack, walk
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits
    from kgw.types import Buffer

WRAPPER_BYTES: Final = 8 << 20
"""When the messages in a wrapper reach this size, another wrapper begins.

A record of seven bytes becomes a message of 34 bytes: a batch with 64 MB of records would take five
times as much memory as messages.
"""


def to_batch(message_set: Buffer, limits: DecompressionLimits) -> bytearray:
    """Return a batch of format 2 with the messages of a format 0 or 1 set, offsets from 0.

    May take long. Raises RecordError as `read_message_set`.
    """
    found = read_message_set(message_set, limits)
    builder = BatchBuilder(compression=found.compression)
    for message in found.messages:
        builder.add(key=message.key, value=message.value, timestamp_ms=message.timestamp_ms)
    return builder.build()


class Messages(NamedTuple):
    """Batches converted for a client of an old format."""

    parts: list[Buffer]
    """Whole messages, one or more in each part."""
    size_bytes: int
    next_offset: int
    """The offset after the last batch that was completely converted, or left out."""
    code: ErrorCode = ErrorCode.NONE
    """The error if there are no messages: UNSUPPORTED_COMPRESSION_TYPE, or CORRUPT_MESSAGE for a
    batch whose records do not match its header. If there are messages before such a batch, the next
    request gets the error."""
    is_cut: bool = False
    """Whether the next message did not fit into `max_bytes`."""


def to_messages(
    buffers: Iterable[Buffer],
    magic: int,
    from_offset: int,
    max_bytes: int,
    limits: DecompressionLimits,
    *,
    at_least_one: bool = True,
) -> Messages:
    """Return stored batches as messages of format 0 or 1, as many as fit into `max_bytes`.

    `from_offset` is the offset that the client requested. May take long.
    """
    parts: list[Buffer] = []
    size_bytes = 0
    next_offset = from_offset
    try:
        for buffer in buffers:
            for batch in split_batches(buffer):
                for message in _messages(batch, magic, from_offset, limits):
                    if size_bytes + len(message) > max_bytes and (parts or not at_least_one):
                        return Messages(parts, size_bytes, next_offset, is_cut=True)
                    parts.append(message)
                    size_bytes += len(message)
                next_offset = batch.next_offset
    except RecordError as error:
        if not parts:
            is_unsupported = error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            code = error.code if is_unsupported else ErrorCode.CORRUPT_MESSAGE
            return Messages([], 0, next_offset, code)
    return Messages(parts, size_bytes, next_offset)


def _messages(
    batch: RecordBatch, magic: int, from_offset: int, limits: DecompressionLimits
) -> Iterator[bytes]:
    """Yield the messages of a whole batch. Raises RecordError, possibly after some messages.

    Uncompressed records below `from_offset` are left out: some versions of librdkafka rely on that.
    A wrapper contains them, unless all of its messages are below `from_offset`.
    """
    if batch.is_control or not batch.record_count:
        return
    compression = batch.compression
    if compression is Compression.ZSTD:
        raise RecordError(f"format {magic} has no zstd", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    attributes = batch.attributes & LOG_APPEND_TIME_FLAG
    payload = unpack(batch, limits)
    if compression is not Compression.NONE:
        yield from _wrappers(batch, payload, magic, from_offset)
        return
    for one in walk(payload, batch):
        if one.offset >= from_offset:
            yield _message(payload, one, magic, one.offset, attributes)


def _wrappers(
    batch: RecordBatch, payload: bytes | bytearray, magic: int, from_offset: int
) -> Iterator[bytes]:
    attributes = batch.attributes & LOG_APPEND_TIME_FLAG
    compression = batch.compression
    inside = bytearray()
    base_offset = last_offset = 0
    timestamp_ms = NO_TIMESTAMP_MS
    for one in walk(payload, batch):
        if len(inside) >= WRAPPER_BYTES:
            if last_offset >= from_offset:
                yield encode_wrapper(
                    magic, compression, last_offset, timestamp_ms, inside, attributes
                )
            inside.clear()
        if not inside:
            timestamp_ms = NO_TIMESTAMP_MS
            base_offset = one.offset if magic else 0
        inside += _message(payload, one, magic, one.offset - base_offset, attributes)
        last_offset = one.offset
        timestamp_ms = max(timestamp_ms, one.timestamp_ms)
    if last_offset >= from_offset:
        yield encode_wrapper(magic, compression, last_offset, timestamp_ms, inside, attributes)


def _message(
    payload: bytes | bytearray, one: RecordFields, magic: int, offset: int, attributes: int
) -> bytes:
    key_start, value_start = one.key_start, one.value_start
    return encode_message(
        magic,
        offset,
        one.timestamp_ms,
        None if one.key_length < 0 else payload[key_start : key_start + one.key_length],
        None if one.value_length < 0 else payload[value_start : value_start + one.value_length],
        attributes,
    )
