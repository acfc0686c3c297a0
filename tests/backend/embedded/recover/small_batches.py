"""Segments of the smallest batches there are, written past the gateway by the million."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from kgw.testing.batches import make_batch

if TYPE_CHECKING:
    from pathlib import Path

SMALL_BATCH_BYTES: Final = 68
"""One record without key and value."""
_PIECE: Final = 1 << 16


def write_segments(directory: Path, count: int, segment_bytes: int = 1 << 30) -> None:
    """Write so many batches into a partition's empty directory, as if they had been appended.

    There is nothing beside the segments: no side files, no indexes.
    """
    in_segment = segment_bytes // SMALL_BATCH_BYTES
    for base_offset in range(0, count, in_segment):
        end_offset = min(base_offset + in_segment, count)
        with (directory / f"{base_offset:020d}.log").open("wb") as file:
            for start in range(base_offset, end_offset, _PIECE):
                file.write(numbered_batches(start, min(start + _PIECE, end_offset)))


def numbered_batches(start_offset: int, end_offset: int) -> bytearray:
    """Return batches at the offsets from `start_offset` to below `end_offset`."""
    batch = make_batch([b""])
    batch.assign(0, 0)
    offsets = array("Q", range(start_offset, end_offset))
    offsets.byteswap()
    columns = offsets.tobytes()
    # No checksum of Kafka's covers the base offset.
    content = bytearray(bytes(batch.buffer) * (end_offset - start_offset))
    for column in range(8):
        content[column::SMALL_BATCH_BYTES] = columns[column::8]
    return content
