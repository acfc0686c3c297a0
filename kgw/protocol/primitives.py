"""The wire's primitive types: variable-length integers, strings, byte strings, tagged fields.

Every `read_x(buffer, position)` returns the value and the position after it, and raises
`DecodeError` if the bytes end too early or are invalid. Every `write_x(out, value)` appends to a
bytearray. Message codecs are generated code and use few of these functions (`decoding`,
`encoding`); records, blobs and headers use them directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Layout

from kgw.errors import DecodeError, EncodeError

Buffer = bytes | bytearray | memoryview

RecordData = Buffer | Sequence[Buffer]
"""Record batches in a message: a memoryview of the frame when decoded, any buffers to encode."""

# Kafka refuses to read or write longer strings, even with a compact length, which could be larger.
MAX_STRING_BYTES = 0x7FFF
# Kafka defines at most four tagged fields in one structure. Without a limit, a request can have
# tens of millions of tagged fields of two bytes each (CVE-2026-111115).
MAX_TAGGED_FIELDS = 64

_INT16 = Layout(">h")


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read at most five bytes of seven bits each, lowest first, as 32 unsigned bits.

    As in Kafka, zero groups at the end are accepted and bits beyond the 32nd are dropped.
    """
    # Unrolled: a loop takes three times as long for the two bytes of most record lengths.
    try:
        value = buffer[position]
        if value < 0x80:
            return value, position + 1
        byte = buffer[position + 1]
        value = value & 0x7F | (byte & 0x7F) << 7
        if byte < 0x80:
            return value, position + 2
        byte = buffer[position + 2]
        value |= (byte & 0x7F) << 14
        if byte < 0x80:
            return value, position + 3
        byte = buffer[position + 3]
        value |= (byte & 0x7F) << 21
        if byte < 0x80:
            return value, position + 4
        byte = buffer[position + 4]
        if byte < 0x80:
            return value | (byte & 0x0F) << 28, position + 5
    except IndexError:
        raise DecodeError("truncated variable-length integer") from None
    raise DecodeError("variable-length integer of more than 5 bytes")


def unsigned_varint(value: int) -> bytes:
    """Return the encoding of 0 <= value < 2**32."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if not 0 <= value <= 0xFFFF_FFFF:
        raise EncodeError(f"{value} is not an unsigned 32-bit integer")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_int16(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a signed big-endian 16-bit integer."""
    stop = position + _INT16.size
    if stop > len(buffer):
        raise DecodeError("truncated integer")
    value: int = _INT16.unpack_from(buffer, position)[0]
    return value, stop


def read_bytes(buffer: Buffer, position: int, size: int) -> tuple[Buffer, int]:
    """Return a slice of exactly `size` bytes: slicing alone would silently return fewer."""
    stop = position + size
    if size < 0 or stop > len(buffer):
        raise DecodeError(f"{size} bytes announced, {max(0, len(buffer) - position)} left")
    return buffer[position:stop], stop


def read_nullable_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    """Read a string with the old two-byte length, of which -1 means null."""
    size, position = read_int16(buffer, position)
    if size == -1:
        return None, position
    text, position = read_bytes(buffer, position, size)
    return str(text, "utf-8", "replace"), position


def write_nullable_string(out: bytearray, text: str | None) -> None:
    """Append a string with the old two-byte length, or null."""
    if text is None:
        out += b"\xff\xff"
        return
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"a string is not text: {error.reason}") from None
    if len(encoded) > MAX_STRING_BYTES:
        raise EncodeError(f"a string of {len(encoded)} bytes: {MAX_STRING_BYTES} are allowed")
    out += _INT16.pack(len(encoded))
    out += encoded


def skip_tagged_fields(buffer: Buffer, position: int, end: int) -> int:
    """Skip a section of unknown tagged fields; return the position after it.

    The fields are not kept: kgw never forwards a message that it has decoded.
    """
    count, position = read_unsigned_varint(buffer, position)
    if count > MAX_TAGGED_FIELDS:
        raise DecodeError(f"{count} tagged fields: at most {MAX_TAGGED_FIELDS} are read")
    previous = -1
    for _ in range(count):
        tag, position = read_unsigned_varint(buffer, position)
        if tag <= previous:
            raise DecodeError(f"tag {tag} after tag {previous}: tags must ascend")
        previous = tag
        size, position = read_unsigned_varint(buffer, position)
        position += size
        if position > end:
            raise DecodeError("truncated tagged field")
    return position


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
