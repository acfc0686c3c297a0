"""A group's committed offsets in one topic: single offsets, and blocks of many. Pure.

Every change of committed offsets, from the request to the store, is an `OffsetChanges`.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import gt
from typing import TYPE_CHECKING, TypeAlias

from kgw.offsets.block import OffsetBlock
from kgw.offsets.committed import NO_EXPIRY_MS, CommittedOffset
from kgw.offsets.rows import encode_row, partitions_in, places_of
from kgw.state.kinds import OFFSET_BLOCK
from kgw.types import TopicId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.offsets.rows import RowPlace

TopicChange: TypeAlias = Mapping[int, CommittedOffset | None] | OffsetBlock | None
"""New offsets by partition, where None deletes one; or a block of offsets; or None to delete
all."""

OffsetChanges: TypeAlias = Mapping[TopicId, TopicChange]
"""The changes of a group's offsets, by topic."""


class TopicOffsets:
    """The committed offsets of one topic: a partition is in one block or has a single offset."""

    __slots__ = ("_blocks", "_single")

    def __init__(self) -> None:
        self._single: dict[int, CommittedOffset] = {}
        self._blocks: dict[bytes, OffsetBlock] = {}
        """By their column of partitions."""

    def __len__(self) -> int:
        return len(self._single) + sum(map(len, self._blocks.values()))

    def copy(self) -> TopicOffsets:
        """Return a copy that can be changed without changing these offsets."""
        copied = TopicOffsets()
        copied._single = self._single.copy()
        copied._blocks = self._blocks.copy()
        return copied

    def get(self, partition: int) -> CommittedOffset | None:
        found = self._single.get(partition)
        if found is None:
            for block in self._blocks.values():
                found = found or block.get(partition)
        return found

    def entries(self) -> Mapping[int, CommittedOffset]:
        """Return all offsets by partition."""
        if not self._blocks:
            return self._single
        merged = {**self._single}
        for block in self._blocks.values():
            merged |= block.entries()
        return merged

    def partitions(self) -> list[int]:
        """Return the partitions with a committed offset."""
        found = [*self._single]
        for block in self._blocks.values():
            found += block.positions()
        return found

    # --- changes ---------------------------------------------------------------------------------

    def change(self, change: TopicChange) -> set[RowPlace]:
        """Apply a change. Return the rows that change."""
        touched: set[RowPlace] = set()
        if change is None:
            touched |= places_of(self._single)
            touched.update(block.place() for block in self._blocks.values())
            self._single, self._blocks = {}, {}
            return touched
        if not isinstance(change, OffsetBlock):
            return self._change_singly(change)
        before = self._blocks.get(change.partitions)
        if before is not None:
            change.follow(before)
        elif self._single or self._blocks:
            touched = self._change_singly(dict.fromkeys(change.positions()))
        self._blocks[change.partitions] = change
        touched.add(change.place())
        return touched

    def _change_singly(self, changes: Mapping[int, CommittedOffset | None]) -> set[RowPlace]:
        """Change single offsets. A block that contains one of them is split into single offsets."""
        touched = places_of(changes)
        for block in list(self._blocks.values()):
            positions = block.positions()
            if positions.keys().isdisjoint(changes):
                continue
            del self._blocks[block.partitions]
            touched.add(block.place())
            if not positions.keys() <= changes.keys():
                self._single |= block.entries()
                touched |= places_of(positions)
        for partition, committed in changes.items():
            if committed is None:
                self._single.pop(partition, None)
            else:
                self._single[partition] = committed
        return touched

    def row(self, place: RowPlace) -> bytes | None:
        """Return the content of a row, or None if it has no offsets."""
        if place[0] == OFFSET_BLOCK:
            for block in self._blocks.values():
                if block.place() == place:
                    return block.encode()
            return None
        single = self._single
        return encode_row({one: single[one] for one in partitions_in(place) if one in single})

    def taken_back(self, change: TopicChange) -> Iterator[tuple[int, int, int]]:
        """Yield partition, new offset and old offset for each offset that a change lowers.

        A negative offset removes the position and does not count.
        """
        if change is None:
            return
        if isinstance(change, OffsetBlock):
            block = self._blocks.get(change.partitions)
            if block is not None and not any(
                map(gt, block.offset_numbers(), change.offset_numbers())
            ):
                return
            change = change.entries()
        for partition, committed in change.items():
            before = self.get(partition)
            if before is None or committed is None:
                continue
            if 0 <= committed.offset < before.offset:
                yield partition, committed.offset, before.offset

    def expired(self, now_s: float, empty_since_s: float, retention_s: float) -> list[int]:
        """Return the partitions of an empty group whose offsets have expired."""
        gone = [
            partition
            for partition, one in self._single.items()
            if _is_expired(one, now_s, empty_since_s, retention_s)
        ]
        # All offsets in a block were committed together, so they expire together.
        for block in self._blocks.values():
            if _is_expired(block, now_s, empty_since_s, retention_s):
                gone += block.positions()
        return gone


def _is_expired(
    one: CommittedOffset | OffsetBlock, now_s: float, empty_since_s: float, retention_s: float
) -> bool:
    if one.retention_ms != NO_EXPIRY_MS:
        return one.committed_s + one.retention_ms / 1000 <= now_s
    return max(one.committed_s, empty_since_s) + retention_s <= now_s
