"""One record, in the form for tools, and the varints in its encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER_KEY_ERRORS: Final = "surrogateescape"
"""Header keys are UTF-8. Other bytes are preserved when a key is read and written again."""


class Record(NamedTuple):
    """One record of a batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


MAX_TIMESTAMP_MS: Final = (1 << 63) - 1


def as_int64(value: int) -> int:
    """Return the lowest 64 bits of a number as a signed one.

    Sums of timestamps overflow in this way in every client.
    """
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def append_varint(output: bytearray, value: int) -> None:
    """Append a signed number in zigzag form, seven bits a byte, as records contain it."""
    unsigned = (value << 1) ^ (value >> 63)
    while unsigned > 0x7F:
        output.append((unsigned & 0x7F) | 0x80)
        unsigned >>= 7
    output.append(unsigned)


def read_varint(data: bytes | bytearray, position: int, bits: int = 32) -> tuple[int, int]:
    """Return the signed number at `position` and the position after it.

    Raises RecordError if it is cut off or has more than `bits` bits.
    """
    try:
        byte = data[position]
        position += 1
        # Most numbers have one byte.
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position
        unsigned = byte & 0x7F
        shift = 7
        while (byte := data[position]) >= 0x80 and shift < bits:
            unsigned |= (byte & 0x7F) << shift
            shift += 7
            position += 1
    except IndexError:
        raise RecordError("a number is cut off", ErrorCode.INVALID_RECORD) from None
    unsigned |= byte << shift
    if shift >= bits or unsigned >> bits:
        raise RecordError(f"a number has more than {bits} bits", ErrorCode.INVALID_RECORD)
    return (unsigned >> 1) ^ -(unsigned & 1), position + 1
