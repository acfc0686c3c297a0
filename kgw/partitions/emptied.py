"""Reading on where compaction left batches without records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.backend.base import ReadResult
from kgw.records.batch import HEADER_BYTES

if TYPE_CHECKING:
    from kgw.backend.base import PartitionLog
    from kgw.types import Buffer

# The last field of a batch's header says how many records follow.
_COUNT_BYTES: Final = 4


async def read_on(
    log: PartitionLog, offset: int, limit: int, high_watermark: int, *, at_least_one: bool
) -> ReadResult:
    """Read as `PartitionLog.read`; where there are only batches without records, on to the next.

    kafka-go (0.4.51) takes an answer without any record for the end of offset 0, and begins anew.
    """
    result = await log.read(offset, limit, high_watermark, at_least_one=at_least_one)
    while result.size_bytes and result.next_offset < high_watermark:
        if not all(map(_has_no_record, result.buffers)):
            break
        more = await log.read(result.next_offset, max(0, limit - result.size_bytes), high_watermark)
        if not more.size_bytes:
            break
        result = ReadResult(
            [*result.buffers, *more.buffers],
            result.size_bytes + more.size_bytes,
            more.next_offset,
            result.batches + more.batches,
            more.is_cut,
        )
    return result


def _has_no_record(buffer: Buffer) -> bool:
    """Whether whole batches are headers alone; for others a look at the first is enough."""
    return all(
        not any(buffer[end - _COUNT_BYTES : end])
        for end in range(HEADER_BYTES, len(buffer) + 1, HEADER_BYTES)
    )
