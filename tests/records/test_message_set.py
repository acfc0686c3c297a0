"""Message sets as producers send them: what is read, and what is refused."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from kgw.errors import ErrorCode
from kgw.records.batch import Compression
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS, DecompressionLimits
from kgw.records.message_set import (
    encode_message,
    encode_wrapper,
    has_few_messages,
    is_compressed,
    magic_of,
    read_message_set,
)
from tests.records.message_sets import (
    CODECS,
    LOG_APPEND_TIME,
    lz4_frame,
    message,
    wrapper,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_MS = 1_700_000_000_000
Found = tuple[int, bytes | None, bytes | None]


def found(message_set: bytes, limits: DecompressionLimits = DEFAULT_LIMITS) -> list[Found]:
    """Return time, key and value of each message."""
    return [
        (
            one.timestamp_ms,
            None if one.key is None else bytes(one.key),
            None if one.value is None else bytes(one.value),
        )
        for one in read_message_set(message_set, limits).messages
    ]


def inside(magic: int) -> tuple[bytes, ...]:
    """Return three messages as they lie in a wrapper."""
    return (
        message(magic, b"a", key=b"k", offset=0, timestamp_ms=NOW_MS),
        message(magic, None, key=b"", offset=1, timestamp_ms=-1),
        message(magic, b"", offset=2, timestamp_ms=NOW_MS + 5),
    )


def expected(magic: int) -> list[Found]:
    """Return what is read of them."""
    times = (NOW_MS, -1, NOW_MS + 5) if magic else (-1, -1, -1)
    return [(times[0], b"k", b"a"), (times[1], b"", None), (times[2], None, b"")]


def test_bytes_of_format_0() -> None:
    """By hand: offset, size, CRC, magic, attributes, key and value behind their lengths."""
    raw = bytes.fromhex("0000000000000007 00000013 fdc12e2f 00 00 00000001 6b 00000004 76616c75")
    assert raw == encode_message(0, 7, NOW_MS, b"k", b"valu", LOG_APPEND_TIME)
    assert [(-1, b"k", b"valu")] == found(raw)


def test_bytes_of_format_1() -> None:
    """With a timestamp behind the attributes; null is length -1."""
    raw = bytes.fromhex(
        "0000000000000007 00000016 46f14185 01 08 0000018bcfe56800 ffffffff ffffffff"
    )
    assert raw == encode_message(1, 7, NOW_MS, None, None, LOG_APPEND_TIME)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("is_raw", [False, True])
def test_reads_each_codec(magic: int, codec: Compression, is_raw: bool) -> None:
    """A set, or a wrapper around it; Snappy bare or in Java's frames."""
    messages = inside(magic)
    plain = b"".join(messages)
    sent = plain if not codec else wrapper(magic, codec, *messages, offset=2, is_raw=is_raw)
    read = read_message_set(sent, DEFAULT_LIMITS)
    assert (magic, codec) == (read.magic, read.compression)
    assert expected(magic) == found(sent)
    assert bool(codec) == is_compressed(sent)


@pytest.mark.parametrize("checksum", [0x82, 0x00, 0x1A])
def test_format_0_takes_any_checksum_of_an_lz4_header(checksum: int) -> None:
    """Right, or wrong as the first clients have it (KAFKA-3160); format 1 takes the right one."""
    for magic in (0, 1):
        frame = lz4_frame(b"".join(inside(magic)), header_checksum=checksum)
        sent = message(magic, frame, attributes=Compression.LZ4)
        if magic == 0 or checksum == 0x82:
            assert expected(magic) == found(sent)
        else:
            with pytest.raises(RecordError) as caught:
                found(sent)
            assert ErrorCode.CORRUPT_MESSAGE is caught.value.code


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS[1:])
def test_reads_what_we_write(magic: int, codec: Compression) -> None:
    """Wrappers of ours are read back, the wrong checksum of LZ4 included."""
    raw = encode_wrapper(magic, codec, 2, NOW_MS, b"".join(inside(magic)))
    assert expected(magic) == found(raw)


