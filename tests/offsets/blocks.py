"""Blocks of committed offsets for tests."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

from kgw.offsets.block import OffsetBlock

if TYPE_CHECKING:
    from kgw.offsets.committed import CommittedOffset


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
