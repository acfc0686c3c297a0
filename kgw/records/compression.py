"""The four codecs, and how much of a stranger's bytes they may become.

The codecs are imported at first use: a gateway that passes batches through needs none of them.
Decompression goes in steps whose output is bounded, and ends when the limit is passed, whatever
sizes the compressed bytes claim (the snappy-java family of CVEs, and decompression bombs).
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kgw.errors import ErrorCode
from kgw.records.batch import Compression
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS, DecompressionLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.types import Buffer

_STEP_BYTES: Final = 256 << 10
"""What one step may add: enough to be fast, little enough to stop in time."""

_GZIP_WINDOW_BITS: Final = 16 + 15
"""A gzip header and checksum around zlib's largest window."""

ZSTD_MAX_WINDOW_BYTES: Final = 128 << 20
"""What Java's and librdkafka's decoders allow; it is address space until it is written to."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = XERIAL_MAGIC + Struct(">ii").pack(1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 << 10
_XERIAL_LENGTH: Final = Struct(">i")
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50
_ZSTD_RUN_BLOCK: Final = 1

_SNAPPY_MAX_RATIO: Final = 64
"""A copy of at most 64 bytes takes two; nothing in the format does better."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """Return `data` as producers write it. `level` is the codec's own; snappy has none."""
    if codec is Compression.NONE:
        return data
    return _COMPRESSORS[codec](data, level)


def decompress(
    codec: Compression, data: Buffer, limits: DecompressionLimits = DEFAULT_LIMITS
) -> Buffer:
    """Return what `compress`, or any Kafka client, made `data` of.

    Raises RecordError: CORRUPT_MESSAGE for bytes that are not the codec's, MESSAGE_TOO_LARGE when
    more comes out than `limits` allow.
    """
    if codec is Compression.NONE:
        return data
    return _DECOMPRESSORS[codec](data, limits.bound(len(data)))


def _refuse_size(codec: Compression, bound: int) -> NoReturn:
    raise RecordError(
        f"{codec.name.lower()} data becomes more than the allowed {bound} bytes",
        ErrorCode.MESSAGE_TOO_LARGE,
    )


def _refuse_data(codec: Compression, reason: object) -> NoReturn:
    raise RecordError(f"{codec.name.lower()} data is broken: {reason}")


# --- gzip ---


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, bound: int) -> bytearray:
    # Members may follow each other, as they do in files.
    return _decompress_parts(
        Compression.GZIP, data, bound, lambda: zlib.decompressobj(_GZIP_WINDOW_BITS), zlib.error
    )


def _decompress_parts(
    codec: Compression,
    data: Buffer,
    bound: int,
    begin: Callable[[], Any],
    failure: type[Exception],
) -> bytearray:
    """Decompress parts that follow each other, by decompressors as zlib's, one for each."""
    output = bytearray()
    pending = data
    while True:
        decompressor = begin()
        while not decompressor.eof:
            try:
                step = decompressor.decompress(pending, min(_STEP_BYTES, bound - len(output) + 1))
            except failure as error:
                _refuse_data(codec, error)
            output += step
            if len(output) > bound:
                _refuse_size(codec, bound)
            # lz4's keeps for itself what it has not come to.
            pending = getattr(decompressor, "unconsumed_tail", b"")
            if not step and not pending and not decompressor.eof:
                _refuse_data(codec, "it is cut off")
        pending = decompressor.unused_data
        if not pending:
            return output


# --- snappy ---


def _compress_snappy(data: Buffer, _level: int | None) -> bytes:
    from snappy import compress as compress_block

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = compress_block(bytes(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_XERIAL_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, bound: int) -> bytearray:
    """Accept Java's framing, and the bare block that librdkafka and Go clients write."""
    view = memoryview(data)
    output = bytearray()
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        _decompress_snappy_block(view, output, bound)
        return output
    position = 0
    end = len(view)
    while position < end:
        if bytes(view[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            # Streams may follow each other, each with its header.
            position += len(_XERIAL_HEADER)
            continue
        start = position + _XERIAL_LENGTH.size
        if start > end:
            _refuse_data(Compression.SNAPPY, "a block's length is cut off")
        (length,) = _XERIAL_LENGTH.unpack_from(view, position)
        if not 0 < length <= end - start:
            _refuse_data(Compression.SNAPPY, f"a block of {length} bytes where {end - start} are")
        _decompress_snappy_block(view[start : start + length], output, bound)
        position = start + length
    if position != end:
        _refuse_data(Compression.SNAPPY, "its header is cut off")
    return output


def _decompress_snappy_block(block: memoryview, output: bytearray, bound: int) -> None:
    from snappy import UncompressError, uncompress

    # The decoder allocates what the block claims, so that the claim is judged first.
    claimed = _snappy_length(block)
    if len(output) + claimed > bound:
        _refuse_size(Compression.SNAPPY, bound)
    if claimed > len(block) * _SNAPPY_MAX_RATIO:
        _refuse_data(Compression.SNAPPY, f"{len(block)} bytes cannot become {claimed}")
    try:
        output += uncompress(bytes(block))
    except UncompressError as error:
        _refuse_data(Compression.SNAPPY, error.__cause__ or error)


def _snappy_length(block: memoryview) -> int:
    """Read the length that a bare block begins with: a varint of at most 32 bits."""
    length = 0
    for index, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return length
    _refuse_data(Compression.SNAPPY, "it has no length")


# --- lz4 ---


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    # Independent blocks and no content size, as Java's decoder expects them.
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _decompress_lz4(data: Buffer, bound: int) -> bytearray:
    import lz4.frame

    return _decompress_parts(
        Compression.LZ4, data, bound, lz4.frame.LZ4FrameDecompressor, RuntimeError
    )


# --- zstd ---


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _decompress_zstd(data: Buffer, bound: int) -> bytearray:
    import zstandard

    _check_zstd_frames(memoryview(data))
    output = bytearray()
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            while step := reader.read(min(_STEP_BYTES, bound - len(output) + 1)):
                output += step
                if len(output) > bound:
                    _refuse_size(Compression.ZSTD, bound)
    except (zstandard.ZstdError, MemoryError) as error:
        _refuse_data(Compression.ZSTD, error)
    return output


def _check_zstd_frames(data: memoryview) -> None:
    """Raise RecordError unless whole frames fill `data` (RFC 8878, 3.1).

    The library's reader takes the end of its input for the end of the frame.
    """
    position = 0
    end = len(data)
    while True:
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic == _ZSTD_MAGIC:
            position = _skip_zstd_frame(data, position + 4)
        elif magic & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        else:
            _refuse_data(Compression.ZSTD, "no frame begins where one should")
        if position > end:
            _refuse_data(Compression.ZSTD, "it is cut off")
        if position == end:
            return


def _skip_zstd_frame(data: memoryview, position: int) -> int:
    """Return the position after the frame whose descriptor is at `position`."""
    end = len(data)
    if position >= end:
        return end + 1
    descriptor = data[position]
    single_segment = descriptor >> 5 & 1
    content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary_id_bytes = (0, 1, 2, 4)[descriptor & 3]
    position += 1 + (1 - single_segment) + dictionary_id_bytes + content_size_bytes
    while position + 3 <= end:
        block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        # A run's block has one byte, however long it becomes.
        position += 3 + (1 if block >> 1 & 3 == _ZSTD_RUN_BLOCK else block >> 3)
        if block & 1:
            return position + (4 if descriptor & 4 else 0)
    return end + 1


_COMPRESSORS: Final[dict[Compression, Callable[[Buffer, int | None], bytes]]] = {
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: Final[dict[Compression, Callable[[Buffer, int], bytearray]]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
