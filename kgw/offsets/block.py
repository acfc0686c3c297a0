"""The offsets of one large commit to one topic, stored as columns of numbers. No I/O.

A group that commits a thousand partitions at once commits the same partitions each time. Its
offsets are one block in one row, which the next block replaces. `TopicOffsets` makes sure that a
partition is in one block at most, and not also among the single offsets.
"""

from __future__ import annotations

import sys
from array import array
from struct import Struct
from typing import TYPE_CHECKING, Final

from kgw.offsets.committed import CommittedOffset
from kgw.state.kinds import OFFSET_BLOCK

if TYPE_CHECKING:
    from kgw.offsets.rows import RowPlace

_HEAD: Final = Struct(">BIqqH")
"""The head of a row: format, number of partitions, commit time, retention time, bytes of metadata;
then the metadata and the columns: partitions, offsets, leader epochs."""
_FORMAT: Final = 1
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
LONGEST_METADATA: Final = 0xFFFF // 3
"""How many UTF-16 characters the metadata of an offset in a block may have at most. Each takes up
to three bytes in UTF-8."""
_ENTRY_BYTES: Final = _INT32.size + _INT64.size + _INT32.size


class OffsetBlock:
    """Committed offsets of many partitions of one topic. Columns are big-endian.

    Partitions are distinct. The other fields are as in `CommittedOffset`, each with one value for
    all partitions.
    """

    __slots__ = (
        "_place",
        "_positions",
        "commit_ms",
        "committed_s",
        "leader_epochs",
        "metadata",
        "offsets",
        "partitions",
        "retention_ms",
    )

    def __init__(
        self,
        partitions: bytes,
        offsets: bytes,
        leader_epochs: bytes,
        metadata: str,
        commit_ms: int,
        retention_ms: int,
        committed_s: float,
    ) -> None:
        self.partitions = partitions
        self.offsets = offsets
        self.leader_epochs = leader_epochs
        self.metadata = metadata
        self.commit_ms = commit_ms
        self.retention_ms = retention_ms
        self.committed_s = committed_s
        self._positions: dict[int, int] | None = None
        self._place: RowPlace | None = None

    def __len__(self) -> int:
        return len(self.partitions) // _INT32.size

    def positions(self) -> dict[int, int]:
        """Return the index of each partition in the columns."""
        if self._positions is None:
            indexes = numbers_of(self.partitions, len(self))
            self._positions = {index: position for position, index in enumerate(indexes)}
        return self._positions

    def follow(self, before: OffsetBlock) -> None:
        """Copy the index and the row name from an earlier block with the same partitions."""
        self._positions, self._place = before._positions, before._place

    def offset_numbers(self) -> array[int]:
        """Return the offsets, in the order of the partitions."""
        return numbers_of(self.offsets, len(self))

    def get(self, partition: int) -> CommittedOffset | None:
        """Return the committed offset of a partition, or None."""
        position = self.positions().get(partition)
        if position is None:
            return None
        (offset,) = _INT64.unpack_from(self.offsets, position * _INT64.size)
        (leader_epoch,) = _INT32.unpack_from(self.leader_epochs, position * _INT32.size)
        return self._entry(offset, leader_epoch)

    def entries(self) -> dict[int, CommittedOffset]:
        """Return the offsets of the block as single offsets, by partition."""
        count = len(self)
        return {
            partition: self._entry(offset, leader_epoch)
            for partition, offset, leader_epoch in zip(
                numbers_of(self.partitions, count),
                self.offset_numbers(),
                numbers_of(self.leader_epochs, count),
                strict=True,
            )
        }

    def _entry(self, offset: int, leader_epoch: int) -> CommittedOffset:
        return CommittedOffset(
            offset,
            leader_epoch,
            self.metadata,
            self.commit_ms,
            self.retention_ms,
            self.committed_s,
        )

    def place(self) -> RowPlace:
        """Return the block's row. Blocks without common partitions have different rows."""
        if self._place is None:
            positions = self.positions()
            self._place = (OFFSET_BLOCK, f"{min(positions)}-{max(positions)}")
        return self._place

    def encode(self) -> bytes:
        """Return the content of the block's row."""
        metadata = self.metadata.encode()
        head = _HEAD.pack(_FORMAT, len(self), self.commit_ms, self.retention_ms, len(metadata))
        return b"".join((head, metadata, self.partitions, self.offsets, self.leader_epochs))


def numbers_of(column: bytes, count: int) -> array[int]:
    """Return the `count` numbers of a column, which have four or eight bytes each."""
    numbers = array("i" if len(column) == 4 * count else "q", column)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def decode_block(value: bytes, running_ms: int, now_s: float) -> OffsetBlock:
    """Decode the output of `encode`, given the time of both clocks. Raises ValueError."""
    if len(value) < _HEAD.size:
        raise ValueError(f"not a block of committed offsets: {len(value)} bytes")
    form, count, commit_ms, retention_ms, metadata_bytes = _HEAD.unpack_from(value)
    begin = _HEAD.size + metadata_bytes
    if form != _FORMAT or len(value) != begin + count * _ENTRY_BYTES:
        raise ValueError(f"not a block of committed offsets: format {form}, {len(value)} bytes")
    offsets_at = begin + count * _INT32.size
    epochs_at = offsets_at + count * _INT64.size
    return OffsetBlock(
        value[begin:offsets_at],
        value[offsets_at:epochs_at],
        value[epochs_at:],
        value[_HEAD.size : begin].decode(),
        commit_ms,
        retention_ms,
        now_s - max(0, running_ms - commit_ms) / 1000,
    )
