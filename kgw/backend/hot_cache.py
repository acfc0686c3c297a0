"""Recently appended batches, in memory, so that readers at the tail never meet the disk.

Bounded over all partitions; the oldest batch goes first. Only batches that may be shown enter, so
that what is read here is what would be read from the disk. Used in the event loop alone.
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
"""What a cached batch costs beside its bytes: objects and the request's other fields."""
_COMPACT_AT: Final = 1024
_JOIN_ABOVE: Final = 16
"""Many small buffers cost a response more than copying them together once."""


class Room(Protocol):
    """Where an answer's memory comes from."""

    def take(self, size_bytes: int) -> memoryview:
        """Return room for so many bytes, with anything in it."""


class CachedTail:
    """The cached batches of one log, oldest first."""

    __slots__ = ("base_offsets", "batches", "first", "sizes")

    def __init__(self) -> None:
        self.base_offsets: list[int] = []
        self.batches: list[RecordBatch | None] = []
        self.sizes: list[int] = []
        """What is counted of each batch, until it is evicted."""
        self.first = 0
        """The places before this one have been evicted."""

    def read(self, room: Room, offset: int, max_bytes: int, upper_bound: int) -> ReadResult | None:
        """Return batches from the one that holds `offset`, None when that is not cached."""
        base_offsets = self.base_offsets
        place = bisect_right(base_offsets, offset, self.first) - 1
        if place < self.first or self.batches[place] is None:
            return None
        buffers: list[Buffer] = []
        size_bytes = 0
        next_offset = offset
        is_cut = False
        batches = self.batches
        # By number: a copy of all that is cached behind `place` would cost more than the answer.
        for number in range(place, len(batches)):
            batch = batches[number]
            if batch is None:
                continue
            end_offset = batch.next_offset
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
        """Forget the batches that begin below `offset`; they are counted until they are evicted."""
        for place in range(self.first, bisect_left(self.base_offsets, offset, self.first)):
            self.batches[place] = None

    def evict_first(self) -> int:
        """Forget the oldest batch; returns what is no longer counted."""
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
    """All tails, and the order in which their batches came."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._order: deque[CachedTail] = deque()
        self.size_bytes = 0

    def add(self, added: Sequence[tuple[CachedTail, RecordBatch]]) -> None:
        """Take batches, each behind those that its tail has: all that was answered together.

        A batch is a view over the request that it came in: 8 MB, perhaps, of which all but this
        batch of 69 bytes was refused. It is copied where it would keep alive much more than what
        is cached of that request. Otherwise the request is counted as a whole with the last of its
        batches, which is evicted last.
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