@pytest.mark.parametrize("offsets", [(0, 0, 0), (5, 4, 3), (2, 2, 9), (-1, -1, -1)])
@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_do_not_count(magic: int, offsets: tuple[int, ...]) -> None:
    """Old clients have them in several ways: messages are taken in the order in which they lie."""
    messages = [message(magic, b"%d" % one, offset=one) for one in offsets]
    values = [b"%d" % one for one in offsets]
    assert values == [value for _, _, value in found(b"".join(messages))]
    last = max(0, offsets[-1])
    sent = wrapper(magic, Compression.GZIP, *messages, offset=last)
    assert values == [value for _, _, value in found(sent)]


REFUSED: dict[str, tuple[Callable[[int], bytes], ErrorCode]] = {
    "a CRC": (lambda magic: message(magic, b"v", crc_off=1), ErrorCode.CORRUPT_MESSAGE),
    "a CRC of the second": (
        lambda magic: message(magic, b"v") + message(magic, b"v", crc_off=1),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "a CRC inside": (
        lambda magic: wrapper(magic, Compression.GZIP, message(magic, b"v", crc_off=1)),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "too long": (lambda magic: message(magic, b"v", size_off=1), ErrorCode.CORRUPT_MESSAGE),
    "too short": (lambda magic: message(magic, b"v", size_off=-1), ErrorCode.CORRUPT_MESSAGE),
    "negative size": (lambda magic: message(magic, b"v", size_off=-99), ErrorCode.CORRUPT_MESSAGE),
    "huge size": (
        lambda magic: message(magic, b"v", size_off=(1 << 31) - 99),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "cut off": (lambda magic: message(magic, b"v" * 20)[:-1], ErrorCode.CORRUPT_MESSAGE),
    "a rest": (lambda magic: message(magic, b"v") + b"\0" * 5, ErrorCode.CORRUPT_MESSAGE),
    "a rest inside": (
        lambda magic: wrapper(magic, Compression.GZIP, message(magic, b"v"), b"\0" * 30),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "no bytes of the codec": (
        lambda magic: message(magic, b"nonsense", attributes=Compression.GZIP),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "two formats": (
        lambda magic: message(magic, b"v") + message(1 - magic, b"v"),
        ErrorCode.INVALID_RECORD,
    ),
    "another format inside": (
        lambda magic: wrapper(magic, Compression.GZIP, message(1 - magic, b"v")),
        ErrorCode.INVALID_RECORD,
    ),
    "two wrappers": (
        lambda magic: wrapper(magic, Compression.GZIP, message(magic, b"v")) * 2,
        ErrorCode.INVALID_RECORD,
    ),
    "a wrapper behind a message": (
        lambda magic: message(magic, b"v") + wrapper(magic, Compression.GZIP, message(magic, b"v")),
        ErrorCode.INVALID_RECORD,
    ),
    "a wrapper in a wrapper": (
        lambda magic: wrapper(
            magic, Compression.GZIP, wrapper(magic, Compression.GZIP, message(magic, b"v"))
        ),
        ErrorCode.INVALID_RECORD,
    ),
    "nothing inside": (lambda magic: wrapper(magic, Compression.GZIP), ErrorCode.INVALID_RECORD),
    "null inside": (
        lambda magic: message(magic, None, attributes=Compression.GZIP),
        ErrorCode.INVALID_RECORD,
    ),
    "zstd": (
        lambda magic: message(magic, b"v", attributes=Compression.ZSTD),
        ErrorCode.INVALID_RECORD,
    ),
    "an unknown codec": (
        lambda magic: message(magic, b"v", attributes=7),
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("what", REFUSED)
def test_refuses(magic: int, what: str) -> None:
    """Each with the code that Kafka's broker gives."""
    make, code = REFUSED[what]
    with pytest.raises(RecordError) as caught:
        found(make(magic))
    assert code is caught.value.code


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (message(1, b"v", timestamp_ms=-2), ErrorCode.INVALID_TIMESTAMP),
        (message(1, b"v", attributes=LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
        (
            wrapper(1, Compression.GZIP, message(1, b"v"), attributes=LOG_APPEND_TIME),
            ErrorCode.INVALID_TIMESTAMP,
        ),
        (
            wrapper(1, Compression.GZIP, message(1, b"v", timestamp_ms=-2)),
            ErrorCode.INVALID_TIMESTAMP,
        ),
        # An offset that its own messages pass, where librdkafka's 0 says nothing.
        (
            wrapper(1, Compression.GZIP, message(1, b"v", offset=5), offset=4),
            ErrorCode.INVALID_RECORD,
        ),
    ],
    # Not the bytes: gzip's header has the time, and processes that share the tests agree on names.
    ids=["time", "type of time", "type of time inside", "time inside", "offset"],
)
def test_format_1_refuses(sent: bytes, code: ErrorCode) -> None:
    """What format 0 has no word for."""
    with pytest.raises(RecordError) as caught:
        found(sent)
    assert code is caught.value.code


def test_the_type_of_time_inside_does_not_count() -> None:
    """The wrapper's attributes decide, and in format 0 the bit means nothing."""
    one = message(1, b"v", timestamp_ms=NOW_MS, attributes=LOG_APPEND_TIME)
    assert [(NOW_MS, None, b"v")] == found(wrapper(1, Compression.GZIP, one))
    assert [(-1, None, b"v")] == found(message(0, b"v", attributes=LOG_APPEND_TIME))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [-2, 1 << 30])
@pytest.mark.parametrize("position", ["key", "value"])
def test_lengths_that_lie(magic: int, length: int, position: str) -> None:
    """A key and a value fill their message, no more and no less."""
    raw = bytearray(message(magic, b"value", key=b"key"))
    at = (18 if magic == 0 else 26) + (7 if position == "value" else 0)
    raw[at : at + 4] = length.to_bytes(4, "big", signed=True)
    raw[12:16] = crc32(raw[16:]).to_bytes(4, "big")
    with pytest.raises(RecordError) as caught:
        found(bytes(raw))
    assert ErrorCode.CORRUPT_MESSAGE is caught.value.code


def test_every_flipped_bit_is_found() -> None:
    """But those of the offset, which the server gives anyway: CRC and size are about all else."""
    for magic in (0, 1):
        raw = message(magic, b"value" * 9, key=b"key") + message(magic, b"other")
        for bit in range(64, 8 * len(raw)):
            second = 8 * (len(raw) - len(message(magic, b"other")))
            if second <= bit < second + 64:
                continue
            flipped = bytearray(raw)
            flipped[bit >> 3] ^= 1 << (bit & 7)
            with pytest.raises(RecordError):
                found(bytes(flipped))


def test_a_bomb_is_refused() -> None:
    """No more comes out than the limits allow."""
    sent = message(1, gzip.compress(bytes(4 << 20)), attributes=Compression.GZIP)
    with pytest.raises(RecordError) as caught:
        found(sent)
    assert ErrorCode.MESSAGE_TOO_LARGE is caught.value.code
    loose = DecompressionLimits(max_ratio=10_000)
    with pytest.raises(RecordError, match="claims 0 bytes") as caught:
        found(sent, loose)
    assert ErrorCode.CORRUPT_MESSAGE is caught.value.code


def test_magic_of() -> None:
    """Formats 0 to 2 have it in the same place; anything else is corrupt."""
    assert [0, 1, 2] == [magic_of(bytes(16) + bytes([magic])) for magic in (0, 1, 2)]
    for bad in (b"", bytes(16), bytes(16) + b"\x03", bytes(16) + b"\xff"):
        with pytest.raises(RecordError) as caught:
            magic_of(bad)
        assert ErrorCode.CORRUPT_MESSAGE is caught.value.code


def test_few_messages_are_counted_by_their_sizes() -> None:
    """Neither more messages nor sizes that lie are few; what is cut off is found out later."""
    sent = b"".join(message(1, b"v") for _ in range(5))
    assert [False, True, True] == [has_few_messages(sent, most) for most in (4, 5, 6)]
    assert has_few_messages(message(0, b"v", size_off=1 << 30), 1)
    assert has_few_messages(message(0, b"v", size_off=-99) * 9, 1)
    assert has_few_messages(b"", 1)
