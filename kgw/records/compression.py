"""The four codecs, with limits on the size of data that unknown clients have compressed.

The codecs are imported at first use: a gateway that stores batches unchanged needs none of them.
Decompression runs in steps with limited output, and ends when the total exceeds the limit, whatever
sizes the compressed data claims (the snappy-java family of CVEs, and decompression bombs). The
output of a decompression bomb is counted but not stored.
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
    from collections.abc import Callable, Iterator

    from kgw.types import Buffer

_STEP_BYTES: Final = 256 << 10
"""The most output of one step: large enough to be fast, small enough to stop in time."""

_INPUT_BYTES: Final = 8 << 10
"""The input that a decompressor gets at once: for each of many small parts it copies the unused
remainder of its input."""

_KEPT_BYTES: Final = 8 << 20
"""Output up to this size is stored at once. Larger output is first only counted to its end, and
then decompressed a second time: so a decompression bomb takes no more memory than this, and few
normal batches are decompressed twice."""

_PARTS: Final = 1_000
_PART_BYTES: Final = 1 << 10
"""Data may have `_PARTS` members, frames or blocks, and one more for each `_PART_BYTES`.

Clients write one part, or blocks of 32 KB. Each part costs a call that releases the interpreter
lock, and under load waits for milliseconds to get it back: a megabyte of empty parts would delay
all other validations.
"""

_GZIP_WINDOW_BITS: Final = 16 + 15
"""A gzip header and checksum around zlib's largest window."""

ZSTD_MAX_WINDOW_BYTES: Final = 128 << 20
"""The largest window that the decoders of Java and librdkafka accept. It is only address space
until it is written to."""
_ZSTD_USUAL_WINDOW_LOG: Final = 23
_ZSTD_USUAL_WINDOW_BYTES: Final = 1 << _ZSTD_USUAL_WINDOW_LOG
"""The largest window that every decoder should support (RFC 8878, 3.1.1.1.2); levels below 20 need
no more.

A frame with a larger window may have an output of at most `_KEPT_BYTES`, because its window takes
the same memory again.
"""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = XERIAL_MAGIC + Struct(">ii").pack(1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 << 10
_XERIAL_LENGTH: Final = Struct(">i")
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50
_ZSTD_RUN_BLOCK: Final = 1
_ZSTD_SINGLE_SEGMENT: Final = 1 << 5
_ZSTD_DICTIONARY_ID_BYTES: Final = (0, 1, 2, 4)

_SNAPPY_MAX_RATIO: Final = 22
"""A copy of up to 64 bytes takes three bytes in snappy; no other element has a higher ratio."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """Compress `data` as producers do. `level` is a level of the codec; snappy has none."""
    if codec is Compression.NONE:
        return data
    return _COMPRESSORS[codec](data, level)


def decompress(
    codec: Compression, data: Buffer, limits: DecompressionLimits = DEFAULT_LIMITS
) -> Buffer:
    """Decompress data that `compress` or any Kafka client has compressed.

    Raises RecordError: CORRUPT_MESSAGE for data that is not in the codec's format,
    MESSAGE_TOO_LARGE if the output exceeds `limits`.
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


def _judge_parts(codec: Compression, count: int, data: Buffer) -> None:
    """Raise RecordError for data with far more parts than clients write."""
    if count > _PARTS + len(data) // _PART_BYTES:
        _refuse_data(codec, f"it has {count} parts and more in {len(data)} bytes")


# --- gzip ---


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, bound: int) -> bytearray:
    # Members may follow each other, as in files.
    return _gather(
        Compression.GZIP,
        bound,
        lambda: _steps(
            Compression.GZIP, data, lambda: zlib.decompressobj(_GZIP_WINDOW_BITS), zlib.error
        ),
    )


def _gather(codec: Compression, bound: int, begin: Callable[[], Iterator[bytes]]) -> bytearray:
    """Return the whole output of a decompression; `begin` starts it, twice if it is large."""
    output = bytearray()
    size_bytes = 0
    for step in begin():
        size_bytes += len(step)
        if size_bytes > bound:
            _refuse_size(codec, bound)
        if size_bytes <= _KEPT_BYTES:
            output += step
        else:
            output.clear()
    if size_bytes > _KEPT_BYTES:
        for step in begin():
            output += step
    return output


def _steps(
    codec: Compression, data: Buffer, begin: Callable[[], Any], failure: type[Exception]
) -> Iterator[bytes]:
    """Decompress consecutive parts, each with a decompressor that has zlib's interface."""
    view = memoryview(data)
    position = 0
    pending: Buffer = b""
    part_count = 0
    while pending or position < len(view) or not position:
        part_count += 1
        _judge_parts(codec, part_count, data)
        decompressor = begin()
        while not decompressor.eof:
            # lz4's decompressor keeps its unused input itself.
            if not pending and getattr(decompressor, "needs_input", True):
                pending = view[position : position + _INPUT_BYTES]
                position += len(pending)
            has_all = not pending and position == len(view)
            try:
                step = decompressor.decompress(pending, _STEP_BYTES)
            except failure as error:
                _refuse_data(codec, error)
            if has_all and not step and not decompressor.eof:
                _refuse_data(codec, "it is cut off")
            pending = getattr(decompressor, "unconsumed_tail", b"")
            yield step
        pending = decompressor.unused_data


# --- snappy ---


