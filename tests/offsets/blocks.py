"""Blocks of committed offsets for tests, and tables as their rows say them."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

from kgw.offsets.block import OffsetBlock, decode_block, parse_block_key
from kgw.offsets.table import OffsetTable, decode_row, parse_row_key
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK

if TYPE_CHECKING:
    from kgw.offsets.committed import CommittedOffset, Place

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


def places(table: OffsetTable) -> list[Place]:
    """Return every place that a table has an offset for."""
    return [
        (topic_id, index) for topic_id in table.topic_ids() for index in table.partitions(topic_id)
    ]


def loaded(rows: dict[tuple[str, str], bytes | None]) -> OffsetTable:
    """Return the table that rows say, as at a start."""
    table = OffsetTable()
    for (kind, key), value in rows.items():
        if value is not None and kind == GROUP_OFFSETS:
            _, topic_id = parse_row_key(key)
            table.apply(dict(decode_row(topic_id, value, WALL_MS, NOW_S)))
    singles = set(places(table))
    for (kind, key), value in rows.items():
        if value is not None and kind == OFFSET_BLOCK:
            group_id, topic_id, span = parse_block_key(key)
            block = decode_block(value, WALL_MS, NOW_S)
            assert GROUP == group_id
            assert set(block.positions()) <= set(span)
            assert not singles & {(topic_id, one) for one in block.positions()}
            before = len(table)
            table.apply_block(topic_id, block)
            assert before + len(block) == len(table), "a place is stored twice"
    return table
