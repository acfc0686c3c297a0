"""Keeps recently appended batches in memory, so that consumers at the end of a log need no disk.

The total size over all partitions is limited; the oldest batch is evicted first. Only batches that
consumers may see are added, so a read from the cache returns the same bytes as a read from disk.
Used in the event loop only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, cast

from kgw.backend.base import HOT_BATCHES, ReadResult
from kgw.records.batch import read_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer

_OVERHEAD_BYTES: Final = 512
"""Memory for the Python objects of a cached batch and the other fields of its request."""
_COMPACT_AT: Final = 1024
_JOIN_ABOVE: Final = 16
"""A response with more buffers than this is sent faster if they are first copied into one."""


class ResponseMemory(Protocol):
    """Provides the memory for a response."""

    def take(self, size_bytes: int) -> memoryview:
        """Return a buffer of this size with arbitrary content."""


class CachedTail:
    """The cached batches of one log, oldest first."""

    __slots__ = ("base_offsets", "batches", "first", "sizes")

    def __init__(self) -> None:
        self.base_offsets: list[int] = []
        self.batches: list[RecordBatch | None] = []
        self.sizes: list[int] = []
        """The size that the cache counts for each batch until it is evicted."""
        self.first = 0
        """Index of the oldest cached batch. The batches before it were evicted."""

    def read(
        self, room: ResponseMemory, offset: int, max_bytes: int, upper_bound: int
    ) -> ReadResult | None:
        """Return batches from the one that holds `offset`, or None if that batch is not cached."""
        base_offsets = self.base_offsets
        place = bisect_right(base_offsets, offset, self.first) - 1
        if place < self.first or self.batches[place] is None:
            return None
        buffers: list[Buffer] = []
        size_bytes = 0
        next_offset = offset
        is_cut = False
        batches = self.batches
        # Iterate by index, because a slice of all following batches would cost more than the read.
        for number in range(place, len(batches)):
            batch = batches[number]
            if batch is None:
                continue
            # Not `next_offset`: the property would be a call for each batch.
            end_offset = batch.base_offset + batch.last_offset_delta + 1
            if end_offset <= offset:
                continue
            if end_offset > upper_bound:
                break
            if buffers and size_bytes + len(batch.buffer) > max_bytes:
                break
            if len(buffers) >= HOT_BATCHES:
                is_cut = True
                break
            size_bytes += len(batch.buffer)
            buffers.append(batch.buffer)
            next_offset = end_offset
        count = len(buffers)
        if count > _JOIN_ABOVE:
            buffers = [_joined(buffers, room.take(size_bytes))]
        return ReadResult(buffers, size_bytes, next_offset, count, is_cut)

    def forget_below(self, offset: int) -> None:
        """Drop the batches that begin below `offset`.

        The cache still counts their size until they are evicted.
        """
        for place in range(self.first, bisect_left(self.base_offsets, offset, self.first)):
            self.batches[place] = None

    def evict_first(self) -> int:
        """Drop the oldest batch, and return the size that was counted for it."""
        size_bytes = self.sizes[self.first]
        self.batches[self.first] = None
        self.first += 1
        if self.first >= _COMPACT_AT and self.first * 2 > len(self.batches):
            del self.batches[: self.first]
            del self.base_offsets[: self.first]
            del self.sizes[: self.first]
            self.first = 0
        return size_bytes


class HotCache:
    """The tails of all logs, and the order in which their batches were added."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._order: deque[CachedTail] = deque()
        self.size_bytes = 0

    def add(self, added: Sequence[tuple[CachedTail, RecordBatch]]) -> None:
        """Add batches that were acknowledged together to the tails of their logs.

        A batch is a view of its request's buffer. The buffer may be much larger than the accepted
        batches, for example 8 MB with one accepted batch of 69 bytes. If the buffer is more than
        about twice as large as its cached batches, the batches are copied. Otherwise they keep the
        buffer in memory, and its size is counted for its last batch, which is evicted last.
        """
        excess_bytes: dict[int, int] = {}
        last_batches: dict[int, RecordBatch] = {}
        for _, batch in added:
            whole = cast("bytes | bytearray", batch.buffer.obj)
            taken_bytes = 2 * len(batch.buffer) + _OVERHEAD_BYTES
            excess_bytes[id(whole)] = excess_bytes.get(id(whole), len(whole)) - taken_bytes
            last_batches[id(whole)] = batch
        for tail, batch in added:
            whole = cast("bytes | bytearray", batch.buffer.obj)
            size_bytes = _OVERHEAD_BYTES
            kept = batch
            if excess_bytes[id(whole)] > 0:
                kept = read_batch(bytes(batch.buffer))
                size_bytes += len(kept.buffer)
            elif batch is last_batches[id(whole)]:
                size_bytes += len(whole)
            tail.batches.append(kept)
            tail.sizes.append(size_bytes)
            tail.base_offsets.append(batch.base_offset)
            self._order.append(tail)
            self.size_bytes += size_bytes
        while self.size_bytes > self._limit_bytes and self._order:
            self.size_bytes -= self._order.popleft().evict_first()


def _joined(buffers: list[Buffer], room: memoryview) -> Buffer:
    position = 0
    for buffer in buffers:
        end = position + len(buffer)
        room[position:end] = buffer
        position = end
    return room.toreadonly()
