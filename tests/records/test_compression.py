from __future__ import annotations

import os
from random import Random

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode
from kgw.records.batch import Compression
from kgw.records.compression import XERIAL_MAGIC, compress, decompress
from kgw.records.errors import RecordError
from kgw.records.limits import DecompressionLimits
from tests.records import strategies
from tests.records.bombs import snappy_claim, snappy_zeros

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
SMALL = DecompressionLimits(max_bytes=10_000, max_ratio=200, always_bytes=10_000)


@given(data=st.binary(max_size=3_000), codec=strategies.codecs)
def test_round_trip(data: bytes, codec: Compression) -> None:
    """What one codec made is what it makes of it again."""
    assert data == decompress(codec, compress(codec, data))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("level", [None, 1, 9])
def test_large_data_round_trips_in_steps(codec: Compression, level: int | None) -> None:
    """Several steps and blocks come out as one; the level changes only the size."""
    data = os.urandom(300_000) + bytes(900_000)

    assert data == decompress(codec, compress(codec, data, level))


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_cut_off_is_refused(codec: Compression) -> None:
    """No beginning of compressed data is taken for the whole."""
    data = bytes(compress(codec, os.urandom(200) * 3))
    for length in range(len(data)):
        if codec is Compression.SNAPPY and length == 16:
            # A stream of no blocks is whole.
            continue
        with pytest.raises(RecordError) as caught:
            decompress(codec, data[:length])
        assert ErrorCode.CORRUPT_MESSAGE is caught.value.code


@pytest.mark.parametrize("codec", CODECS)
def test_other_bytes_are_refused(codec: Compression) -> None:
    """Data that is another codec's, or nobody's, or goes on behind its end, is named broken."""
    whole = bytes(compress(codec, b"x" * 100))
    for data in (b"", b"nothing of the kind", b"\xff" * 40, bytes(40), whole + b"garbage"):
        with pytest.raises(RecordError):
            decompress(codec, data)


@pytest.mark.parametrize("codec", CODECS)
def test_streams_one_after_the_other_are_one(codec: Compression) -> None:
    """Members, frames and framed streams may follow each other, as their formats allow."""
    data = bytes(compress(codec, b"one")) + bytes(compress(codec, b"two"))

    assert b"onetwo" == decompress(codec, data)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_there_are_not_absurdly_many_parts(codec: Compression) -> None:
    """Each costs a call into the codec; a thousand small ones may be, or any of the usual size."""
    part = bytes(compress(codec, b"part"))
    assert b"part" * 1_000 == decompress(codec, part * 1_000)
    with pytest.raises(RecordError) as caught:
        decompress(codec, part * 2_000)
    assert ErrorCode.CORRUPT_MESSAGE is caught.value.code
    noise = Random(1).randbytes(2_000)
    assert noise * 2_000 == decompress(codec, bytes(compress(codec, noise)) * 2_000)


@pytest.mark.parametrize("codec", CODECS)
def test_the_size_limit_is_exact(codec: Compression) -> None:
    """As much as allowed comes out, one byte more does not."""
    assert len(decompress(codec, compress(codec, bytes(10_000)), SMALL)) == 10_000
    with pytest.raises(RecordError) as caught:
        decompress(codec, compress(codec, bytes(10_001)), SMALL)
    assert ErrorCode.MESSAGE_TOO_LARGE is caught.value.code


def test_the_ratio_counts_past_what_is_always_allowed() -> None:
    """Little data may compress as well as it can; much may not."""
    limits = DecompressionLimits(max_bytes=1 << 20, max_ratio=10, always_bytes=1_000)

    assert [1_000, 1_000, 2_000, 1 << 20] == [
        limits.bound(size_bytes) for size_bytes in (1, 100, 200, 1 << 20)
    ]


