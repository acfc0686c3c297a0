"""Transactions as a log knows them: the markers that end them, and which were aborted. Pure.

The layout of markers and the rules of the index are Kafka's (KIP-98). A partition imports this with
the first marker, or with the first aborted transaction that a snapshot knows.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.records.batch import read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.errors import RecordError
from kgw.records.reader import read_records

if TYPE_CHECKING:
    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer

_KEY: Final = Struct(">hh")
"""Version, and what it is."""
_VALUE: Final = Struct(">hi")
"""Version, coordinator epoch."""
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1

_BLOCK: Final = 256
_NUMBER_BYTES: Final = 8
ABORTED_BYTES: Final = 4 * _NUMBER_BYTES
"""What an aborted transaction takes, in memory and in a snapshot."""


class TransactionMarker(NamedTuple):
    """What ends the transaction of a producer in one partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0
    """2 where the marker has raised the epoch (KIP-890, KIP-1228): then it ends no transaction of
    its own epoch, which would be a later one. Not stored."""


def make_marker(marker: TransactionMarker, timestamp_ms: int) -> RecordBatch:
    """Return the control batch that says it, in a writable buffer of its own, at offset 0."""
    return read_batch(bytearray(_encode_marker(marker, timestamp_ms)))


@lru_cache(maxsize=1)
def _encode_marker(marker: TransactionMarker, timestamp_ms: int) -> bytes:
    """Return the batch's bytes: the same in all partitions of a transaction."""
    builder = BatchBuilder(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    builder.add(
        key=_KEY.pack(_VERSION, _COMMIT if marker.is_commit else _ABORT),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
        timestamp_ms=timestamp_ms,
    )
    return bytes(builder.build())


def read_marker(batch: RecordBatch) -> TransactionMarker | None:
    """Return what a whole control batch says; None when it ends no transaction.

    Of a later version what is known of it is read, as its fields come first.
    """
    if not batch.is_control or not batch.is_transactional or not batch.has_producer_id:
        return None
    try:
        record = next(read_records(batch), None)
        if record is None:
            return None
        _, kind = _KEY.unpack_from(record.key or b"")
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except (RecordError, StructError):
        return None
    if kind not in {_ABORT, _COMMIT}:
        return None
    return TransactionMarker(
        batch.producer_id, batch.producer_epoch, coordinator_epoch, kind == _COMMIT
    )


class AbortedIndex:
    """The aborted transactions of a partition, in the order of their markers.

    Four numbers each, in arrays: whose it was, its first offset, its marker's, and where the stable
    part of the log ended behind it. While a transaction stays open, none behind its beginning tells
    where to stop looking, and there may be 100,000 of them: so of every `_BLOCK` there is the least
    first offset, too.
    """

    __slots__ = (
        "_block_starts",
        "_first_offsets",
        "_forgotten",
        "_last_offsets",
        "_producer_ids",
        "_stable_offsets",
    )

    def __init__(self) -> None:
        self._block_starts = array("q")
        """The least first offset of each block; also of those in it that are forgotten."""
        self._forgotten = 0
        """How many of the first block are gone."""
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._stable_offsets = array("q")

    def __len__(self) -> int:
        return len(self._producer_ids)

    def add(
        self, producer_id: int, first_offset: int, last_offset: int, stable_offset: int
    ) -> None:
        """Take the next one; `stable_offset` is the last stable offset when it had ended.

        One that does not follow the last is known already.
        """
        if self._last_offsets and last_offset <= self._last_offsets[-1]:
            return
        self._note_start(first_offset)
        self._producer_ids.append(producer_id)
        self._first_offsets.append(first_offset)
        self._last_offsets.append(last_offset)
        self._stable_offsets.append(stable_offset)

    def _note_start(self, first_offset: int) -> None:
        """Have the next one in its block."""
        block = (self._forgotten + len(self._producer_ids)) // _BLOCK
        if block == len(self._block_starts):
            self._block_starts.append(first_offset)
        elif first_offset < self._block_starts[block]:
            self._block_starts[block] = first_offset

    def overlapping(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """Return whose transactions lie partly in `[from_offset, to_offset)`, with first offsets.

        In the order of these.
        """
        start = bisect_left(self._last_offsets, from_offset)
        # What ended when all below `to_offset` was stable is the last that can begin below it.
        end = min(bisect_left(self._stable_offsets, to_offset, start) + 1, len(self))
        found: list[tuple[int, int]] = []
        while start < end:
            block = (self._forgotten + start) // _BLOCK
            stop = min(end, (block + 1) * _BLOCK - self._forgotten)
            if self._block_starts[block] < to_offset:
                found += [
                    (first_offset, producer_id)
                    for producer_id, first_offset in zip(
                        self._producer_ids[start:stop], self._first_offsets[start:stop], strict=True
                    )
                    if first_offset < to_offset
                ]
            start = stop
        found.sort()
        return [(producer_id, first_offset) for first_offset, producer_id in found]

    def ranges(self) -> list[tuple[int, int, int]]:
        """Return all of them: producer id, first offset, the marker's offset."""
        return list(zip(self._producer_ids, self._first_offsets, self._last_offsets, strict=True))

    def forget_below(self, offset: int) -> bool:
        """Forget those whose markers lie below an offset; whether there were any."""
        count = bisect_left(self._last_offsets, offset)
        for numbers in self._arrays:
            del numbers[:count]
        blocks, self._forgotten = divmod(self._forgotten + count, _BLOCK)
        del self._block_starts[:blocks]
        return count > 0

    def pack(self) -> bytes:
        """Return what `unpack` reads: big-endian, one array after the other."""
        packed = bytearray()
        for numbers in self._arrays:
            copy = numbers[:]
            _swap(copy)
            packed += copy.tobytes()
        return bytes(packed)

    @classmethod
    def unpack(cls, data: Buffer) -> AbortedIndex:
        """Return what `pack` was called on. Raises ValueError for a length that cannot be."""
        if len(data) % ABORTED_BYTES:
            raise ValueError(f"{len(data)} bytes are no index of aborted transactions")
        index = cls()
        size_bytes = len(data) // 4
        for number, numbers in enumerate(index._arrays):
            numbers.frombytes(data[number * size_bytes : (number + 1) * size_bytes])
            _swap(numbers)
        starts = index._first_offsets
        index._block_starts.extend(
            min(starts[position : position + _BLOCK]) for position in range(0, len(starts), _BLOCK)
        )
        return index

    @property
    def _arrays(self) -> tuple[array[int], ...]:
        return self._producer_ids, self._first_offsets, self._last_offsets, self._stable_offsets


def _swap(numbers: array[int]) -> None:
    if sys.byteorder == "little":
        numbers.byteswap()
