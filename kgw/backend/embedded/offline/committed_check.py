"""Checks committed offsets of groups against the ends of the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.offsets.block import decode_block
from kgw.offsets.committed import is_of_job
from kgw.offsets.rows import decode_row, parse_row_key
from kgw.state.kinds import GROUP_OFFSETS, OFFSET_BLOCK
from kgw.types import PartitionKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kgw.state.base import StateStore


async def beyond_ends(state: StateStore, ends: Mapping[PartitionKey, int]) -> list[str]:
    """Return a sentence for each committed offset beyond the end of its log.

    Clients may commit any offset, so such an offset alone is no proof of an error. Partitions that
    are not in `ends` are skipped. Raises StorageError for damaged rows, ValueError for a row that
    cannot be decoded.
    """
    problems: list[str] = []
    for kind in (GROUP_OFFSETS, OFFSET_BLOCK):
        for key, row in (await state.load(kind)).items():
            group_id, topic_id, _ = parse_row_key(kind, key)
            if kind == OFFSET_BLOCK:
                entries = decode_block(row.value, 0, 0.0).entries()
            else:
                entries = decode_row(row.value, 0, 0.0)
            for partition, committed in entries.items():
                place = PartitionKey(topic_id, partition)
                end_offset = ends.get(place)
                if (
                    end_offset is not None
                    and committed.offset > end_offset
                    and not is_of_job(group_id, committed.metadata)
                ):
                    problems.append(
                        f"group {group_id} has committed offset {committed.offset} of partition "
                        f"{place}, which ends at {end_offset}"
                    )
    return problems
