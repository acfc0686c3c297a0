"""Finds records that a compacted archive has lost: it must have the newest record of each key.

It must also have every record without a key. The keys of the topic's records that the archive lacks
are held in memory and looked up in later records of the archive. A missing tombstone is not
reported even if it is the newest record of its key: compaction may have removed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

MEMORY_BYTES: Final = 256 << 20
# How many rows are looked up in one call: each call builds a hash table of all held keys.
_ROWS_AT_ONCE: Final = 1 << 20


class LostKeys:
    """The keys of records that are missing in an archive, with the newest offset of each key."""

    def __init__(self, *, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self.unchecked = 0
        """The number of missing records that were not checked, because their keys did not fit into
        the memory."""

    def add(self, records: pa.RecordBatch) -> list[int]:
        """Add missing records in the decoder's columns; return the offsets of keyless ones."""
        keys, offsets = records.column("key"), records.column("offset")
        # A mark is twice the offset, plus one if the record has a value.
        marks = pc.add(pc.multiply(offsets, 2), records.column("value").is_valid().cast(pa.int64()))
        has_key = keys.is_valid()
        table = pa.table({"key": keys, "mark": marks}).filter(has_key)
        if self._held_bytes + table.nbytes > self._memory_bytes:
            self._held = [self._grouped()]
            self._held_bytes = self._held[0].nbytes
        if self._held_bytes + table.nbytes > self._memory_bytes:
            self.unchecked += len(table)
        else:
            self._held.append(table)
            self._held_bytes += table.nbytes
        return list(offsets.filter(pc.invert(has_key)).to_pylist())

    def missing(self, kept: Iterable[pa.RecordBatch]) -> list[int]:
        """Return the offsets of missing records that the archive must have, in order.

        `kept` has the key and offset of the archive's records from the first missing record to its
        end.
        """
        grouped = self._grouped()
        if not len(grouped):
            return []
        keys = grouped.column("key").combine_chunks()
        marks = grouped.column("mark").to_numpy()
        newest = np.full(len(grouped), -1, np.int64)
        waiting: list[pa.RecordBatch] = []

        def look() -> None:
            if not waiting:
                return
            table = pa.Table.from_batches(waiting)
            waiting.clear()
            places = pc.index_in(table.column("key"), value_set=keys)
            is_known = places.is_valid()
            # Offsets ascend, so this assignment keeps the last offset of each key.
            newest[places.filter(is_known).to_numpy()] = (
                table.column("offset").filter(is_known).to_numpy()
            )

        for batch in kept:
            waiting.append(batch.select(["key", "offset"]))
            if sum(map(len, waiting)) >= _ROWS_AT_ONCE:
                look()
        look()
        is_missed = (marks % 2 == 1) & (newest < marks // 2)
        return sorted((marks[is_missed] // 2).tolist())

    def _grouped(self) -> pa.Table:
        if not self._held:
            return pa.table({"key": pa.array([], pa.binary()), "mark": pa.array([], pa.int64())})
        grouped = pa.concat_tables(self._held).group_by("key").aggregate([("mark", "max")])
        return grouped.select(["key", "mark_max"]).rename_columns(["key", "mark"])
