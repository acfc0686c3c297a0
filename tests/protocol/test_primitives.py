"""Variable-length integers, strings and tagged fields, one at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import DecodeError, EncodeError
from kgw.protocol.primitives import (
    read_bytes,
    read_int16,
    read_int32,
    read_int64,
    read_nullable_string,
    read_string,
    read_unsigned_varint,
    read_varint,
    read_varlong,
    skip_tagged_fields,
    unsigned_varint,
    varint_size,
    write_nullable_string,
    write_unsigned_varint,
    write_varint,
    write_varlong,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varints(value: int, encoded: str) -> None:
    """Seven bits a byte, lowest first, as Kafka and Protocol Buffers write them."""
    assert bytes.fromhex(encoded) == unsigned_varint(value)
    assert (value, len(encoded) // 2) == read_unsigned_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (63, "7e")]
)
def test_varints_are_zigzag(value: int, encoded: str) -> None:
    """Small negative numbers are as short as small positive ones."""
    for read, write in ((read_varint, write_varint), (read_varlong, write_varlong)):
        out = bytearray()
        write(out, value)
        assert bytes.fromhex(encoded) == out
        assert (value, len(out)) == read(out, 0)


_KINDS = pytest.mark.parametrize(
    ("write", "read", "low", "high"),
    [
        (write_unsigned_varint, read_unsigned_varint, 0, 2**32 - 1),
        (write_varint, read_varint, -(2**31), 2**31 - 1),
        (write_varlong, read_varlong, -(2**63), 2**63 - 1),
    ],
)


@_KINDS
@given(data=st.data())
def test_varints_round_trip(
    write: Any, read: Any, low: int, high: int, data: st.DataObject
) -> None:
    """Every value comes back, from any position; the size of signed ones is foretold."""
    value = data.draw(st.integers(low, high))
    out = bytearray(b"??")
    write(out, value)
    assert (value, len(out)) == read(memoryview(out), 2)
    if low:
        assert len(out) - 2 == varint_size(value)
    else:
        assert out[2:] == unsigned_varint(value)


@pytest.mark.parametrize("read", [read_unsigned_varint, read_varint, read_varlong])
def test_truncated_varints(read: Any) -> None:
    """A varint that does not end is a DecodeError."""
    for data in (b"", b"\x80", b"\xff\xff\xff"):
        with pytest.raises(DecodeError, match="truncated"):
            read(data, 0)


def test_overlong_varints() -> None:
    """Padding within five or ten bytes is accepted as in Kafka; more bytes are not."""
    assert (1, 3) == read_unsigned_varint(b"\x81\x80\x00", 0)
    assert (1, 5) == read_unsigned_varint(b"\x81\x80\x80\x80\x00", 0)
    assert (2**32 - 1, 5) == read_unsigned_varint(b"\xff\xff\xff\xff\x7f", 0)
    assert (-1, 10) == read_varlong(b"\x81" + b"\x80" * 8 + b"\x00", 0)
    with pytest.raises(DecodeError, match="more than 5"):
        read_unsigned_varint(b"\x81\x80\x80\x80\x80\x00", 0)
    with pytest.raises(DecodeError, match="more than 10"):
        read_varlong(b"\x81" + b"\x80" * 9 + b"\x00", 0)


@_KINDS
def test_varints_out_of_range(write: Any, read: Any, low: int, high: int) -> None:
    """Values that do not fit the type are refused, not cut."""
    for value in (low - 1, high + 1):
        with pytest.raises(EncodeError):
            write(bytearray(), value)


def test_fixed_integers() -> None:
    """Big-endian, signed, and never beyond the end."""
    assert (-2, 2) == read_int16(b"\xff\xfe", 0)
    assert (258, 5) == read_int32(b"?\0\0\1\2", 1)
    assert (-1, 8) == read_int64(b"\xff" * 8, 0)
    for read in (read_int16, read_int32, read_int64):
        with pytest.raises(DecodeError):
            read(b"\0", 0)


def test_bytes_are_never_fewer_than_asked_for() -> None:
    """Slicing would silently return less than a length promises."""
    assert (b"bc", 3) == read_bytes(b"abcd", 1, 2)
    for size in (5, -1):
        with pytest.raises(DecodeError, match="announced, 4 left"):
            read_bytes(b"abcd", 0, size)


def test_strings_with_the_old_length() -> None:
    """Two bytes of length, -1 for null, UTF-8."""
    for text in (None, "", "naïve"):
        out = bytearray()
        write_nullable_string(out, text)
        assert (text, len(out)) == read_nullable_string(out, 0)
    assert ("ab", 4) == read_string(b"\0\2ab", 0)
    with pytest.raises(DecodeError, match="null"):
        read_string(b"\xff\xff", 0)
    with pytest.raises(DecodeError, match="UTF-8"):
        read_string(b"\0\1\xff", 0)
    with pytest.raises(DecodeError):
        read_string(b"\xff\xfe", 0)
    with pytest.raises(EncodeError):
        write_nullable_string(bytearray(), "x" * 32768)


def test_unknown_tagged_fields_are_skipped() -> None:
    """The position after the section is returned, and its end is respected."""
    section = b"\x02\x00\x01a\x05\x00"
    assert 7 == skip_tagged_fields(b"?" + section + b"rest", 1, 11)
    with pytest.raises(DecodeError, match="truncated"):
        skip_tagged_fields(b"\x01\x00\x05abc", 0, 6)
