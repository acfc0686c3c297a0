"""Reads and writes the varints of records, a whole column at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]
    Bytes = NDArray[np.uint8]
    Flags = NDArray[np.bool_]

MAX_VARINT_BYTES: Final = 10
_ONE: Final = np.uint64(1)
_SEVEN_BITS: Final = np.uint64(0x7F)


def read_varints(
    data: Bytes, positions: Int64s, wrong: Flags, bits: int = 32
) -> tuple[Int64s, Int64s]:
    """Return the signed numbers at `positions`, and the position after each.

    For a position beyond the end of `data`, the last byte is read. If a number has more than `bits`
    bits, its flag in `wrong` becomes true and its value is meaningless.
    """
    first = data.take(positions, mode="clip")
    after = positions + 1
    unsigned = first.astype(np.uint64)
    rows = np.flatnonzero(first > 0x7F)
    if rows.size:
        read = unsigned[rows] & _SEVEN_BITS
        at = after[rows]
        for shift in range(7, bits, 7):
            byte = data.take(at, mode="clip")
            at += 1
            read |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            goes_on = byte > 0x7F
            if bits - shift < 7:
                wrong[rows[(byte >> (bits - shift)) != 0]] = True
            if not goes_on.any():
                break
            ended = ~goes_on
            unsigned[rows[ended]] = read[ended]
            after[rows[ended]] = at[ended]
            rows, read, at = rows[goes_on], read[goes_on], at[goes_on]
        unsigned[rows] = read
        after[rows] = at
    return (unsigned >> _ONE).view(np.int64) ^ -(unsigned & _ONE).view(np.int64), after


def varint_sizes(numbers: Int64s) -> Int64s:
    """Return the size of each signed number as a varint."""
    unsigned = _zigzag(numbers)
    sizes = np.ones(len(unsigned), np.int64)
    largest = int(unsigned.max(initial=0))
    for shift in range(7, min(largest.bit_length(), 64), 7):
        sizes += unsigned >= np.uint64(1 << shift)
    return sizes


def write_varints(columns: Sequence[Int64s]) -> tuple[Bytes, Int64s]:
    """Write the numbers of each row, one column after the other.

    Returns the bytes of all rows, and where each row begins in them, with the end as last element.
    """
    sizes = [varint_sizes(column) for column in columns]
    offsets = np.zeros(len(columns[0]) + 1, np.int64)
    np.cumsum(sum(sizes), out=offsets[1:])
    output = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    for column, size in zip(columns, sizes, strict=True):
        unsigned = _zigzag(column)
        for index in range(int(size.max(initial=1))):
            rows = slice(None) if not index else np.flatnonzero(size > index)
            byte = (unsigned[rows] >> np.uint64(7 * index)) & _SEVEN_BITS
            byte |= (size[rows] > index + 1).astype(np.uint64) << np.uint64(7)
            output[at[rows] + index] = byte
        at += size
    return output, offsets


def _zigzag(numbers: Int64s) -> NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
