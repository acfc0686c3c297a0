"""The gateway with a backend that answers an append before it writes it.

The positive control of the kill loop: `python -m tests.campaigns.unsafe_serve serve ...`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kgw.backend.append import Append
from kgw.backend.embedded.partition_log import EmbeddedPartitionLog
from kgw.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.records.batch import RecordBatch

DELAY_S = 0.3


def append_hastily(self: EmbeddedPartitionLog, batches: Sequence[RecordBatch]) -> Append:
    """Give offsets and answer at once; let the flusher know a little later."""
    hasty = Append()
    append = self._store.submit(self._log, batches)
    hasty.result = append.result
    hasty.finish()
    asyncio.get_running_loop().call_later(DELAY_S, self._backend.take, append)
    return hasty


if __name__ == "__main__":
    EmbeddedPartitionLog.append = append_hastily  # type: ignore[method-assign]
    main(prog_name="kgw")
