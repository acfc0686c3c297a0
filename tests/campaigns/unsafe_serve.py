"""The gateway with a backend that answers an append before it writes it.

The positive control of the kill loop: `python -m tests.campaigns.unsafe_serve serve ...`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.backend.append import Append, AppendResult
from kgw.backend.embedded.partition_log import EmbeddedPartitionLog
from kgw.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.records.batch import RecordBatch

DELAY_S = 0.3
_promised: dict[SegmentedLog, int] = {}


def append_hastily(self: EmbeddedPartitionLog, batches: Sequence[RecordBatch]) -> Append:
    """Give offsets and answer at once; let the flusher know a little later."""
    hasty = Append()
    log = self._log
    next_offset = _promised.get(log, log.offsets.next_offset)
    last_offset = next_offset + sum(batch.last_offset_delta + 1 for batch in batches) - 1
    _promised[log] = last_offset + 1
    hasty.result = AppendResult(next_offset, last_offset, log.leader_epoch)
    hasty.finish()
    append = self._flusher.append
    asyncio.get_running_loop().call_later(DELAY_S, append, log, batches)
    return hasty


if __name__ == "__main__":
    EmbeddedPartitionLog.append = append_hastily  # type: ignore[method-assign]
    main(prog_name="kgw")
