"""Variable-length integers, strings and tagged fields, one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import DecodeError, EncodeError
from kgw.protocol.primitives import (
    read_bytes,
    read_int16,
    read_nullable_string,
    read_unsigned_varint,
    skip_tagged_fields,
    unsigned_varint,
    write_nullable_string,
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


@given(st.integers(0, 2**32 - 1))
def test_varints_round_trip(value: int) -> None:
    """Every value comes back, from any position."""
    out = bytearray(b"??") + unsigned_varint(value)
    assert (value, len(out)) == read_unsigned_varint(memoryview(out), 2)


def test_truncated_varints() -> None:
    """A varint that does not end is a DecodeError."""
    for data in (b"", b"\x80", b"\xff\xff\xff"):
        with pytest.raises(DecodeError, match="truncated"):
            read_unsigned_varint(data, 0)


def test_overlong_varints() -> None:
    """Padding within five bytes is accepted as in Kafka; more bytes are not."""
    assert (1, 3) == read_unsigned_varint(b"\x81\x80\x00", 0)
    assert (1, 5) == read_unsigned_varint(b"\x81\x80\x80\x80\x00", 0)
    assert (2**32 - 1, 5) == read_unsigned_varint(b"\xff\xff\xff\xff\x7f", 0)
    with pytest.raises(DecodeError, match="more than 5"):
        read_unsigned_varint(b"\x81\x80\x80\x80\x80\x00", 0)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_varints_out_of_range(value: int) -> None:
    """Values that do not fit the type are refused, not cut."""
    with pytest.raises(EncodeError):
        unsigned_varint(value)


def test_fixed_integers() -> None:
    """Big-endian, signed, and never beyond the end."""
    assert (-2, 2) == read_int16(b"\xff\xfe", 0)
    assert (258, 3) == read_int16(b"?\1\2", 1)
    with pytest.raises(DecodeError):
        read_int16(b"\0", 0)


def test_bytes_are_never_fewer_than_asked_for() -> None:
    """Slicing would silently return less than a length promises."""
    assert (b"bc", 3) == read_bytes(b"abcd", 1, 2)
    for size in (5, -1):
        with pytest.raises(DecodeError, match="announced, 4 left"):
            read_bytes(b"abcd", 0, size)


def test_strings_with_the_old_length() -> None:
    """Two bytes of length, -1 for null, UTF-8; what is none is replaced."""
    for text in (None, "", "naïve"):
        out = bytearray()
        write_nullable_string(out, text)
        assert (text, len(out)) == read_nullable_string(out, 0)
    assert ("ab", 4) == read_nullable_string(b"\0\2ab", 0)
    assert ("caf\ufffd", 6) == read_nullable_string(b"\0\4caf\xe9", 0)
    with pytest.raises(DecodeError):
        read_nullable_string(b"\xff\xfe", 0)
    with pytest.raises(EncodeError):
        write_nullable_string(bytearray(), "x" * 32768)


def test_unknown_tagged_fields_are_skipped() -> None:
    """The position after the section is returned, and its end is respected."""
    section = b"\x02\x00\x01a\x05\x00"
    assert 7 == skip_tagged_fields(b"?" + section + b"rest", 1, 11)
    with pytest.raises(DecodeError, match="truncated"):
        skip_tagged_fields(b"\x01\x00\x05abc", 0, 6)
