"""Bytes for a frame reader, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgw.protocol.framing import FrameReader
    from kgw.types import Buffer


def feed(reader: FrameReader, data: Buffer, read_bytes: int = 1 << 16) -> list[bytes]:
    """Deliver bytes as a loop does, so many in a read; return the frames that are complete."""
    shared = memoryview(bytearray(read_bytes))
    frames: list[memoryview] = []
    position = 0
    while position < len(data):
        room = reader.room(shared)
        read = data[position : position + len(room)]
        room[: len(read)] = read
        position += len(read)
        frames += reader.take(shared, len(read))
        while reader.has_rest:
            frames += reader.take_rest()
    return [bytes(frame) for frame in frames]
