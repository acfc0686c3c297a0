"""Message sets written down from Kafka's specification, with nothing of ours: for tests of ours."""

from __future__ import annotations

import gzip
import struct
import warnings
import zlib
from typing import Any, NamedTuple

import lz4.frame

from kgw.records.batch import Compression
from tests.records import snappy_format

with warnings.catch_warnings():
    # It reads its definitions with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.legacy_records import LegacyRecordBatch
    from kafka.record.memory_records import MemoryRecords

LOG_APPEND_TIME = 0x08
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
RIGHT_LZ4_CHECKSUM = 0x82
"""Of a header that says independent blocks of at most 64 KB, and nothing else."""

CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


class Read(NamedTuple):
    """A message as a client reads it."""

    offset: int
    timestamp_ms: int | None
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None


def field(value: bytes | None) -> bytes:
    """Return a key or a value with its length."""
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def message(
    magic: int,
    value: bytes | None,
    *,
    key: bytes | None = None,
    offset: int = 0,
    timestamp_ms: int = -1,
    attributes: int = 0,
    size_off: int = 0,
    crc_off: int = 0,
) -> bytes:
    """Return one message; its size and its CRC may be off."""
    covered = struct.pack(">bb", magic, attributes)
    if magic == 1:
        covered += struct.pack(">q", timestamp_ms)
    covered += field(key) + field(value)
    crc = (zlib.crc32(covered) + crc_off) & 0xFFFF_FFFF
    return struct.pack(">qiI", offset, len(covered) + 4 + size_off, crc) + covered


def lz4_frame(data: bytes, *, header_checksum: int | None = None, **options: Any) -> bytes:
    """Return a frame; its header's checksum may be any."""
    frame = bytearray(lz4.frame.compress(data, block_linked=False, store_size=False, **options))
    if header_checksum is not None:
        frame[6] = header_checksum
    return bytes(frame)


def compressed(codec: Compression, data: bytes, magic: int = 1, *, is_raw: bool = False) -> bytes:
    """Return what producers make of a set; Snappy raw or in Java's frames."""
    match codec:
        case Compression.GZIP:
            return gzip.compress(data)
        case Compression.SNAPPY if is_raw:
            return snappy_format.encode(data)
        case Compression.SNAPPY:
            block = snappy_format.encode(data)
            return bytes(XERIAL_HEADER + struct.pack(">i", len(block)) + block)
        case Compression.LZ4:
            # Any checksum but the right one does for brokers; 0x1A is not it.
            return lz4_frame(data, header_checksum=0x1A if magic == 0 else None)
        case _:
            return data


def wrapper(
    magic: int,
    codec: Compression,
    *messages: bytes,
    offset: int = 0,
    timestamp_ms: int = -1,
    attributes: int = 0,
    is_raw: bool = False,
) -> bytes:
    """Return a compressed message with others inside."""
    return message(
        magic,
        compressed(codec, b"".join(messages), magic, is_raw=is_raw),
        offset=offset,
        timestamp_ms=timestamp_ms,
        attributes=codec | attributes,
    )


def read_theirs(message_set: bytes, magic: int) -> list[Read]:
    """Return what kafka-python reads, every CRC being right."""
    found = []
    records = MemoryRecords(mended(message_set) if magic == 0 else message_set)
    while (batch := records.next_batch()) is not None:
        assert isinstance(batch, LegacyRecordBatch)
        assert magic == batch.magic
        assert batch.validate_crc()
        for one in batch:
            assert one.validate_crc()
            found.append(Read(one.offset, one.timestamp, one.timestamp_type, one.key, one.value))
    return found


def mended(message_set: bytes) -> bytes:
    """Return a set of format 0 with LZ4's frames as the format says, each 64 KB a block.

    kafka-python needs another package to read them as they are.
    """
    output = b""
    while message_set:
        offset, size, _, magic, attributes = struct.unpack_from(">qiIbb", message_set)
        whole, message_set = message_set[: 12 + size], message_set[12 + size :]
        if attributes & 7 == Compression.LZ4:
            data = lz4.frame.decompress(whole[26:32] + bytes([RIGHT_LZ4_CHECKSUM]) + whole[33:])
            whole = message(
                magic,
                gzip.compress(data),
                offset=offset,
                attributes=Compression.GZIP,
            )
        output += whole
    return output
