"""A partition's log whose offsets and leader epochs are assigned by this server."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from kgw.backend.append import AppendResult
from kgw.backend.base import PartitionLog, find_epoch_at, find_epoch_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import EpochEnd, EpochStart
    from kgw.offsets.manager import PartitionOffsetManager
    from kgw.records.batch import RecordBatch


class ManagedLog(PartitionLog):
    """Common base of the logs that use a `PartitionOffsetManager`."""

    _offsets: PartitionOffsetManager

    @property
    @abstractmethod
    def _epochs(self) -> Sequence[EpochStart]:
        """The known leader epochs, oldest first; at least one."""

    @property
    def log_start_offset(self) -> int:
        return self._offsets.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._offsets.high_watermark

    @property
    def end_offset(self) -> int:
        return self._offsets.next_offset

    @property
    def leader_epoch(self) -> int:
        return self._epochs[-1].leader_epoch

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        return find_epoch_end(self._epochs, leader_epoch, self.end_offset)

    def epoch_at(self, offset: int) -> int:
        return find_epoch_at(self._epochs, offset)

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
