"""Campaign P4: compressed bytes that want to become gigabytes, or say that they will.

Run as a program it refuses every bomb in turn and prints a line of JSON for each: a process of its
own, because what a heap that other tests have used gives back, and when, is not ours to measure.
"""

from __future__ import annotations

import json
import time
import zlib
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from kgw.records.batch import HEADER_BYTES, Compression, RecordBatch, read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.compression import XERIAL_MAGIC, compress
from kgw.records.conversion import to_batch
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS
from kgw.records.reader import read_records
from tests.records.message_sets import message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def zstd_runs(block_count: int, window_exponent: int = 10) -> bytes:
    """Return a frame of blocks of one repeated byte: 128 KB from four bytes each."""
    header = bytes.fromhex("28b52ffd00") + bytes([window_exponent << 3])
    block_size = min(128 << 10, 1 << (10 + window_exponent))
    run = (block_size << 3 | 1 << 1).to_bytes(3, "little") + b"a"
    last = (block_size << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"a"
    return header + run * (block_count - 1) + last


def gzip_zeros(size_bytes: int) -> bytes:
    """Return gzip's about 1,000:1 for zeros."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = bytes(1 << 20)
    parts = [compressor.compress(piece) for _ in range(size_bytes >> 20)]
    return b"".join([*parts, compressor.flush()])


def snappy_claim(claimed_bytes: int, content: bytes) -> bytes:
    """Return a block whose length says what it likes."""
    length = bytearray()
    while claimed_bytes > 0x7F:
        length.append(claimed_bytes & 0x7F | 0x80)
        claimed_bytes >>= 7
    length.append(claimed_bytes)
    return bytes(length) + content


def lz4_zeros(size_bytes: int) -> bytes:
    """Return lz4's 255:1 for zeros, in blocks of 4 MB."""
    import lz4.frame

    compressed: bytes = lz4.frame.compress(bytes(size_bytes), block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    return compressed


def full_size_bombs(limit_bytes: int) -> Iterator[tuple[str, Compression, bytes]]:
    """Yield bombs that fill a request of the usual size: their ratio alone allows 64 MB."""
    yield "gzip of 300 MB", Compression.GZIP, gzip_zeros(300 << 20)[:limit_bytes]
    member = gzip_zeros(8 << 20)
    yield "gzip of many members", Compression.GZIP, member * (limit_bytes // len(member))
    empty = bytes(compress(Compression.GZIP, b""))
    yield "gzip of empty members", Compression.GZIP, empty * (limit_bytes // len(empty))
    for window_exponent in (7, 13, 17):
        name = f"zstd of 32 GB, window 2^{window_exponent + 10}"
        yield name, Compression.ZSTD, zstd_runs(limit_bytes // 4 - 8, window_exponent)
    frame = zstd_runs(2)
    yield "zstd of many frames", Compression.ZSTD, frame * (limit_bytes // len(frame))
    frame = zstd_runs(512, 17)
    yield "zstd of large windows", Compression.ZSTD, frame * (limit_bytes // len(frame))
    frame = lz4_zeros(240 << 20)
    yield "lz4 of 240 MB", Compression.LZ4, frame[:limit_bytes]
    frame = lz4_zeros(4 << 20)
    yield "lz4 of many frames", Compression.LZ4, frame * (limit_bytes // len(frame))
    frame = bytes(compress(Compression.LZ4, b""))
    yield "lz4 of empty frames", Compression.LZ4, frame * (limit_bytes // len(frame))
    block = bytes(snappy_zeros(limit_bytes - 100))
    yield "snappy of 21:1", Compression.SNAPPY, block
    small = bytes(snappy_zeros(1_000))
    framed = len(small).to_bytes(4, "big") + small
    blocks = XERIAL_MAGIC + bytes(8) + framed * ((limit_bytes - 16) // len(framed))
    yield "snappy of many blocks", Compression.SNAPPY, blocks
    empty = b"\0\0\0\x01\0"
    blocks = XERIAL_MAGIC + bytes(8) + empty * ((limit_bytes - 16) // len(empty))
    yield "snappy of empty blocks", Compression.SNAPPY, blocks


def snappy_zeros(size_bytes: int) -> bytes:
    """Return a block of about this size that becomes 21 times as much, as no honest one does."""
    # One literal byte, then copies of 64 bytes from one byte back: three bytes each.
    copies = (size_bytes - 8) // 3
    return snappy_claim(1 + 64 * copies, b"\x00a" + b"\xfe\x01\x00" * copies)


def bombs() -> Iterator[tuple[str, Compression, bytes]]:
    """Yield a name, the codec and the payload of 100 bombs and more."""
    for block_count in (16, 100, 1_000, 8_192, 100_000):
        for window_exponent in (7, 8, 10, 13, 17, 18, 21):
            name = f"zstd {block_count} runs, window 2^{window_exponent + 10}"
            yield name, Compression.ZSTD, zstd_runs(block_count, window_exponent)
    for mebibytes in (2, 3, 5, 8, 16, 32, 64):
        data = gzip_zeros(mebibytes << 20)
        yield f"gzip {mebibytes} MB", Compression.GZIP, data
        yield f"gzip members {mebibytes} MB", Compression.GZIP, data * 4
        nested = compress(Compression.GZIP, data)
        yield f"gzip nested {mebibytes} MB", Compression.GZIP, bytes(nested) + data
    for mebibytes in (2, 3, 4, 8, 16, 64, 96):
        data = bytes(compress(Compression.LZ4, bytes(mebibytes << 20)))
        yield f"lz4 {mebibytes} MB", Compression.LZ4, data
        yield f"lz4 frames {mebibytes} MB", Compression.LZ4, data * 2
    for claimed_bytes in (1 << 21, 1 << 24, 1 << 26, 1 << 30, (1 << 32) - 1):
        for content in (b"", b"\x00a", b"\xfe\x01\x00" * 1_000, b"\x00" * 5_000):
            block = snappy_claim(claimed_bytes, content)
            name = f"snappy claims {claimed_bytes} with {len(content)}"
            yield name, Compression.SNAPPY, block
            framed = XERIAL_MAGIC + bytes(8) + len(block).to_bytes(4, "big") + block
            yield name + ", framed", Compression.SNAPPY, framed


def batch_of(codec: Compression, payload: bytes) -> RecordBatch:
    """Return a batch with this payload behind a header that fits it."""
    builder = BatchBuilder()
    builder.add(value=b"")
    raw = builder.build()[:HEADER_BYTES]
    raw[8:12] = (len(payload) + HEADER_BYTES - 12).to_bytes(4, "big")
    raw[22] = codec
    return read_batch(raw + payload)


def read_set(codec: Compression, payload: bytes, magic: int) -> None:
    """Convert a message set whose one wrapper has this payload."""
    to_batch(message(magic, payload, attributes=codec), DEFAULT_LIMITS)


def readers(
    name: str, codec: Compression, payload: bytes
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the ways in which a payload reaches a decoder."""
    batch = batch_of(codec, payload)
    yield name, lambda: list(read_records(batch))
    if codec is not Compression.ZSTD:
        for magic in (0, 1):
            yield f"{name}, format {magic}", partial(read_set, codec, payload, magic)


def peak_memory_bytes() -> int:
    """Return the greatest resident size since `reset_peak_memory`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmHWM")


def main() -> None:
    """Print what became of every bomb: its name, the error's code, seconds, bytes at the peak."""
    for bomb in chain(bombs(), full_size_bombs(1_000_000)):
        for name, read in readers(*bomb):
            Path("/proc/self/clear_refs").write_text("5")
            before_bytes = peak_memory_bytes()
            started_s = time.perf_counter()
            code = "NONE"
            try:
                read()
            except RecordError as error:
                code = error.code.name
            elapsed_s = time.perf_counter() - started_s
            peak_bytes = peak_memory_bytes() - before_bytes
            print(json.dumps({"name": name, "code": code, "s": elapsed_s, "bytes": peak_bytes}))


if __name__ == "__main__":
    main()
