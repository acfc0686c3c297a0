"""A partition's log whose offsets are assigned by this server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.append import AppendResult
from kgw.backend.base import PartitionLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.offsets.manager import PartitionOffsetManager
    from kgw.records.batch import RecordBatch


class ManagedLog(PartitionLog):
    """Common base of the logs that use a `PartitionOffsetManager`."""

    _offsets: PartitionOffsetManager

    @property
    def log_start_offset(self) -> int:
        return self._offsets.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._offsets.high_watermark

    @property
    def end_offset(self) -> int:
        return self._offsets.next_offset

    def _assign(self, batches: Sequence[RecordBatch]) -> AppendResult:
        """Assign offsets and the leader epoch to batches.

        Raises ValueError if there are no batches.
        """
        if not batches:
            raise ValueError("an append needs at least one batch")
        leader_epoch = self.leader_epoch
        base_offsets = self._offsets.assign_many([batch.last_offset_delta + 1 for batch in batches])
        for batch, base_offset in zip(batches, base_offsets, strict=True):
            batch.assign(base_offset, leader_epoch)
        return AppendResult(base_offsets[0], batches[-1].last_offset, leader_epoch)
