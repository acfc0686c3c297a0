"""Recently appended batches, in memory, so that readers at the tail never meet the disk.

Bounded over all partitions; the oldest batch goes first. Only batches that may be shown enter, so
that what is read here is what would be read from the disk. Used in the event loop alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

from kgw.backend.base import HOT_BATCHES, ReadResult
from kgw.records.batch import read_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.files.read_buffers import ReadBuffers
    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer

_OVERHEAD_BYTES: Final = 512
"""What a cached batch costs beside its bytes: objects and the request's other fields."""
_COMPACT_AT: Final = 1024
_JOIN_ABOVE: Final = 16
"""Many small buffers cost a response more than copying them together once."""


class _Memory:
    """What cached batches lie in, all of one request perhaps: counted until the last one goes."""

    __slots__ = ("size_bytes", "views")

    def __init__(self, size_bytes: int, views: int) -> None:
        self.size_bytes = size_bytes
        self.views = views

    def let_go(self) -> int:
        """Give up one view; returns what is no longer counted."""
        self.views -= 1
        return _OVERHEAD_BYTES if self.views else self.size_bytes + _OVERHEAD_BYTES


class CachedTail:
    """The cached batches of one log, oldest first."""

    __slots__ = ("base_offsets", "batches", "first", "memories")

    def __init__(self) -> None:
        self.base_offsets: list[int] = []
        self.batches: list[RecordBatch | None] = []
        self.memories: list[_Memory] = []
        self.first = 0
        """The places before this one have been evicted."""

    def read(
        self, room: ReadBuffers, offset: int, max_bytes: int, upper_bound: int
    ) -> ReadResult | None:
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

    def forget_below(self, offset: int) -> int:
        """Forget the batches that begin below `offset`; returns what is no longer counted."""
        size_bytes = 0
        for place in range(self.first, bisect_left(self.base_offsets, offset, self.first)):
            if self.batches[place] is not None:
                size_bytes += self.memories[place].let_go()
                self.batches[place] = None
        return size_bytes

    def evict_first(self) -> int:
        """Forget the oldest batch; returns what is no longer counted."""
        is_there = self.batches[self.first] is not None
        size_bytes = self.memories[self.first].let_go() if is_there else 0
        self.batches[self.first] = None
        self.first += 1
        if self.first >= _COMPACT_AT and self.first * 2 > len(self.batches):
            del self.batches[: self.first]
            del self.base_offsets[: self.first]
            del self.memories[: self.first]
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
        is cached of that request. Otherwise the request is counted as a whole, until the last of
        its batches has been forgotten: others of them may go long before.
        """
        requests: dict[int, _Memory] = {}
        excess_bytes: dict[int, int] = {}
        for _, batch in added:
            number = id(batch.buffer.obj)
            if number not in requests:
                size_bytes = excess_bytes[number] = memoryview(batch.buffer.obj).nbytes
                requests[number] = _Memory(size_bytes, 0)
            requests[number].views += 1
            excess_bytes[number] -= 2 * len(batch.buffer) + _OVERHEAD_BYTES
        for tail, batch in added:
            number = id(batch.buffer.obj)
            if excess_bytes[number] > 0:
                size_bytes = len(batch.buffer)
                tail.batches.append(read_batch(bytes(batch.buffer)))
                tail.memories.append(_Memory(size_bytes, 1))
            else:
                size_bytes = 0
                tail.batches.append(batch)
                tail.memories.append(requests[number])
            tail.base_offsets.append(batch.base_offset)
            self._order.append(tail)
            self.size_bytes += size_bytes + _OVERHEAD_BYTES
        for number, request in requests.items():
            if excess_bytes[number] <= 0:
                self.size_bytes += request.size_bytes
        while self.size_bytes > self._limit_bytes and self._order:
            self.size_bytes -= self._order.popleft().evict_first()

    def forget_below(self, tail: CachedTail, offset: int) -> None:
        """Forget the batches of a tail that begin below `offset`."""
        self.size_bytes -= tail.forget_below(offset)


def _joined(buffers: list[Buffer], room: memoryview) -> Buffer:
    position = 0
    for buffer in buffers:
        end = position + len(buffer)
        room[position:end] = buffer
        position = end
    return room.toreadonly()
