"""Blocks of committed offsets for tests, and tables as their rows say them."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

from kgw.offsets.block import OffsetBlock, decode_block
from kgw.offsets.pending import PendingTable, decode_pending
from kgw.offsets.rows import decode_row, parse_row_key, partitions_in
from kgw.offsets.table import OffsetTable
from kgw.state.kinds import OFFSET_BLOCK, PENDING_OFFSETS

if TYPE_CHECKING:
    from kgw.offsets.committed import CommittedOffset, Place
    from kgw.offsets.topic_offsets import TopicChange
    from kgw.types import TopicId

GROUP = "a/group"
NOW_S = 1000.0
WALL_MS = 1_763_740_000_000


def block_of(offsets: dict[int, CommittedOffset]) -> OffsetBlock:
    """Return a block of offsets that differ in offset and leader epoch alone."""
    first = next(iter(offsets.values()))
    count = len(offsets)
    return OffsetBlock(
        pack(f">{count}i", *offsets),
        pack(f">{count}q", *(one.offset for one in offsets.values())),
        pack(f">{count}i", *(one.leader_epoch for one in offsets.values())),
        first.metadata,
        first.commit_ms,
        first.retention_ms,
        first.committed_s,
    )


def held(table: OffsetTable) -> dict[Place, CommittedOffset]:
    """Return every offset of a table by its place."""
    return {
        (topic_id, index): found
        for topic_id in table.topic_ids()
        for index, found in table.topic(topic_id).entries().items()
    }


def take_step(plain: dict[Place, CommittedOffset], topic_id: TopicId, change: TopicChange) -> None:
    """Do to a plain dictionary what a change of one topic does."""
    if change is None:
        for place in [one for one in plain if one[0] == topic_id]:
            del plain[place]
        return
    for index, one in (change.entries() if isinstance(change, OffsetBlock) else change).items():
        plain.pop((topic_id, index), None)
        if one is not None:
            plain[topic_id, index] = one


def loaded_pending(rows: dict[tuple[str, str], bytes | None]) -> PendingTable:
    """Return what rows say is pending, as at a start."""
    table = PendingTable()
    for (kind, key), value in rows.items():
        group_id, topic_id, place = parse_row_key(kind, key)
        assert GROUP == group_id
        if value is not None and kind == PENDING_OFFSETS:
            epoch, offsets = decode_pending(value, WALL_MS, NOW_S)
            assert set(offsets) <= set(partitions_in(place))
            table.load(topic_id, place, epoch, offsets)
    return table


def loaded(rows: dict[tuple[str, str], bytes | None]) -> OffsetTable:
    """Return the table that rows say, as at a start. No place is stored twice."""
    table = OffsetTable()
    for (kind, key), value in rows.items():
        group_id, topic_id, place = parse_row_key(kind, key)
        assert GROUP == group_id
        if value is None or kind == PENDING_OFFSETS:
            continue
        before = len(table)
        change: TopicChange
        if kind == OFFSET_BLOCK:
            change = block = decode_block(value, WALL_MS, NOW_S)
            found = set(block.positions())
        else:
            change = decode_row(value, WALL_MS, NOW_S)
            found = set(change)
        assert found <= set(partitions_in(place))
        table.apply({topic_id: change})
        assert before + len(found) == len(table), "a place is stored twice"
    return table
