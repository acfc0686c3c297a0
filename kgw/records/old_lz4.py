"""LZ4 frames of format 0, whose header checksum covers the wrong bytes.

The first Kafka versions with LZ4 computed the checksum from the frame's magic number on, but by the
LZ4 format it begins after the magic. Format 0 keeps the mistake for clients that verify the
checksum in this way; brokers do not verify it in messages of format 0. Format 1 is correct
(KAFKA-3160, KIP-57).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kgw.types import Buffer

_MAGIC_BYTES: Final = 4
_HAS_CONTENT_SIZE: Final = 0x08
_HAS_DICTIONARY: Final = 0x01

_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
"""The 32-bit primes of xxHash."""
_BITS: Final = 0xFFFF_FFFF


def with_right_checksum(frame: Buffer) -> Buffer:
    """Return a frame with the right checksum in its header.

    Data that is too short for a header is returned unchanged.
    """
    return _with_checksum(frame, _MAGIC_BYTES)


def with_wrong_checksum(frame: Buffer) -> Buffer:
    """Return a frame with the checksum that clients of format 0 expect."""
    return _with_checksum(frame, 0)


def _with_checksum(frame: Buffer, start: int) -> Buffer:
    if len(frame) <= _MAGIC_BYTES:
        return frame
    flags = frame[_MAGIC_BYTES]
    position = _MAGIC_BYTES + 2  # flags and block size
    if flags & _HAS_CONTENT_SIZE:
        position += 8
    if flags & _HAS_DICTIONARY:
        position += 4
    if len(frame) <= position:
        return frame
    changed = bytearray(frame)
    changed[position] = xxh32(changed[start:position]) >> 8 & 0xFF
    return changed


def xxh32(data: bytes | bytearray) -> int:
    """Return the 32-bit xxHash, with seed 0, of less than 16 bytes: enough for any header here."""
    one, two, three, four, five = _PRIMES
    value = five + len(data)
    rest = len(data) & ~3
    for position in range(0, rest, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        value = _turned(value + word * three, 17) * four
    for byte in data[rest:]:
        value = _turned(value + byte * five, 11) * one
    value &= _BITS
    value = (value ^ value >> 15) * two & _BITS
    value = (value ^ value >> 13) * three & _BITS
    return value ^ value >> 16


def _turned(value: int, bits: int) -> int:
    value &= _BITS
    return (value << bits | value >> (32 - bits)) & _BITS