def _compress_snappy(data: Buffer, _level: int | None) -> bytes:
    import snappy

    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block: bytes = snappy.compress(view[start : start + _XERIAL_BLOCK_BYTES])
        parts.append(_XERIAL_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, bound: int) -> bytearray:
    """Decompress a bare block, as librdkafka and Go clients write it, or Java's framing."""
    # python-snappy cannot write into an existing buffer, which would take twice the memory
    # (docs/decisions/0093-recompression.md).
    from cramjam import DecompressionError, snappy

    size_bytes = 0
    for block in _snappy_blocks(data):
        # Check all claimed sizes before memory of that size is allocated.
        claimed_bytes = _snappy_length(block)
        size_bytes += claimed_bytes
        if size_bytes > bound:
            _refuse_size(Compression.SNAPPY, bound)
        if claimed_bytes > len(block) * _SNAPPY_MAX_RATIO:
            _refuse_data(Compression.SNAPPY, f"{len(block)} bytes cannot become {claimed_bytes}")
    # Decompress into the result itself: a block of 1 MB may become 21 MB, which would otherwise be
    # in memory twice.
    output = bytearray(size_bytes)
    room = memoryview(output)
    position = 0
    for block in _snappy_blocks(data):
        end = position + _snappy_length(block)
        try:
            snappy.decompress_raw_into(block, room[position:end])
        except DecompressionError as error:
            _refuse_data(Compression.SNAPPY, error)
        position = end
    return output


def _snappy_blocks(data: Buffer) -> Iterator[memoryview]:
    """Yield the blocks of Java's framing; data without that framing is one block."""
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield view
        return
    position = 0
    block_count = 0
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
        block_count += 1
        _judge_parts(Compression.SNAPPY, block_count, data)
        yield view[start : start + length]
        position = start + length
    if position != end:
        _refuse_data(Compression.SNAPPY, "its header is cut off")


def _snappy_length(block: memoryview) -> int:
    """Read the length at the start of a bare block: a varint of at most 32 bits."""
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

    return _gather(
        Compression.LZ4,
        bound,
        lambda: _steps(Compression.LZ4, data, lz4.frame.LZ4FrameDecompressor, RuntimeError),
    )


# --- zstd ---


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    from_level = zstandard.ZstdCompressionParameters.from_level
    size_bytes = len(data)
    level = 3 if level is None else level
    parameters = from_level(level, source_size=size_bytes)
    if parameters.window_log > _ZSTD_USUAL_WINDOW_LOG:
        # Levels from 20 on use larger windows for large data, which `decompress` would refuse.
        parameters = from_level(level, source_size=size_bytes, window_log=_ZSTD_USUAL_WINDOW_LOG)
    compressed: bytes = zstandard.ZstdCompressor(compression_params=parameters).compress(data)
    return compressed


def _decompress_zstd(data: Buffer, bound: int) -> bytearray:
    if _largest_zstd_window(memoryview(data)) > _ZSTD_USUAL_WINDOW_BYTES:
        bound = min(bound, _KEPT_BYTES)
    return _gather(Compression.ZSTD, bound, lambda: _zstd_steps(data))


def _zstd_steps(data: Buffer) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            while step := reader.read(_STEP_BYTES):
                yield step
    except (zstandard.ZstdError, MemoryError) as error:
        _refuse_data(Compression.ZSTD, error)


def _largest_zstd_window(data: memoryview) -> int:
    """Return the size in bytes of the largest window of any frame (RFC 8878, 3.1).

    Raises RecordError unless `data` consists of whole frames: the library's reader does not notice
    a frame that is cut off at the end of its input.
    """
    position = 0
    largest_bytes = 0
    end = len(data)
    while True:
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic == _ZSTD_MAGIC:
            position += 4
            largest_bytes = max(largest_bytes, _zstd_window(data, position))
            position = _skip_zstd_frame(data, position)
        elif magic & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        else:
            _refuse_data(Compression.ZSTD, "no frame begins where one should")
        if position > end:
            _refuse_data(Compression.ZSTD, "it is cut off")
        if position == end:
            return largest_bytes


def _zstd_window(data: memoryview, position: int) -> int:
    """Return the window of the frame whose descriptor is at `position`; 0 if it is cut off."""
    header = bytes(data[position : position + 14])
    if len(header) < 2:
        return 0
    if header[0] & _ZSTD_SINGLE_SEGMENT:
        # The content itself is the window.
        start = 1 + _ZSTD_DICTIONARY_ID_BYTES[header[0] & 3]
        size_bytes = (1, 2, 4, 8)[header[0] >> 6]
        return int.from_bytes(header[start : start + size_bytes], "little")
    base = 1 << (10 + (header[1] >> 3))
    return base + (base >> 3) * (header[1] & 7)


def _skip_zstd_frame(data: memoryview, position: int) -> int:
    """Return the position after the frame whose descriptor is at `position`."""
    end = len(data)
    if position >= end:
        return end + 1
    descriptor = data[position]
    single_segment = 1 if descriptor & _ZSTD_SINGLE_SEGMENT else 0
    content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary_id_bytes = _ZSTD_DICTIONARY_ID_BYTES[descriptor & 3]
    position += 1 + (1 - single_segment) + dictionary_id_bytes + content_size_bytes
    while position + 3 <= end:
        block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        # A block of repeated bytes has one byte, however long its output is.
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
_DECOMPRESSORS: Final[dict[Compression, Callable[[Buffer, int], Buffer]]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
