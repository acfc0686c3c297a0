"""Reads and writes the log entries of SMQ's log files.

An entry is `[u32 length][LogEntry]`. The five fields of LogEntry and our own field are written and
read without protobuf, which would copy a batch of a megabyte twice. They are a few varints around
bytes that are neither copied nor examined. The result equals protobuf's (reference: filer.proto,
LogEntry). Our field is last, like unknown fields in protobuf.

    1 ts_ns int64, 2 partition_key_hash int32, 3 data bytes, 4 key bytes, 5 offset int64,
    1001 bytes: ours (`record_entries`), which others skip
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.types import Buffer

EXTENSION_FIELD: Final = 1001
"""The number of our field, far above the numbers that SMQ uses in LogEntry."""

LENGTH: Final = Struct(">I")
_TS_NS: Final = 1 << 3
_KEY_HASH: Final = 2 << 3
_DATA: Final = 3 << 3 | 2
_KEY: Final = 4 << 3 | 2
_OFFSET: Final = 5 << 3
_EXTENSION: Final = EXTENSION_FIELD << 3 | 2

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5

_MAX_BITS: Final = 64
_MASK: Final = (1 << _MAX_BITS) - 1


class EntryError(StorageError):
    """Bytes that are no log entry."""


class LogEntry(NamedTuple):
    """One entry of a log file. Its buffers are views of the file's bytes."""

    offset: int
    ts_ns: int
    data: memoryview
    key: memoryview
    key_hash: int = 0
    extension: memoryview = memoryview(b"")
    position: int = 0
    """The position of the entry's length field."""


def append_number(output: bytearray, number: int) -> None:
    """Append an integer as protobuf's varint; a negative int64 takes ten bytes."""
    rest = number & _MASK
    while rest > 0x7F:
        output.append(rest & 0x7F | 0x80)
        rest >>= 7
    output.append(rest)


def read_number(data: Buffer, position: int) -> tuple[int, int]:
    """Return the unsigned varint at `position` and the position after it. Raises EntryError."""
    number = shift = 0
    try:
        while (byte := data[position]) >= 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            position += 1
            if shift >= _MAX_BITS:
                raise EntryError(f"a number at byte {position} has more than {_MAX_BITS} bits")
    except IndexError:
        raise EntryError("a number is cut off") from None
    return (number | byte << shift) & _MASK, position + 1


def signed(number: int) -> int:
    """Return the int64 whose 64 bits an unsigned varint has."""
    return number - (1 << _MAX_BITS) if number >> (_MAX_BITS - 1) else number


def append_bytes_field(output: bytearray, tag: int, value: Buffer) -> None:
    """Append a field of bytes, unless it is empty."""
    if value:
        append_number(output, tag)
        append_number(output, len(value))
        output += value


def append_around(
    output: bytearray,
    tail: bytearray,
    *,
    offset: int,
    ts_ns: int,
    data_bytes: int,
    key: Buffer,
    key_hash: int = 0,
    extension: Buffer = b"",
) -> None:
    """Append the bytes before an entry's data to `output`, and the bytes after it to `tail`."""
    start = len(output)
    output += b"\0\0\0\0"
    if ts_ns:
        output.append(_TS_NS)
        append_number(output, ts_ns)
    if key_hash:
        output.append(_KEY_HASH)
        append_number(output, key_hash)
    if data_bytes:
        output.append(_DATA)
        append_number(output, data_bytes)
    behind = len(tail)
    append_bytes_field(tail, _KEY, key)
    if offset:
        tail.append(_OFFSET)
        append_number(tail, offset)
    append_bytes_field(tail, _EXTENSION, extension)
    body_bytes = len(output) - start - LENGTH.size + data_bytes + len(tail) - behind
    LENGTH.pack_into(output, start, body_bytes)


def walk(data: Buffer) -> Iterator[LogEntry]:
    """Yield the consecutive entries in these bytes.

    Raises EntryError, with the position, if bytes are no entry, perhaps after yielding some
    entries.
    """
    view = memoryview(data)
    size_bytes = len(view)
    position = 0
    while position < size_bytes:
        start = position + LENGTH.size
        if start > size_bytes:
            raise EntryError(f"a length is cut off at byte {position}")
        (length,) = LENGTH.unpack_from(view, position)
        end = start + length
        if end > size_bytes:
            raise EntryError(
                f"an entry at byte {position} claims {length} bytes where "
                f"{size_bytes - start} are left"
            )
        yield _read_entry(view[start:end], position)
        position = end


def _read_entry(body: memoryview, place: int) -> LogEntry:
    """Read the fields of one entry. The last value of a repeated field counts."""
    numbers: dict[int, int] = {}
    parts: dict[int, memoryview] = {}
    position, end = 0, len(body)
    while position < end:
        tag, position = read_number(body, position)
        kind = tag & 7
        if kind == _VARINT:
            numbers[tag], position = read_number(body, position)
        elif kind == _BYTES:
            length, start = read_number(body, position)
            position = start + length
            parts[tag] = body[start:position]
        elif kind == _FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        else:
            raise EntryError(f"the entry at byte {place} has a field of type {kind}")
    if position > end:
        raise EntryError(f"a field of the entry at byte {place} is cut off")
    nothing = body[:0]
    return LogEntry(
        signed(numbers.get(_OFFSET, 0)),
        signed(numbers.get(_TS_NS, 0)),
        parts.get(_DATA, nothing),
        parts.get(_KEY, nothing),
        signed(numbers.get(_KEY_HASH, 0)),
        parts.get(_EXTENSION, nothing),
        place,
    )
