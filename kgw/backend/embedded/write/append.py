"""One append on its way to the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.append import Append as BaseAppend
from kgw.backend.append import AppendResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.errors import StorageError
    from kgw.records.batch import RecordBatch


class Append(BaseAppend):
    """Batches on their way to the disk."""

    __slots__ = ("attempt", "batches", "is_durable", "log", "size_bytes")

    error: StorageError | None

    def __init__(self, log: SegmentedLog, batches: Sequence[RecordBatch], base_offset: int) -> None:
        super().__init__()
        self.log = log
        self.batches = batches
        self.attempt = log.attempt
        last = batches[-1]
        self.result = AppendResult(base_offset, last.last_offset, last.leader_epoch)
        self.is_durable = True
        """Whether success means more than that the system has the bytes."""
        # Nearly always one batch, ten thousand times a second: sum() costs a microsecond more.
        self.size_bytes = (
            len(batches[0].buffer)
            if len(batches) == 1
            else sum(len(batch.buffer) for batch in batches)
        )