@pytest.mark.parametrize(
    "data",
    [
        # Ten bytes cannot become a million in this format, whatever the limit.
        b"\xc0\x84\x3d" + bytes(7),
        b"\xff\xff\xff\xff\x0f" + bytes(20),
        b"\xff\xff\xff\xff\x7f" + bytes(20),
        b"\x80\x80\x80\x80\x80\x80\x01",
        XERIAL_MAGIC + bytes(8) + (1 << 30).to_bytes(4, "big") + bytes(10),
        XERIAL_MAGIC + bytes(8) + b"\xff\xff\xff\xff" + bytes(10),
        XERIAL_MAGIC + bytes(8) + b"\x00\x00\x00\x00",
        XERIAL_MAGIC + bytes(8) + b"\x00\x00\x00\x05\xff\xff\xff\xff\x0f",
        XERIAL_MAGIC + bytes(8) + b"\x00\x00",
        XERIAL_MAGIC + bytes(3),
    ],
)
def test_snappy_sizes_are_judged_before_they_are_believed(data: bytes) -> None:
    """A block that claims gigabytes is refused without allocating them."""
    with pytest.raises(RecordError):
        decompress(Compression.SNAPPY, data)


def test_zstd_skippable_frames_and_checksums_are_understood() -> None:
    """Everything that the format has beside plain frames is stepped over."""
    frame = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(b"x")
    skippable = (0x184D2A53).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"

    assert b"x" == decompress(Compression.ZSTD, skippable + frame)
    with pytest.raises(RecordError):
        decompress(Compression.ZSTD, frame[:-1])


def test_zstd_windows_are_bounded() -> None:
    """A frame that asks for a window of 2 GB is refused."""
    # Descriptor: no content size, no single segment; window descriptor: exponent 21.
    frame = bytes.fromhex("28b52ffd00a8") + b"\x03\x00\x80" + b"x"

    with pytest.raises(RecordError, match=r"memory|window|cannot|decompress"):
        decompress(Compression.ZSTD, frame)


def test_the_checksums_of_gzip_are_compared() -> None:
    """A wrong one in the trailer is found."""
    data = bytearray(compress(Compression.GZIP, b"abc" * 10))
    data[-5] ^= 1

    with pytest.raises(RecordError):
        decompress(Compression.GZIP, data)


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_what_becomes_large_is_whole(codec: Compression) -> None:
    """More than is kept at the first time comes out the second time, in its order."""
    data = b"".join(index.to_bytes(8, "big") * 64 for index in range(20_000))
    assert len(data) > 9 << 20
    limits = DecompressionLimits(max_ratio=10_000)
    assert data == decompress(codec, compress(codec, data), limits)


@pytest.mark.parametrize(
    ("size_bytes", "window_log", "is_refused"),
    [(8 << 20, 24, False), ((8 << 20) + 1, 24, True), ((8 << 20) + 1, 23, False)],
)
def test_a_large_window_may_not_become_much(
    size_bytes: int, window_log: int, is_refused: bool
) -> None:
    """What comes out stays in the window of a zstd frame as well, above the usual 8 MB of it."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    content = b"".join(index.to_bytes(4, "big") * 16 for index in range((size_bytes >> 6) + 1))
    data = compressor.compress(content[:size_bytes]) + compressor.flush()
    if not is_refused:
        assert content[:size_bytes] == decompress(Compression.ZSTD, data)
        return
    with pytest.raises(RecordError, match="becomes more than the allowed 8388608 bytes"):
        decompress(Compression.ZSTD, data)


def test_one_segment_is_its_own_window() -> None:
    """A frame without a window has its whole content for one."""
    content = b"".join(index.to_bytes(4, "big") * 16 for index in range(150_000))
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=24)
    data = zstandard.ZstdCompressor(compression_params=parameters).compress(content)
    assert data[4] & 1 << 5
    with pytest.raises(RecordError, match="allowed 8388608 bytes"):
        decompress(Compression.ZSTD, data)


def test_a_snappy_claim_that_no_format_keeps_is_refused() -> None:
    """64 bytes of three are the best that a copy makes."""
    block = snappy_claim(23 * 1000, bytes(997))
    with pytest.raises(RecordError, match="1000 bytes cannot become 23000"):
        decompress(Compression.SNAPPY, block)
    assert 64 * 330 + 1 == len(decompress(Compression.SNAPPY, snappy_zeros(1000)))
