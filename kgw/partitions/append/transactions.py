"""Transactions in a partition's log: markers that end them, and the index of aborted ones.

The layout of markers and the rules of the index are Kafka's (KIP-98). A partition imports this
module when it first needs it: for a marker, or a snapshot with aborted transactions.
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
"""Version and type of the marker: abort or commit."""
_VALUE: Final = Struct(">hi")
"""Version, coordinator epoch."""
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1

_BLOCK: Final = 256
_NUMBER_BYTES: Final = 8
ABORTED_BYTES: Final = 4 * _NUMBER_BYTES
"""Size of an aborted transaction, in memory and in a snapshot."""


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition: a commit or an abort."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0
    """2 if the marker has raised the epoch (KIP-890, KIP-1228): then an open transaction of the
    marker's epoch began later, and the marker must not end it. Not stored."""


def make_marker(marker: TransactionMarker, timestamp_ms: int) -> RecordBatch:
    """Return the marker's control batch, with offset 0, in a writable buffer of its own."""
    return read_batch(bytearray(_encode_marker(marker, timestamp_ms)))


@lru_cache(maxsize=1)
def _encode_marker(marker: TransactionMarker, timestamp_ms: int) -> bytes:
    """Return the batch's bytes, which are the same in all partitions of a transaction."""
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
    """Decode a whole control batch; None if it is no transaction marker.

    In later versions the known fields are read, as they come first.
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

    Each transaction has four numbers, in four arrays: producer id, first offset, the marker's
    offset, and the last stable offset after the marker. While one transaction stays open, the last
    stable offset does not move, and does not help to search the transactions that began later,
    perhaps 100,000. So the lowest first offset of every `_BLOCK` transactions is stored, too: a
    search skips blocks whose first offsets are all past its end.
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
        """The lowest first offset of each block, including forgotten transactions."""
        self._forgotten = 0
        """Number of transactions in the first block that are forgotten and no longer in the
        arrays."""
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._stable_offsets = array("q")

    def __len__(self) -> int:
        return len(self._producer_ids)

    def add(
        self, producer_id: int, first_offset: int, last_offset: int, stable_offset: int
    ) -> None:
        """Add a transaction; `stable_offset` is the last stable offset after its marker.

        A transaction is ignored as known if its marker is not after the last known marker.
        """
        if self._last_offsets and last_offset <= self._last_offsets[-1]:
            return
        self._note_start(first_offset)
        self._producer_ids.append(producer_id)
        self._first_offsets.append(first_offset)
        self._last_offsets.append(last_offset)
        self._stable_offsets.append(stable_offset)

    def _note_start(self, first_offset: int) -> None:
        """Count the next transaction's first offset in its block."""
        block = (self._forgotten + len(self._producer_ids)) // _BLOCK
        if block == len(self._block_starts):
            self._block_starts.append(first_offset)
        elif first_offset < self._block_starts[block]:
            self._block_starts[block] = first_offset

    def overlapping(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """Return the producer ids and first offsets of transactions in `[from_offset, to_offset)`.

        A transaction counts if it overlaps the range. The result is ordered by first offset.
        """
        start = bisect_left(self._last_offsets, from_offset)
        # At the first marker that raised the last stable offset to `to_offset`, all transactions
        # that began below `to_offset` had ended. So those that ended later began at or above it.
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
        """Return all transactions: producer id, first offset, the marker's offset."""
        return list(zip(self._producer_ids, self._first_offsets, self._last_offsets, strict=True))

    def forget_below(self, offset: int) -> bool:
        """Forget transactions with markers below an offset. Return whether there were any."""
        count = bisect_left(self._last_offsets, offset)
        for numbers in self._arrays:
            del numbers[:count]
        blocks, self._forgotten = divmod(self._forgotten + count, _BLOCK)
        del self._block_starts[:blocks]
        return count > 0

    def pack(self) -> bytes:
        """Return the index as bytes for `unpack`: the four arrays, big-endian."""
        packed = bytearray()
        for numbers in self._arrays:
            copy = numbers[:]
            _swap(copy)
            packed += copy.tobytes()
        return bytes(packed)

    @classmethod
    def unpack(cls, data: Buffer) -> AbortedIndex:
        """Return the index that `pack` encoded. Raises ValueError for an impossible length."""
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
